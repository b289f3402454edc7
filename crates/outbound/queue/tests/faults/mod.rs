//! A server that is killed while producers use it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_queue::{ClaimBudget, NewRecord, Payload, Queue, QueueError, RecordId};

const LEASE: Duration = Duration::from_secs(600);
/// Records that producers store before each kill.
const STORED_MIN: usize = 50;
/// Claims that find nothing before the queue counts as empty: a broker hands records over a moment after it is back.
const EMPTY_CLAIMS: usize = 50;

/// A server that a test ends as a crash would.
pub(crate) trait CrashingServer: Send + 'static {
    fn kill(&mut self);
    fn restart(&mut self);
}

pub(crate) fn batch(records: usize) -> Vec<NewRecord> {
    vec![NewRecord::new(Payload::from_body("x")); records]
}

/// Kills the server three times while producers enqueue, then claims everything. Returns the server, and how
/// many records there were.
pub(crate) async fn kill_while_producing<S: CrashingServer>(
    mut server: S,
    queue: Arc<dyn Queue>,
) -> (S, u64) {
    let mut stored: BTreeSet<RecordId> = BTreeSet::new();
    for round in 0..3 {
        let (progress, killed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let producers: Vec<_> = (0..3)
            .map(|_| {
                let (queue, progress, killed) = (queue.clone(), progress.clone(), killed.clone());
                tokio::spawn(async move {
                    let mut stored = Vec::new();
                    loop {
                        match queue.enqueue(batch(5)).await {
                            Ok(outcomes) => {
                                stored.extend(outcomes.into_iter().map(|one| one.id()));
                                progress.fetch_add(5, Ordering::Relaxed);
                            }
                            Err(failure) if killed.load(Ordering::Relaxed) => {
                                return (stored, failure);
                            }
                            // The client may still be on its way back from the kill before.
                            Err(QueueError::Unavailable(_)) => {}
                            Err(failure) => panic!("{failure}"),
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                })
            })
            .collect();
        while progress.load(Ordering::Relaxed) < STORED_MIN {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // First, so that no producer takes the failure for one of the round before.
        killed.store(true, Ordering::Relaxed);
        server.kill();
        for producer in producers {
            let (ids, failure) = producer.await.unwrap();
            assert!(matches!(failure, QueueError::Unavailable(_)), "round {round}: {failure}");
            stored.extend(ids);
        }
        server = tokio::task::spawn_blocking(move || {
            server.restart();
            server
        })
        .await
        .unwrap();
    }
    assert!(stored.len() >= STORED_MIN, "{}", stored.len());
    // The same queue reconnects. Batches whose answer was lost may be there too.
    let mut found = BTreeSet::new();
    let mut empty = 0;
    while empty < EMPTY_CLAIMS && (empty == 0 || !stored.is_subset(&found)) {
        match queue.claim(ClaimBudget::records(500, LEASE)).await {
            Ok(claim) if !claim.deliveries.is_empty() => {
                for delivery in claim.deliveries {
                    assert!(found.insert(delivery.record.id), "delivered twice");
                }
            }
            Ok(_) | Err(QueueError::Unavailable(_)) => {
                empty += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    let lost: Vec<_> = stored.difference(&found).collect();
    assert!(lost.is_empty(), "lost {lost:?}");
    (server, found.len() as u64)
}
