//! Pictures of real runs: bursts of a second, bursts of 200 ms, and continuous release, against one service.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_simulation::replay::{ChartLine, LineChart};
use tidegate_throttled_service::{
    ArrivalLog, BurstClient, LimitKind, ServiceLimit, ThrottledService, ThrottledServiceSettings,
    run_over_http,
};
use tokio::time::sleep;

use super::fleet::{Fleet, FleetPlan, NETWORK};

/// The limit of operations in a second.
const RATE: u64 = 100;
const RECORDS: usize = 500;
/// What a service holds that is refilled evenly: a tenth of a second.
const DEPTH: u64 = RATE / 10;
/// The shown seconds, from one second after the first arrival.
const SHOWN: Duration = Duration::from_secs(3);
const BIN: Duration = Duration::from_millis(20);

/// Draws the charts of docs/pacing.md into a directory, and prints how much of each run was throttled.
pub(crate) fn draw_charts(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).context("the directory of the charts")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let (mut sums, mut bins) = (Vec::new(), Vec::new());
    println!("| Release | Requests | Throttled | Busiest 200 ms ÷ mean |");
    println!("|---|---|---|---|");
    for release in Release::ALL {
        let log = runtime.block_on(release.run())?;
        let summary = log.summary(Dimension::Operations);
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let percent = 100.0 * summary.throttled as f64 / summary.arrivals.max(1) as f64;
        println!(
            "| {} | {} | {} ({percent:.0} %) | {:.2} |",
            release.name(),
            summary.arrivals,
            summary.throttled,
            summary.busiest_bin_ratio,
        );
        sums.push(release.line(cumulative(&log)));
        bins.push((release, per_bin(&log)));
    }
    let chart = LineChart {
        title: "500 requests at 100 a second: what has left".to_owned(),
        x_label: "seconds".to_owned(),
        y_label: "requests".to_owned(),
        lines: sums,
        mark: None,
    };
    fs::write(directory.join("pacing-sums.svg"), chart.document())?;
    for (release, points) in bins {
        let chart = LineChart {
            title: format!("Requests in each 20 ms: {}", release.name()),
            x_label: "seconds".to_owned(),
            y_label: "requests in 20 ms".to_owned(),
            lines: vec![release.line(points)],
            mark: None,
        };
        fs::write(directory.join(format!("pacing-{}.svg", release.file())), chart.document())?;
    }
    Ok(())
}

/// How records are released.
#[derive(Clone, Copy, Debug)]
enum Release {
    Second,
    FifthOfSecond,
    Continuous,
}

impl Release {
    const ALL: [Release; 3] = [Release::Second, Release::FifthOfSecond, Release::Continuous];

    const fn name(self) -> &'static str {
        match self {
            Release::Second => "100 each second",
            Release::FifthOfSecond => "20 each 200 ms",
            Release::Continuous => "continuous (Tidegate)",
        }
    }

    const fn file(self) -> &'static str {
        match self {
            Release::Second => "second",
            Release::FifthOfSecond => "fifth",
            Release::Continuous => "continuous",
        }
    }

    fn line(self, points: Vec<(f64, f64)>) -> ChartLine {
        let class = match self {
            Release::Second => "all",
            Release::FifthOfSecond => "old",
            Release::Continuous => "new",
        };
        ChartLine { class, name: self.name(), points }
    }

    async fn run(self) -> anyhow::Result<ArrivalLog> {
        let limit = TargetLimit::per_second(Dimension::Operations, RATE);
        let kind = LimitKind::TokenBucket { depth: DEPTH };
        let (size, every) = match self {
            Release::Second => (100, Duration::from_secs(1)),
            Release::FifthOfSecond => (20, Duration::from_millis(200)),
            Release::Continuous => {
                let latency = NETWORK;
                let plan =
                    FleetPlan { members: 1, limit, kind, latency, records: RECORDS, units: 1 };
                let fleet = Fleet::prepare(plan).await?;
                fleet.start().await?;
                fleet.drain().await?;
                let log = fleet.service.log();
                fleet.stop().await;
                return Ok(log);
            }
        };
        let mut settings = ThrottledServiceSettings::new(vec![ServiceLimit { limit, kind }]);
        (settings.delay_before, settings.delay_after) = (NETWORK, NETWORK);
        let service = ThrottledService::start(settings)?;
        // Throttled records join later bursts: only the first seconds are of interest.
        let address = service.address();
        let client = tokio::spawn(async move {
            let mut client = BurstClient::new(RECORDS, size, every);
            run_over_http(&mut client, address, 1).await
        });
        sleep(Duration::from_secs(5)).await;
        client.abort();
        Ok(service.log())
    }
}

/// The times of the shown arrivals, in seconds.
fn shown(log: &ArrivalLog) -> Vec<f64> {
    let first = log.arrivals().iter().map(|arrival| arrival.received).min().unwrap_or_default();
    let mut times: Vec<f64> = log
        .arrivals()
        .iter()
        .map(|arrival| Duration::from(arrival.received.since(first)).as_secs_f64())
        .filter(|at| *at < SHOWN.as_secs_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

/// How many requests have left by each instant.
fn cumulative(log: &ArrivalLog) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    let mut sum = 0.0;
    for at in shown(log) {
        points.push((at, sum));
        sum += 1.0;
        points.push((at, sum));
    }
    points
}

/// How many requests left in each bin.
fn per_bin(log: &ArrivalLog) -> Vec<(f64, f64)> {
    let bin = BIN.as_secs_f64();
    let times = shown(log);
    let (mut points, mut next, mut from) = (Vec::new(), 0, 0.0);
    while from < SHOWN.as_secs_f64() {
        let mut count = 0.0;
        while next < times.len() && times[next] < from + bin {
            count += 1.0;
            next += 1;
        }
        points.extend([(from, count), (from + bin, count)]);
        from += bin;
    }
    points
}
