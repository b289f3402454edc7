//! Whether the interval of a forecast covers the truth, with rivals that make the service throttle.

use std::time::Duration;

use tidegate_algorithms::Nanos;
use tidegate_capacity::{Cost, Dimension, TargetLimit};
use tidegate_throttled_service::LimitKind;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Row;
use super::fleet::{Fleet, FleetPlan, NETWORK};
use crate::goal::Goal;
use crate::scale::{Scale, Size};

const RATE: u64 = 100;
const RECORDS: usize = 800;
/// Runs at the same time.
const TOGETHER: usize = 10;

pub(super) async fn rows(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let runs = match scale.size {
        Size::Full => 50,
        Size::Quick => 20,
    };
    let (mut covered, mut with_rival, mut covered_with_rival) = (0, 0, 0);
    for first in (0..runs).step_by(TOGETHER) {
        eprintln!("forward: intervals of forecasts, runs {} to {}", first + 1, first + TOGETHER);
        let mut together = JoinSet::new();
        for run in first..(first + TOGETHER).min(runs) {
            together.spawn(is_covered(run % 2 == 1));
        }
        while let Some(run) = together.join_next().await {
            let (rival, hit) = run??;
            covered += usize::from(hit);
            with_rival += usize::from(rival);
            covered_with_rival += usize::from(rival && hit);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let part = covered as f64 / runs as f64;
    let row = Row::new(
        format!("90 % interval at 25 % covers the truth, {runs} runs"),
        part,
        Goal::at_least(0.85),
    );
    let shown = format!("{part:.2} ({covered_with_rival} of {with_rival} with a rival)");
    Ok(vec![row.shown(shown)])
}

/// Whether the interval that is given at a quarter of the records covers the time that the rest takes.
async fn is_covered(rival: bool) -> anyhow::Result<(bool, bool)> {
    let plan = FleetPlan {
        members: 1,
        limit: TargetLimit::per_second(Dimension::Units, RATE),
        kind: LimitKind::FixedWindow,
        latency: NETWORK,
        records: RECORDS,
        units: 1,
    };
    let fleet = Fleet::prepare(plan).await?;
    fleet.start().await?;
    if rival {
        // It takes a third for a while, before the forecast.
        let every = Nanos::from_millis(30);
        fleet.service.add_rival(Cost::units(1), every, Duration::from_millis(1_500));
    }
    while fleet.waiting().await? > (RECORDS * 3 / 4) as u64 {
        sleep(Duration::from_millis(10)).await;
    }
    let asked = Instant::now();
    let between = fleet.expected_between().await?;
    fleet.drain().await?;
    let truth = asked.elapsed().as_secs_f64();
    fleet.stop().await;
    Ok((rival, between.is_some_and(|[low, high]| low <= truth && truth <= high)))
}
