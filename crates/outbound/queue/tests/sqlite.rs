//! The embedded store under faults: a killed process, a full disk, damaged files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "sqlite")]

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tidegate_queue::{
    ClaimBudget, ManualClock, NewRecord, Payload, Queue, QueueError, QueueSettings, QueueStore,
    RecordId, SettleOutcome, SqliteSettings, SqliteStore, Timestamp,
};

const LEASE: Duration = Duration::from_secs(30);
/// Where the producer that is killed keeps its data; the test sets it for its child process.
const DIRECTORY_VARIABLE: &str = "TIDEGATE_QUEUE_TEST_DIRECTORY";
const KILLS: u64 = 8;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)))
}

fn open_with(path: &Path, file_bytes_max: Option<u64>) -> Result<SqliteStore, QueueError> {
    SqliteStore::open_with(path, SqliteSettings { clock: clock(), file_bytes_max })
}

fn record(body: impl Into<bytes::Bytes>) -> NewRecord {
    NewRecord::new(Payload::from_body(body))
}

async fn open_queue(store: &SqliteStore) -> Arc<dyn Queue> {
    store.open_queue("orders", QueueSettings::default()).await.unwrap()
}

/// Claims everything, without settling it.
async fn claim_all(queue: &Arc<dyn Queue>) -> Vec<tidegate_queue::Delivery> {
    let mut all = Vec::new();
    loop {
        let claim = queue.claim(ClaimBudget::records(1_000, LEASE)).await.unwrap();
        if claim.deliveries.is_empty() {
            return all;
        }
        all.extend(claim.deliveries);
    }
}

