//! How long a database with many rows takes: import, single writes, a beat of the publisher.
//!
//! `cargo run --release -p tidegate-plane --example scale -- 1000000` prints the figures of docs/control-plane.md. A second
//! argument is the URL of a PostgreSQL server (with the feature `postgres`).

use std::error::Error;
use std::sync::Arc;

use serde_json::json;
use tidegate_algorithms::{ManualClock, Timestamp};
use tidegate_plane::{
    Author, BeatOutcome, Broadcast, CellClass, CellSettings, Change, ChangeSet, EntryKey,
    EntryKind, Publisher, PublisherSettings, RulesDatabase, SigningKey,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

const BATCH: usize = 10_000;
const SINGLE: usize = 1_000;
const RULES: &str = "domain: api\ndescriptors:\n- key: client\n  rate_limit: {unit: second, requests_per_unit: 100}\n";

fn row(name: &str, rate: usize) -> Change {
    let key = EntryKey::new(EntryKind::Row, name).within("api/clients");
    Change::set(key, json!({ "terms": format!("rate={rate}") }))
}

/// The most memory that this process has had, in MB.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1_000
}

async fn apply(
    database: &RulesDatabase,
    changes: Vec<Change>,
    now: u64,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let set = ChangeSet::new(Author::named("scale"), "a measurement", changes);
    database.apply(set, CellClass::Large.rows_max() as u64, now).await?;
    Ok(())
}

async fn open(
    url: Option<String>,
) -> Result<(RulesDatabase, tempfile::TempDir), Box<dyn Error + Send + Sync>> {
    let files = tempfile::tempdir()?;
    #[cfg(feature = "postgres")]
    if let Some(url) = url {
        return Ok((RulesDatabase::connect(&url, "scale").await?, files));
    }
    #[cfg(not(feature = "postgres"))]
    drop(url);
    Ok((RulesDatabase::open(&files.path().join("data")).await?, files))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let rows: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let (database, _files) = open(arguments.next()).await?;
    let database = Arc::new(database);
    println!("{rows} rows in {}", database.location());
    let document = EntryKey::new(EntryKind::Document, "api.yaml");
    apply(&database, vec![Change::set(document, json!({ "text": RULES }))], 1).await?;

    let began = Instant::now();
    for first in (0..rows).step_by(BATCH) {
        let numbers = first..(first + BATCH).min(rows);
        let changes = numbers.map(|number| row(&format!("client-{number:07}"), number % 1_000 + 1));
        apply(&database, changes.collect(), 1).await?;
    }
    println!("import: {:.1} s", began.elapsed().as_secs_f64());

    let began = Instant::now();
    for number in 0..SINGLE {
        apply(&database, vec![row("client-0000000", number % 4_000 + 1_001)], 1).await?;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("single writes, one after another: {:.0}/s", SINGLE as f64 / seconds);
    let began = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..16 {
        let database = Arc::clone(&database);
        writers.spawn(async move {
            for number in 0..SINGLE {
                apply(&database, vec![row(&format!("client-{writer:07}"), number % 900 + 1)], 1)
                    .await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("single writes, 16 writers: {:.0}/s", (16 * SINGLE) as f64 / seconds);

    let cell = CellSettings::new("main", CellClass::Large);
    let settings = PublisherSettings {
        owner: "scale".to_owned(),
        ring: "all".to_owned(),
        key: SigningKey::generate()?,
        certificate: None,
        targets: Vec::new(),
    };
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1)));
    let mut publisher =
        Publisher::new(database, cell, clock, settings, Arc::new(Broadcast::default()));
    for _ in 0..3 {
        let began = Instant::now();
        let outcome = publisher.beat().await;
        if !matches!(outcome, BeatOutcome::Published { .. }) {
            return Err(format!("{outcome:?}").into());
        }
        println!(
            "beat (read, build, sign, verify): {:.2} s, peak memory {} MB",
            began.elapsed().as_secs_f64(),
            peak_megabytes()
        );
    }
    println!("file: {:.1} MB", CellClass::Large.file_bytes() as f64 / 1e6);
    Ok(())
}
