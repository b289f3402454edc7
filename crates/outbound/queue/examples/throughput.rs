//! How fast the embedded queue is on this disk, and how much memory a backlog takes.
//!
//! Run it: `cargo run --release -p tidegate-queue --example throughput -- [RECORDS] [DIRECTORY]`. It enqueues a million
//! records of 512 bytes in batches of 100 unless told otherwise, in a temporary directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_queue::{
    ClaimBudget, Clock, NewRecord, Payload, Queue, QueueSettings, QueueStore, SqliteStore,
    WallClock,
};

const BATCH: u64 = 100;
const BODY_BYTES: usize = 512;
const LEASE: Duration = Duration::from_secs(600);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let records: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let parent = match arguments.next() {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    let data_dir: PathBuf = parent.path().join("data");
    let store = SqliteStore::open(&data_dir)?;
    let queue = store.open_queue("bench", QueueSettings::default()).await?;

    for producers in [1, 4, 8] {
        let (seconds, mut waits) = enqueue(&queue, producers, 20_000).await?;
        println!(
            "enqueue, {producers} producers, batches of {BATCH}: {} records/s, p50 {}, p99 {}",
            rate(20_000, seconds),
            millis(percentile(&mut waits, 50)),
            millis(percentile(&mut waits, 99)),
        );
    }
    let (small, small_memory) = (queue.stats().await?.live().records, resident_kib());
    let missing = records.saturating_sub(small);
    let (seconds, mut waits) = enqueue(&queue, 8, missing).await?;
    println!(
        "enqueue up to {records}, 8 producers: {} records/s, p99 {}",
        rate(missing, seconds),
        millis(percentile(&mut waits, 99)),
    );
    let memory = resident_kib();
    println!(
        "memory at {small} records {} MiB, at {records} records {} MiB: {} MiB more",
        small_memory / 1024,
        memory / 1024,
        memory.saturating_sub(small_memory) / 1024
    );

    let disk = std::fs::metadata(data_dir.join("queue.db"))?.len();
    let beside = (disk / records.max(1)).saturating_sub(BODY_BYTES as u64);
    println!("disk for a record beside its body: {beside} bytes");

    let (claimed, waits_of_claims, enqueued, seconds) = mixed(&queue).await?;
    let mut waits = waits_of_claims;
    println!(
        "claim and ack of 20 while 4 producers enqueue: {} records/s, p99 {}; enqueued {} records/s",
        rate(claimed, seconds),
        millis(percentile(&mut waits, 99)),
        rate(enqueued, seconds)
    );

    drop((queue, store));
    let clock = WallClock::new();
    let start = clock.now();
    let store = SqliteStore::open(&data_dir)?;
    let queue = store.open_queue("bench", QueueSettings::default()).await?;
    let live = queue.stats().await?.live().records;
    let opened = Duration::from(clock.now().since(start));
    println!("open with {live} records: {} ms", opened.as_millis());
    println!("memory after that: {} MiB", resident_kib() / 1024);
    Ok(())
}

/// Enqueues `total` records; returns the seconds and each batch's wait.
async fn enqueue(
    queue: &Arc<dyn Queue>,
    producers: u64,
    total: u64,
) -> Result<(f64, Vec<Duration>), Box<dyn std::error::Error>> {
    let clock = WallClock::new();
    let start = clock.now();
    let left = Arc::new(AtomicU64::new(total / BATCH));
    let tasks: Vec<_> = (0..producers)
        .map(|producer| tokio::spawn(produce(queue.clone(), clock, producer, left.clone())))
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await??);
    }
    Ok((Duration::from(clock.now().since(start)).as_secs_f64(), waits))
}

/// Enqueues batches until none is left.
async fn produce(
    queue: Arc<dyn Queue>,
    clock: WallClock,
    producer: u64,
    left: Arc<AtomicU64>,
) -> Result<Vec<Duration>, tidegate_queue::QueueError> {
    let mut waits = Vec::new();
    let take = |left: u64| left.checked_sub(1);
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
        let batch = (0..BATCH).map(|number| NewRecord {
            tenant: format!("tenant {}", number % 10),
            cost: 1 + producer,
            ..NewRecord::new(Payload::from_body(vec![b'x'; BODY_BYTES]))
        });
        let batch = batch.collect();
        let start = clock.now();
        queue.enqueue(batch).await?;
        waits.push(clock.now().since(start).into());
    }
    Ok(waits)
}

/// Claims and acknowledges 40,000 records while producers enqueue as fast as they can.
async fn mixed(
    queue: &Arc<dyn Queue>,
) -> Result<(u64, Vec<Duration>, u64, f64), Box<dyn std::error::Error>> {
    let clock = WallClock::new();
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let producers: Vec<_> = (0..4)
        .map(|producer| tokio::spawn(produce(queue.clone(), clock, producer, left.clone())))
        .collect();
    let start = clock.now();
    let claimed = Arc::new(AtomicU64::new(0));
    let claimers: Vec<_> = (0..8)
        .map(|_| {
            let (queue, claimed) = (queue.clone(), claimed.clone());
            tokio::spawn(async move {
                let mut waits: Vec<Duration> = Vec::new();
                while claimed.load(Ordering::Relaxed) < 40_000 {
                    let start = clock.now();
                    let claim = queue.claim(ClaimBudget::records(20, LEASE)).await?;
                    let receipts: Vec<_> =
                        claim.deliveries.into_iter().map(|delivery| delivery.receipt).collect();
                    let count = receipts.len() as u64;
                    waits.push(clock.now().since(start).into());
                    let start = clock.now();
                    queue.ack(receipts).await?;
                    waits.push(clock.now().since(start).into());
                    claimed.fetch_add(count, Ordering::Relaxed);
                }
                Ok::<_, tidegate_queue::QueueError>(waits)
            })
        })
        .collect();
    let mut waits = Vec::new();
    for claimer in claimers {
        waits.extend(claimer.await??);
    }
    let seconds = Duration::from(clock.now().since(start)).as_secs_f64();
    left.store(0, Ordering::Relaxed);
    let mut batches = 0;
    for producer in producers {
        batches += producer.await??.len() as u64;
    }
    Ok((claimed.load(Ordering::Relaxed), waits, batches * BATCH, seconds))
}

fn rate(records: u64, seconds: f64) -> String {
    format!("{:.0}", records as f64 / seconds.max(1e-9))
}

fn millis(wait: Duration) -> String {
    format!("{:.1} ms", wait.as_secs_f64() * 1_000.0)
}

fn percentile(waits: &mut [Duration], percent: usize) -> Duration {
    waits.sort_unstable();
    let index = waits.len() * percent / 100;
    waits.get(index.min(waits.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// The memory of this process that is in RAM; 0 where the system does not say.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}
