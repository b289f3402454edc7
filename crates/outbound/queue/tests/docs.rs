//! The table of backends in `docs/queue.md` says what the stores declare.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "redis"))]

use std::path::Path;
use std::sync::Arc;

use tidegate_queue::{
    Capability, ManualClock, PostgresSettings, PostgresStore, QueueStore, RedisQueueSettings,
    RedisSettings, RedisStore, SqliteStore,
};
use tidegate_test_servers::postgres::PostgresServer;
use tidegate_test_servers::server::Setup;

#[tokio::test]
async fn the_table_of_backends_lists_their_capabilities() {
    let files = tempfile::tempdir().unwrap();
    let on_disk = SqliteStore::open(&files.path().join("data")).unwrap();
    let in_memory = SqliteStore::in_memory(Arc::new(ManualClock::default())).unwrap();
    let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap();
    let settings = PostgresSettings { schema: "docs".to_owned(), ..PostgresSettings::default() };
    let postgres = PostgresStore::connect(&server.url(), settings).await.unwrap();
    let server = Setup::redis().with("appendonly", &["yes"]).start();
    let settings = RedisQueueSettings::new(RedisSettings::parse(&server.url()).unwrap());
    let redis = RedisStore::connect(settings).await.unwrap();
    let stores: [&dyn QueueStore; 4] = [&on_disk, &in_memory, &postgres, &redis];

    let names = ["Capability", "SQLite", "SQLite in memory", "PostgreSQL", "Redis Streams"];
    let mut table = vec![format!("| {} |", names.join(" | "))];
    table.push("|---".repeat(names.len()) + "|");
    for capability in Capability::ALL {
        let cells = stores.map(|store| match store.capabilities().contains(&capability) {
            true => "yes",
            false => "no",
        });
        table.push(format!("| {capability} | {} |", cells.join(" | ")));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/queue.md");
    let text = std::fs::read_to_string(page).unwrap();
    assert!(
        text.contains(&table.join("\n")),
        "docs/queue.md needs this table:\n{}",
        table.join("\n")
    );
}
