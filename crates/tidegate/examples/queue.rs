//! Orders that are kept on disk and sent within a budget of cost.
//!
//! Run it: `cargo run -p tidegate --features queue --example queue`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Nanos;
use tidegate::queue::{
    AttemptCharge, ClaimBudget, Clock, EnqueueOutcome, ManualClock, NewRecord, Payload, QueueError,
    QueueSettings, QueueStore, SqliteSettings, SqliteStore, Timestamp,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = tempfile::tempdir()?;
    for line in demo(&files.path().join("data")).await? {
        println!("{line}");
    }
    Ok(())
}

/// Five orders of cost 10: some are sent, the process restarts, the rest is sent.
pub(crate) async fn demo(data_dir: &Path) -> Result<Vec<String>, QueueError> {
    let mut lines = Vec::new();
    // A service uses `SqliteStore::open`; the example has a clock that it sets, so that it need not wait.
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
    let open = || {
        let settings = SqliteSettings { clock: clock.clone(), file_bytes_max: None };
        SqliteStore::open_with(data_dir, settings)
    };
    let lease = Duration::from_secs(60);

    let store = open()?;
    let orders = store.open_queue("orders", QueueSettings::default()).await?;
    let order = |number: u32| NewRecord {
        cost: 10,
        dedup_key: Some(format!("order {number}")),
        ..NewRecord::new(Payload::from_body(format!("order {number}")))
    };
    // The producer repeats order 4, because it did not see the answer.
    let outcomes = orders.enqueue([0, 1, 2, 3, 4, 4].map(order).into()).await?;
    let accepted = outcomes.iter().filter(|one| matches!(one, EnqueueOutcome::Accepted(_))).count();
    lines.push(format!("enqueued {accepted} records, the repeated one once"));

    // The target allows 20 units now.
    let budget = ClaimBudget { cost: 20, ..ClaimBudget::records(100, lease) };
    let claim = orders.claim(budget).await?;
    let cost: u64 = claim.deliveries.iter().map(|delivery| delivery.record.cost).sum();
    let next = claim.withheld.map_or(0, |withheld| withheld.cost);
    let count = claim.deliveries.len();
    lines.push(format!("claimed {count} records of cost {cost}, the next costs {next}"));
    let mut deliveries = claim.deliveries.into_iter();
    if let (Some(sent), Some(throttled)) = (deliveries.next(), deliveries.next()) {
        lines.push(format!("sent {}", text(&sent.record.payload)));
        orders.ack(vec![sent.receipt]).await?;
        let not_before = clock.now().after(Nanos::from_secs(5));
        orders.nack(throttled.receipt, not_before, AttemptCharge::Free).await?;
        let name = text(&throttled.record.payload);
        lines.push(format!("{name} was throttled: later, without an attempt"));
    }
    drop((orders, store));

    let store = open()?;
    let orders = store.open_queue("orders", QueueSettings::default()).await?;
    let waiting = orders.stats().await?.live().records;
    lines.push(format!("after a restart {waiting} records wait"));
    for _ in 0..2 {
        for delivery in orders.claim(ClaimBudget::records(100, lease)).await?.deliveries {
            lines.push(format!("sent {}", text(&delivery.record.payload)));
            orders.ack(vec![delivery.receipt]).await?;
        }
        clock.advance(Duration::from_secs(5));
    }
    Ok(lines)
}

fn text(payload: &Payload) -> String {
    String::from_utf8_lossy(&payload.body).into_owned()
}
