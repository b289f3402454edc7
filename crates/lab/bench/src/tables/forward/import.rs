//! The import of the texts: 10,000 records of 10 units against 20,000 units a second.

use std::time::Duration;

use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_throttled_service::{BackoffClient, BaselineReport, LimitKind, NaiveClient};
use tokio::time::Instant;

use super::Row;
use super::baselines::over_http;
use super::fleet::{Fleet, FleetPlan, NETWORK};
use crate::goal::Goal;
use crate::scale::Scale;
use crate::spread::Spread;

const RECORDS: usize = 10_000;
const UNITS: u64 = 10;
/// 100,000 units at 20,000 a second.
const IDEAL: Duration = Duration::from_secs(5);

fn limit() -> TargetLimit {
    TargetLimit::per_second(Dimension::Units, 20_000)
}

struct ImportRun {
    sends: f64,
    throttled: f64,
    duplicates: usize,
    elapsed: f64,
    /// The error of the forecast after a second, and after a quarter.
    early_error: f64,
    quarter_error: f64,
}

pub(super) async fn rows(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let mut runs = Vec::new();
    for run in 0..scale.server_rounds.min(5) {
        eprintln!("forward: import, run {}", run + 1);
        runs.push(import().await?);
    }
    eprintln!("forward: import by the naive client and with backoff");
    let naive = over_http(&mut NaiveClient::new(RECORDS), limit(), UNITS).await?;
    let backoff = over_http(&mut BackoffClient::new(RECORDS, 1), limit(), UNITS).await?;
    let of = |figure: fn(&ImportRun) -> f64| Spread::of(runs.iter().map(figure).collect());
    let sends = of(|run| run.sends);
    let elapsed = of(|run| run.elapsed / IDEAL.as_secs_f64());
    let lost_or_twice = runs.iter().map(|run| run.duplicates).max().unwrap_or(0);
    let beside = |figure: fn(&BaselineReport) -> f64| {
        format!("naive {:.2}, backoff {:.2}", figure(&naive), figure(&backoff))
    };
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rows = vec![
        Row::new("import: sends ÷ records", sends.median, Goal::at_most(1.01))
            .shown(sends.to_string())
            .beside(beside(|report| report.sends as f64 / RECORDS as f64)),
        Row::new("import: throttled share", of(|run| run.throttled).median, Goal::at_most(0.01))
            .beside(beside(|report| report.throttled as f64 / report.sends.max(1) as f64)),
        Row::new("import: completion ÷ ideal of 5 s", elapsed.median, Goal::at_most(1.06))
            .shown(elapsed.to_string())
            .beside(beside(|report| report.elapsed.as_secs_f64() / IDEAL.as_secs_f64())),
        Row::new("import: duplicates, worst run", lost_or_twice as f64, Goal::at_most(0.0)),
        Row::new("ETA error after 1 s", of(|run| run.early_error).median, Goal::at_most(0.05)),
        Row::new("ETA error at 25 %", of(|run| run.quarter_error).median, Goal::at_most(0.03)),
    ];
    Ok(rows)
}

async fn import() -> anyhow::Result<ImportRun> {
    let plan = FleetPlan {
        members: 1,
        limit: limit(),
        kind: LimitKind::FixedWindow,
        latency: NETWORK,
        records: RECORDS,
        units: UNITS,
    };
    let fleet = Fleet::prepare(plan).await?;
    let began = Instant::now();
    fleet.start().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let early = (began.elapsed(), fleet.expected_seconds().await?);
    let quarter = u64::try_from(RECORDS)? * 3 / 4;
    while fleet.waiting().await? > quarter {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let at_quarter = (began.elapsed(), fleet.expected_seconds().await?);
    fleet.drain().await?;
    let elapsed = began.elapsed();
    let error = |(at, expected): (Duration, Option<f64>)| {
        let left = elapsed.saturating_sub(at).as_secs_f64();
        expected.map_or(f64::NAN, |expected| (expected - left).abs() / elapsed.as_secs_f64())
    };
    let summary = fleet.service.log().summary(Dimension::Units);
    fleet.stop().await;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let run = ImportRun {
        sends: summary.arrivals as f64 / RECORDS as f64,
        throttled: summary.throttled as f64 / summary.arrivals.max(1) as f64,
        duplicates: summary.duplicates,
        elapsed: elapsed.as_secs_f64(),
        early_error: error(early),
        quarter_error: error(at_quarter),
    };
    Ok(run)
}
