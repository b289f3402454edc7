//! The durable queue below the forwarder: enqueue, claim and acknowledge, memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tidegate_queue::{
    ClaimBudget, NewRecord, Payload, Queue, QueueSettings, QueueStore, SqliteStore,
};
use tokio::time::Instant;

use super::Row;
use crate::child;
use crate::goal::Goal;
use crate::processor::resident_bytes;
use crate::scale::{Scale, Size};

const BATCH: usize = 100;
const PRODUCERS: usize = 8;
/// More than the goal's records in a second, without a queue before the disk.
const PRODUCERS_FEW: usize = 2;
const CLAIM: usize = 20;
const BODY_BYTES: usize = 512;

pub(super) async fn rows(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let (time, backlog) = match scale.size {
        Size::Full => (Duration::from_secs(5), 1_000_000),
        Size::Quick => (Duration::from_secs(2), 200_000),
    };
    eprintln!("forward: durable enqueue");
    let directory = tempfile::tempdir().context("no temporary directory")?;
    let store = SqliteStore::open(&directory.path().join("data"))?;
    let queue = store.open_queue("bench", QueueSettings::default()).await?;
    let alone = run(&queue, time, PRODUCERS, 0).await?;
    let few = run(&queue, time, PRODUCERS_FEW, 0).await?;
    let mixed = run(&queue, time, PRODUCERS, 4).await?;
    drop((queue, store));
    eprintln!("forward: memory at {backlog} records");
    let arguments = ["forward-memory".to_owned(), backlog.to_string()];
    let grown: f64 = String::from_utf8(child::output_of(&arguments)?)?.trim().parse()?;
    Ok(vec![
        Row::new("durable enqueue, records/s", alone.enqueued, Goal::at_least(20_000.0)),
        Row::new(
            format!("durable enqueue, {PRODUCERS_FEW} producers at {:.0}/s, p99 ms", few.enqueued),
            few.enqueue_p99,
            Goal::at_most(25.0),
        )
        .shown(format!("{:.1} ({:.1} with {PRODUCERS})", few.enqueue_p99, alone.enqueue_p99)),
        Row::new("claim and ack beside it, records/s", mixed.acked, Goal::at_least(5_000.0)),
        Row::new("claim and ack beside it, p99 ms", mixed.ack_p99, Goal::at_most(50.0)),
        Row::new(
            format!("memory from 1,000 to {backlog} records, MiB"),
            grown / 1_048_576.0,
            Goal::at_most(32.0),
        ),
    ])
}

/// Prints by how many bytes this process grows between a thousand and so many records.
pub(crate) fn measure_memory(records: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let directory = tempfile::tempdir().context("no temporary directory")?;
        let store = SqliteStore::open(&directory.path().join("data"))?;
        let queue = store.open_queue("bench", QueueSettings::default()).await?;
        let mut before = 0;
        for number in 0..records / BATCH as u64 {
            if number == 10 {
                before = resident_bytes(std::process::id())?;
            }
            queue.enqueue(batch()).await?;
        }
        let after = resident_bytes(std::process::id())?;
        println!("{}", after.saturating_sub(before));
        Ok(())
    })
}

fn batch() -> Vec<NewRecord> {
    vec![NewRecord::new(Payload::from_body(vec![b'x'; BODY_BYTES])); BATCH]
}

/// Records in a second, and the 99th percentile of the waits in milliseconds.
struct QueueFigures {
    enqueued: f64,
    enqueue_p99: f64,
    acked: f64,
    ack_p99: f64,
}

async fn run(
    queue: &Arc<dyn Queue>,
    time: Duration,
    producers_count: usize,
    claimers: usize,
) -> anyhow::Result<QueueFigures> {
    let ended = Arc::new(AtomicBool::new(false));
    let mut producers = Vec::new();
    for _ in 0..producers_count {
        let (queue, ended) = (Arc::clone(queue), Arc::clone(&ended));
        producers.push(tokio::spawn(async move {
            let mut waits = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                queue.enqueue(batch()).await?;
                waits.push(began.elapsed());
            }
            anyhow::Ok((waits.len() * BATCH, waits))
        }));
    }
    let mut workers = Vec::new();
    for _ in 0..claimers {
        let (queue, ended) = (Arc::clone(queue), Arc::clone(&ended));
        workers.push(tokio::spawn(async move {
            let (mut records, mut waits) = (0, Vec::new());
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                let budget = ClaimBudget::records(CLAIM, Duration::from_secs(60));
                let claim = queue.claim(budget).await?;
                let receipts = claim.deliveries.into_iter().map(|delivery| delivery.receipt);
                let receipts: Vec<_> = receipts.collect();
                records += receipts.len();
                queue.ack(receipts).await?;
                waits.push(began.elapsed());
            }
            anyhow::Ok((records, waits))
        }));
    }
    tokio::time::sleep(time).await;
    ended.store(true, Ordering::Relaxed);
    let (enqueued, enqueue_p99) = collect(producers, time).await?;
    let (acked, ack_p99) = collect(workers, time).await?;
    Ok(QueueFigures { enqueued, enqueue_p99, acked, ack_p99 })
}

/// Records that a task handled, and the time of each batch.
type TaskResult = anyhow::Result<(usize, Vec<Duration>)>;

async fn collect(
    tasks: Vec<tokio::task::JoinHandle<TaskResult>>,
    time: Duration,
) -> anyhow::Result<(f64, f64)> {
    let (mut records, mut waits) = (0, Vec::new());
    for task in tasks {
        let (done, waited) = task.await??;
        records += done;
        waits.extend(waited);
    }
    waits.sort_unstable();
    let p99 = waits.get(waits.len() * 99 / 100).map_or(f64::NAN, Duration::as_secs_f64);
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = records as f64 / time.as_secs_f64();
    Ok((rate, p99 * 1_000.0))
}
