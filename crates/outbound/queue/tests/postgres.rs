//! The PostgreSQL store under faults and with several processes, on the server's clock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "postgres")]

mod faults;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use faults::{CrashingServer, batch, kill_while_producing};
use tidegate_queue::{
    ClaimBudget, NewRecord, PostgresSettings, PostgresStore, Queue, QueueError, QueueSettings,
    QueueStore,
};
use tidegate_test_servers::postgres::PostgresServer;

const LEASE: Duration = Duration::from_secs(600);

async fn open(url: &str) -> Result<Arc<dyn Queue>, QueueError> {
    let store = PostgresStore::connect(url, PostgresSettings::default()).await?;
    store.open_queue("orders", QueueSettings::default()).await
}

async fn start() -> PostgresServer {
    tokio::task::spawn_blocking(PostgresServer::start).await.unwrap()
}

impl CrashingServer for PostgresServer {
    fn kill(&mut self) {
        PostgresServer::kill(self);
    }

    fn restart(&mut self) {
        PostgresServer::restart(self);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_no_stored_record_and_is_found_again() {
    let server = start().await;
    let queue = open(&server.url()).await.unwrap();
    let (_server, found) = kill_while_producing(server, queue.clone()).await;
    assert_eq!(queue.stats().await.unwrap().in_flight, found);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_share_one_queue() {
    let server = start().await;
    let url = server.url();
    let openers: Vec<_> = (0..4)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open(&url).await })
        })
        .collect();
    let mut queues = Vec::new();
    for opener in openers {
        queues.push(opener.await.unwrap().unwrap());
    }
    queues[0].enqueue(batch(100)).await.unwrap();
    let claimers: Vec<_> = queues
        .iter()
        .map(|queue| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.claim(ClaimBudget::records(25, LEASE)).await })
        })
        .collect();
    let mut taken = 0;
    let mut seen = BTreeSet::new();
    for claimer in claimers {
        let deliveries = claimer.await.unwrap().unwrap().deliveries;
        taken += deliveries.len();
        seen.extend(deliveries.iter().map(|one| one.record.id));
    }
    assert_eq!(seen.len(), taken, "no record went to two processes");
    while taken < 100 {
        taken += queues[1].claim(ClaimBudget::records(25, LEASE)).await.unwrap().deliveries.len();
    }
    assert_eq!(queues[3].stats().await.unwrap().in_flight, 100);
}

#[tokio::test]
async fn unreachable_servers_and_wrong_settings_are_reported() {
    let refused = open("postgres://tidegate:secret@127.0.0.1:1/postgres").await.err().unwrap();
    assert!(matches!(refused, QueueError::Unavailable(_)), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
    let wrong = open("postgres://tidegate:secret@[").await.err().unwrap();
    assert!(
        matches!(&wrong, QueueError::InvalidSettings(text) if !text.contains("secret")),
        "{wrong}"
    );
    let settings = PostgresSettings { schema: "a\"b".to_owned(), ..PostgresSettings::default() };
    let wrong = PostgresStore::connect("postgres://127.0.0.1:1/x", settings).await.unwrap_err();
    assert!(matches!(wrong, QueueError::InvalidSettings(_)), "{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_and_idle_tenants_take_few_rows() {
    let server = start().await;
    let queue = open(&server.url()).await.unwrap();
    for number in 0..300 {
        let record =
            NewRecord { tenant: format!("tenant {number}"), cost: 3, ..batch(1).remove(0) };
        queue.enqueue(vec![record]).await.unwrap();
        let claim = queue.claim(ClaimBudget::records(1, LEASE)).await.unwrap();
        let receipts = claim.deliveries.into_iter().map(|one| one.receipt).collect();
        queue.ack(receipts).await.unwrap();
    }
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.live(), stats.in_flight), (Default::default(), 0));
    let (client, connection) =
        tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for table in ["totals", "tenants"] {
        let sql = format!("SELECT count(*) FROM tidegate.{table}");
        let rows: i64 = client.query_one(&sql, &[]).await.unwrap().get(0);
        assert!(rows < 250, "{table} has {rows} rows");
    }
}
