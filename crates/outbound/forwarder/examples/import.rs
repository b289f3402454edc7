//! The import of the pattern's text: 10,000 records of 10 units against a service of 20,000 units a second.
//!
//! Starts a throttled service, imports the records by a forwarder with a queue on disk and a progress bar, then by a naive
//! client, and compares both. `make run-forward` runs it. Interrupted, it continues with the records that were stored:
//! the first argument is the data directory.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_capacity::{Dimension, MemoryCapacityStore, Target, TargetLimit, TargetLimits};
use tidegate_delivery::{HttpProcessor, HttpSettings};
use tidegate_forwarder::{Forwarder, ForwarderParts, LeaseStore, TypeSettings};
use tidegate_queue::{NewRecord, Payload, SqliteStore};
use tidegate_throttled_service::{
    LimitKind, NaiveClient, ServiceLimit, ThrottledService, ThrottledServiceSettings, run_over_http,
};
use tokio::time::{Instant, sleep};

const RECORDS: usize = 10_000;
const UNITS: u64 = 10;
const JOB: &str = "import";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let data_dir =
        std::env::args().nth(1).map_or_else(|| PathBuf::from("target/forward"), PathBuf::from);
    let limit = TargetLimit::per_second(Dimension::Units, 20_000);
    let service = start_service(limit)?;
    let queues = Arc::new(SqliteStore::open(&data_dir)?);
    let leases = LeaseStore::new(MemoryCapacityStore::default());
    let forwarder = Forwarder::new(ForwarderParts::new(queues, leases, "import"));
    let target = Target::new("database", TargetLimits::new(vec![limit])?);
    let mut http = HttpSettings::post(format!("http://{}/records", service.address()).parse()?);
    http.destinations.networks.push("127.0.0.0/8".parse()?);
    let processor = Arc::new(HttpProcessor::new(http)?);
    forwarder.add(&target, TypeSettings::new("records"), processor).await?;

    let waiting = forwarder.status("records").await?.map_or(0, |status| status.waiting);
    if waiting > 0 {
        println!(
            "{waiting} records of an earlier run wait in {} and go first.",
            data_dir.display()
        );
    }
    let began = Instant::now();
    for batch in 0..RECORDS / 100 {
        let record = |number: usize| NewRecord {
            cost: UNITS,
            job: Some(JOB.to_owned()),
            ..NewRecord::new(
                Payload::from_body(format!("record {number}"))
                    .with_header("x-units", UNITS.to_string()),
            )
        };
        let records = (batch * 100..batch * 100 + 100).map(record).collect();
        forwarder.enqueue("records", records).await?;
    }
    println!("{RECORDS} records are durable after {:.2} s.", began.elapsed().as_secs_f64());
    let forecast = follow(&forwarder, began).await?;
    let took = began.elapsed();
    forwarder.stop(Duration::from_secs(5)).await;
    let ours = service.stop().await.summary(Dimension::Units);

    let service = start_service(limit)?;
    let naive = run_over_http(&mut NaiveClient::new(RECORDS), service.address(), UNITS).await?;
    service.stop().await;

    println!("\n{:12} {:>8} {:>10} {:>9}", "", "sends", "throttled", "time");
    println!(
        "{:12} {:>8} {:>10} {:>8.2}s",
        "forwarder",
        ours.arrivals,
        ours.throttled,
        took.as_secs_f64()
    );
    println!(
        "{:12} {:>8} {:>10} {:>8.2}s",
        "naive",
        naive.sends,
        naive.throttled,
        naive.elapsed.as_secs_f64()
    );
    if let Some((at, expected)) = forecast {
        let truth = (took - at).as_secs_f64();
        let error = (expected - truth).abs() / truth * 100.0;
        println!(
            "\nForecast at a quarter: {expected:.2} s, it took {truth:.2} s: {error:.1} % off."
        );
    }
    println!("Busiest second: {} of 20000 units.", ours.busiest_second);
    Ok(())
}

fn start_service(limit: TargetLimit) -> Result<ThrottledService, Box<dyn Error>> {
    let limits = vec![ServiceLimit { limit, kind: LimitKind::SlidingLog }];
    Ok(ThrottledService::start(ThrottledServiceSettings::new(limits))?)
}

/// Shows the progress until the job is finished. Returns the forecast at a quarter of the records.
async fn follow(
    forwarder: &Forwarder,
    began: Instant,
) -> Result<Option<(Duration, f64)>, Box<dyn Error>> {
    let mut forecast = None;
    let mut out = std::io::stdout();
    while let Some(job) = forwarder.job(JOB, None).await? {
        let part = usize::try_from(job.delivered * 40 / job.accepted.max(1)).unwrap_or(40);
        let bar = format!("{}{}", "#".repeat(part), "-".repeat(40 - part.min(40)));
        write!(
            out,
            "\r[{bar}] {} of {}: {}    ",
            job.delivered, job.accepted, job.forecast.summary
        )?;
        out.flush()?;
        if forecast.is_none() && job.delivered * 4 >= job.accepted {
            forecast = job.forecast.seconds.map(|seconds| (began.elapsed(), seconds));
        }
        if job.finished {
            break;
        }
        sleep(Duration::from_millis(200)).await;
    }
    writeln!(out)?;
    Ok(forecast)
}