/// Enqueues and acknowledges batch after batch, and prints each step when it is durable.
async fn produce(path: &Path, batches: usize, mut out: impl Write) -> usize {
    let store = SqliteStore::open(path).unwrap();
    let queue = open_queue(&store).await;
    let mut stored = 0;
    for batch in 0..batches {
        let records =
            (0..1 + batch % 7).map(|number| record(vec![7; 100 + 300 * number])).collect();
        let outcomes = queue.enqueue(records).await.unwrap();
        stored += outcomes.len();
        let ids: Vec<String> = outcomes.iter().map(|one| one.id().to_string()).collect();
        writeln!(out, "stored {}.", ids.join(" ")).unwrap();
        if batch % 3 == 0 {
            let claim = queue.claim(ClaimBudget::records(2, LEASE)).await.unwrap();
            let ids: Vec<String> =
                claim.deliveries.iter().map(|one| one.record.id.to_string()).collect();
            writeln!(out, "acknowledges {}.", ids.join(" ")).unwrap();
            let receipts = claim.deliveries.into_iter().map(|one| one.receipt).collect();
            queue.ack(receipts).await.unwrap();
            writeln!(out, "acknowledged {}.", ids.join(" ")).unwrap();
        }
    }
    stored
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the parent test says so by a variable")]
async fn a_producer_stores_what_it_prints() {
    if let Some(path) = std::env::var_os(DIRECTORY_VARIABLE) {
        produce(&PathBuf::from(path), usize::MAX, std::io::stdout()).await;
    }
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("data");
    let stored = produce(&path, 7, std::io::sink()).await;
    let store = SqliteStore::open(&path).unwrap();
    let live = open_queue(&store).await.stats().await.unwrap().live().records;
    // Batches 0, 3 and 6 acknowledge one record and twice two.
    assert_eq!(live, stored as u64 - 5);
}

#[tokio::test]
async fn a_killed_process_loses_no_stored_record() {
    for seed in 0..KILLS {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("data");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_producer_stores_what_it_prints", "--nocapture"])
            .env(DIRECTORY_VARIABLE, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let steps = 3 + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 60;
        let mut printed = Vec::new();
        while printed.len() < usize::try_from(steps).unwrap() {
            printed.push(lines.next().unwrap().unwrap());
        }
        // SIGKILL, in the middle of whatever it does.
        child.kill().unwrap();
        printed.extend(lines.map_while(Result::ok));
        child.wait().unwrap();

        let ids = |word: &str| -> BTreeSet<RecordId> {
            // A line that was cut has no full stop.
            let whole = printed
                .iter()
                .filter_map(|line| line.split_once(&format!("{word} "))?.1.strip_suffix('.'));
            whole.flat_map(|ids| ids.split_whitespace().map(|id| id.parse().unwrap())).collect()
        };
        let (stored, begun, acknowledged) =
            (ids("stored"), ids("acknowledges"), ids("acknowledged"));
        assert!(!stored.is_empty(), "seed {seed}");
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(4_000_000_000)));
        let settings = SqliteSettings { clock, file_bytes_max: None };
        let store = SqliteStore::open_with(&path, settings).unwrap();
        // The deadlines are those of the producer's clock; there the records are old.
        let queue = open_queue(&store).await;
        let live = queue.stats().await.unwrap();
        let _ = claim_all(&queue).await;
        let dead = queue.list_dead_letters(None, 10_000).await.unwrap();
        let found: BTreeSet<RecordId> = dead.iter().map(|one| one.record.id).collect();
        assert_eq!(live.live().records + live.dead_records, found.len() as u64, "seed {seed}");
        let lost: Vec<_> = stored.difference(&found).filter(|id| !begun.contains(id)).collect();
        assert!(lost.is_empty(), "seed {seed}: lost {lost:?}");
        let back: Vec<_> = acknowledged.intersection(&found).collect();
        assert!(back.is_empty(), "seed {seed}: acknowledged and still there {back:?}");
        for one in dead {
            let shown = queue.show_dead_letter(one.record.id).await.unwrap().unwrap();
            assert_eq!(shown.record.payload.encoded_len() as u64, one.bytes, "seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_full_disk_rejects_enqueues_and_still_acknowledges() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("data");
    let store = open_with(&path, Some(400 * 1024)).unwrap();
    let queue = open_queue(&store).await;
    let mut accepted = BTreeSet::new();
    let failure = loop {
        match queue.enqueue(vec![record(vec![1; 4_000]); 5]).await {
            Ok(outcomes) => accepted.extend(outcomes.into_iter().map(|one| one.id())),
            Err(failure) => break failure,
        }
    };
    assert!(matches!(failure, QueueError::StorageFull(_)), "{failure}");
    assert!(failure.to_string().contains("free disk space"), "{failure}");
    assert!(accepted.len() > 20);
    assert_eq!(queue.stats().await.unwrap().live().records, accepted.len() as u64);

    let mut deliveries = claim_all(&queue).await;
    let delivered: BTreeSet<RecordId> = deliveries.iter().map(|one| one.record.id).collect();
    assert_eq!(delivered, accepted, "nothing of the rejected batch, everything of the others");
    // Operations that fail do not take others of the same commit with them.
    let kept = deliveries.split_off(20);
    let receipts: Vec<_> = deliveries.into_iter().map(|one| one.receipt).collect();
    let large = || queue.enqueue(vec![record(vec![2; 60_000]); 8]);
    let (first, acked, second) = tokio::join!(large(), queue.ack(receipts.clone()), large());
    assert!(matches!(first, Err(QueueError::StorageFull(_))), "{first:?}");
    assert!(matches!(second, Err(QueueError::StorageFull(_))), "{second:?}");
    assert_eq!(acked.unwrap(), vec![SettleOutcome::Applied; 20]);
    queue.enqueue(vec![record(vec![3; 4_000]); 5]).await.expect("there is room again");
    let total = kept.len() as u64 + 5;
    assert_eq!(queue.stats().await.unwrap().live().records, total);
    drop((queue, store));

    let store = open_with(&path, None).unwrap();
    let queue = open_queue(&store).await;
    assert_eq!(queue.stats().await.unwrap().live().records, total);
}

#[tokio::test]
async fn a_data_directory_has_one_owner() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("data");
    let store = open_with(&path, None).unwrap();
    let second = open_with(&path, None).unwrap_err();
    assert!(second.to_string().contains("in use by another process"), "{second}");
    let queue = open_queue(&store).await;
    drop(store);
    assert!(open_with(&path, None).is_err(), "a queue keeps the store open");
    drop(queue);
    open_with(&path, None).unwrap();
}

#[tokio::test]
async fn claims_of_a_process_that_ended_come_back_when_the_next_one_opens_the_queue() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("data");
    let store = open_with(&path, None).unwrap();
    let queue = open_queue(&store).await;
    queue.enqueue(vec![record("claimed"); 3]).await.unwrap();
    let claimed = claim_all(&queue).await;
    // Opening it again in the same process leaves its claims alone.
    let same = open_queue(&store).await;
    assert_eq!(claim_all(&same).await.len(), 0);
    drop((same, queue, store));

    let store = open_with(&path, None).unwrap();
    let queue = open_queue(&store).await;
    let again = claim_all(&queue).await;
    assert_eq!(again.len(), 3, "long before the lease ends");
    assert!(again.iter().all(|delivery| delivery.record.lapses == 1));
    let stale = claimed.into_iter().map(|delivery| delivery.receipt).collect();
    assert_eq!(queue.ack(stale).await.unwrap(), vec![SettleOutcome::StaleReceipt; 3]);
}

#[tokio::test]
async fn a_backup_of_a_queue_in_use_has_its_records() {
    let files = tempfile::tempdir().unwrap();
    let (path, copy) = (files.path().join("data"), files.path().join("copy"));
    let store = open_with(&path, None).unwrap();
    let queue = open_queue(&store).await;
    queue.enqueue(vec![record("kept"); 10]).await.unwrap();
    tidegate_data_dir::back_up(&path, &copy).unwrap();
    queue.enqueue(vec![record("later"); 10]).await.unwrap();
    let restored = open_with(&copy, None).unwrap();
    let queue = open_queue(&restored).await;
    assert_eq!(claim_all(&queue).await.len(), 10);
}

/// Uses every operation until one fails; returns the failure.
async fn exercise(path: &Path) -> Result<(), QueueError> {
    let store = open_with(path, None)?;
    let queue = store.open_queue("orders", QueueSettings::default()).await?;
    queue.stats().await?;
    queue.list_dead_letters(None, 100).await?;
    queue.enqueue(vec![record("new"); 3]).await?;
    for _ in 0..20 {
        let claim = queue.claim(ClaimBudget::records(20, LEASE)).await?;
        let receipts = claim.deliveries.into_iter().map(|one| one.receipt).collect();
        queue.ack(receipts).await?;
    }
    queue.redrive(tidegate_queue::DeadLetterSelection::All, 10).await?;
    queue.purge(tidegate_queue::DeadLetterSelection::All, 10).await?;
    Ok(())
}

#[tokio::test]
async fn damaged_files_are_reported_and_never_panic() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("data");
    let store = open_with(&path, None).unwrap();
    let queue = open_queue(&store).await;
    queue.enqueue((0..200_usize).map(|size| record(vec![9; size * 10])).collect()).await.unwrap();
    let dead = queue.claim(ClaimBudget::records(20, LEASE)).await.unwrap().deliveries;
    for delivery in dead {
        queue.dead_letter(delivery.receipt, "no".to_owned()).await.unwrap();
    }
    drop((queue, store));
    let database = path.join("queue.db");
    let pristine = fs::read(&database).unwrap();
    exercise(&path).await.unwrap();

    let mut reported = 0;
    for seed in 0..60_u64 {
        let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut roll = |sides: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % sides
        };
        let mut damaged = pristine.clone();
        match seed % 3 {
            // Some bytes, a page, the end.
            0 => (0..200).for_each(|_| damaged[roll(pristine.len())] ^= 1 << roll(8)),
            1 => {
                let page = roll(pristine.len() / 4096) * 4096;
                damaged[page..page + 4096].fill(0x5a);
            }
            _ => damaged.truncate(1 + roll(pristine.len() - 1)),
        }
        for name in ["queue.db-wal", "queue.db-shm"] {
            let _ = fs::remove_file(path.join(name));
        }
        fs::write(&database, &damaged).unwrap();
        if let Err(failure) = exercise(&path).await {
            reported += 1;
            let text = failure.to_string();
            assert!(!text.contains("writer has ended"), "seed {seed}: a panic");
            assert!(text.contains("queue.db"), "seed {seed}: {text}");
            if let QueueError::Damaged(text) = failure {
                assert!(text.contains("restore a backup"), "seed {seed}: {text}");
            }
        }
    }
    assert!(reported > 20, "{reported} of 60 damaged files were noticed");
}

#[tokio::test]
async fn a_torn_log_loses_only_its_end() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("data");
    let store = open_with(&path, None).unwrap();
    let queue = open_queue(&store).await;
    for number in 0..20 {
        queue.enqueue(vec![record(vec![number; 500])]).await.unwrap();
    }
    // As after a loss of power: a copy of the files while they are in use, and the log's last bytes missing.
    let copy = files.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["format", "queue.db", "queue.db-wal"] {
        fs::copy(path.join(name), copy.join(name)).unwrap();
    }
    let mut log =
        OpenOptions::new().read(true).write(true).open(copy.join("queue.db-wal")).unwrap();
    let len = log.metadata().unwrap().len();
    assert!(len > 8_192, "the log holds the records");
    let mut last = [0; 100];
    log.seek(SeekFrom::Start(len - 100)).unwrap();
    log.read_exact(&mut last).unwrap();
    log.set_len(len - 100).unwrap();
    let store = open_with(&copy, None).unwrap();
    let queue = open_queue(&store).await;
    let bodies: Vec<u8> =
        claim_all(&queue).await.iter().map(|one| one.record.payload.body[0]).collect();
    assert_eq!(bodies, (0..19).collect::<Vec<u8>>(), "all commits but the torn one");
}
