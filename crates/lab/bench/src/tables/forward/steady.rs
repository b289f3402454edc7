//! A steady stream against each kind of limit, with several processes.

use std::time::Duration;

use tidegate_algorithms::Nanos;
use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_throttled_service::{ArrivalLog, ArrivalTime, LimitKind};

use super::Row;
use super::baselines::{batcher_busiest, batcher_leases};
use super::fleet::{Fleet, FleetPlan, NETWORK};
use crate::goal::Goal;
use crate::scale::{Scale, Size};

/// Not measured: leases are granted and shared.
const WARM_UP: Duration = Duration::from_secs(5);

const KINDS: [(&str, LimitKind); 3] = [
    ("fixed window", LimitKind::FixedWindow),
    ("sliding log", LimitKind::SlidingLog),
    ("bucket of 10 %", LimitKind::TokenBucket { depth: 0 }),
];

#[derive(Clone, Copy, Debug)]
struct SteadyFigures {
    throttled: f64,
    accepted: f64,
    busiest_sent: f64,
    busiest_arrived: f64,
    busiest_bin: f64,
    variation: f64,
}

pub(super) async fn rows(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let time = match scale.size {
        Size::Full => Duration::from_secs(10),
        Size::Quick => Duration::from_secs(5),
    };
    let mut rows = Vec::new();
    for (rate, throttled_max, arrived_max, bin_max) in
        [(100, 0.01, 1.03, 1.3), (500, 0.001, 1.0, 1.15)]
    {
        for (name, kind) in KINDS {
            for members in [1, 4] {
                let figures = measure(rate, 1, kind, members, time).await?;
                let what = format!("{rate}/s, {name}, {members} processes");
                let goal = Goal::at_most(throttled_max);
                rows.push(Row::new(format!("{what}: throttled share"), figures.throttled, goal));
                if kind == LimitKind::FixedWindow {
                    rows.extend(smoothness(&what, figures, arrived_max, bin_max));
                }
            }
        }
    }
    for members in [1, 4, 10] {
        let figures = measure(2_000, 1, LimitKind::FixedWindow, members, time).await?;
        let what = format!("2000/s, {members} processes: accepted ÷ limit");
        let (few, _) = batcher_leases(members, 20);
        let (many, _) = batcher_leases(members, 100);
        let row = Row::new(what, figures.accepted, Goal::at_least(0.97));
        rows.push(row.beside(format!("go-batcher {few:.2} (20 partitions), {many:.2} (100)")));
        let what = format!("2000/s, {members} processes: busiest second ÷ limit, sent");
        rows.push(Row::new(what, figures.busiest_sent, Goal::at_most(1.0)));
    }
    let costly = measure(1_000, 99, LimitKind::FixedWindow, 1, time).await?;
    let row = Row::new(
        "1000 units/s, cost 99: busiest second ÷ limit, sent",
        costly.busiest_sent,
        Goal::at_most(1.0),
    );
    rows.push(row.beside(format!("go-batcher {:.2}", batcher_busiest(99))));
    let row =
        Row::new("1000 units/s, cost 99: accepted ÷ limit", costly.accepted, Goal::at_least(0.96));
    rows.push(row);
    Ok(rows)
}

fn smoothness(what: &str, figures: SteadyFigures, arrived_max: f64, bin_max: f64) -> Vec<Row> {
    let mut rows = vec![
        Row::new(format!("{what}: accepted ÷ limit"), figures.accepted, Goal::at_least(0.97)),
        Row::new(
            format!("{what}: busiest second ÷ limit, sent"),
            figures.busiest_sent,
            Goal::at_most(1.0),
        ),
        Row::new(
            format!("{what}: busiest second ÷ limit, arrived"),
            figures.busiest_arrived,
            Goal::at_most(arrived_max),
        ),
        Row::new(
            format!("{what}: busiest 200 ms ÷ mean"),
            figures.busiest_bin,
            Goal::at_most(bin_max),
        )
        .beside("bursts of a second 5.0"),
    ];
    if bin_max < 1.2 {
        let goal = Goal::at_most(0.06);
        let row = Row::new(format!("{what}: variation of 100 ms"), figures.variation, goal);
        rows.push(row.beside("random arrivals 0.14"));
    }
    rows
}

async fn measure(
    amount: u64,
    units: u64,
    kind: LimitKind,
    members: usize,
    time: Duration,
) -> anyhow::Result<SteadyFigures> {
    eprintln!("forward: {amount}/s, cost {units}, {kind:?}, {members} processes");
    let kind = match kind {
        LimitKind::TokenBucket { .. } => LimitKind::TokenBucket { depth: amount / 10 },
        other => other,
    };
    let limit = TargetLimit::per_second(Dimension::Units, amount);
    let seconds = WARM_UP.saturating_add(time).as_secs();
    let records = usize::try_from(amount / units * (seconds + 2))?;
    let plan = FleetPlan { members, limit, kind, latency: NETWORK, records, units };
    let fleet = Fleet::prepare(plan).await?;
    fleet.start().await?;
    tokio::time::sleep(WARM_UP).await;
    let from = fleet.service.now();
    tokio::time::sleep(time).await;
    let log = fleet.service.log().between(from, from.after(Nanos::from(time)));
    fleet.stop().await;
    Ok(figures(&log, amount, time))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn figures(log: &ArrivalLog, amount: u64, time: Duration) -> SteadyFigures {
    let summary = log.summary(Dimension::Units);
    let accepted = log.arrivals().iter().filter(|arrival| arrival.is_accepted());
    let accepted: u64 = accepted.map(|arrival| arrival.cost.units).sum();
    let second = Duration::from_secs(1);
    let busiest = |time| log.busiest(Dimension::Units, second, time) as f64 / amount as f64;
    SteadyFigures {
        throttled: summary.throttled as f64 / summary.arrivals.max(1) as f64,
        accepted: accepted as f64 / (amount as f64 * time.as_secs_f64()),
        busiest_sent: busiest(ArrivalTime::Departed),
        busiest_arrived: busiest(ArrivalTime::Judged),
        busiest_bin: summary.busiest_bin_ratio,
        variation: log.variation(Dimension::Units, Duration::from_millis(100)),
    }
}
