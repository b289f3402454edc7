//! What forwarding costs: a limit that is as high as the capacity, and the processor.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tidegate_algorithms::Nanos;
use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_throttled_service::{
    Latency, LimitKind, ServiceLimit, ThrottledService, ThrottledServiceSettings,
};
use tokio::time::sleep;

use super::Row;
use super::fleet::{Fleet, FleetPlan, NETWORK};
use crate::child;
use crate::goal::Goal;
use crate::processor::time_of;
use crate::scale::{Scale, Size};

/// A request takes this long, always.
const EXCHANGE: Duration = Duration::from_millis(20);
const IN_FLIGHT: u32 = 20;
/// What so many requests in flight carry.
const CAPACITY: u64 = 1_000;
const WARM_UP: Duration = Duration::from_secs(3);
const CHILD_RATE: u64 = 2_000;

pub(super) async fn rows(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let time = match scale.size {
        Size::Full => Duration::from_secs(10),
        Size::Quick => Duration::from_secs(5),
    };
    eprintln!("forward: with and without a limit");
    let without = accepted_rate(1_000_000, time).await?;
    // The part that is used of a limit is 98 %: with this one, all of the capacity.
    let limited = accepted_rate(CAPACITY * 100 / 98, time).await?;
    let row = Row::new(
        "throughput with limit = capacity ÷ without",
        limited / without,
        Goal::at_least(0.97),
    );
    let row = row
        .shown(format!("{:.3} ({limited:.0} and {without:.0}/s)", limited / without))
        .beside("River Pro 0.52");
    eprintln!("forward: the processor at {CHILD_RATE}/s");
    let processor = child_processor(time).await?;
    let what = format!("one core at {CHILD_RATE}/s, queue and HTTP included, part");
    Ok(vec![row, Row::new(what, processor, Goal::at_most(0.25))])
}

/// Accepted requests in a second, of a service that takes all it gets.
async fn accepted_rate(amount: u64, time: Duration) -> anyhow::Result<f64> {
    let latency = Latency { median: EXCHANGE / 2, spread: 0.0 };
    let seconds = (WARM_UP + time).as_secs() + 3;
    let plan = FleetPlan {
        members: 1,
        limit: TargetLimit::per_second(Dimension::Units, amount),
        kind: LimitKind::SlidingLog,
        latency,
        records: usize::try_from(CAPACITY * 12 / 10 * seconds)?,
        units: 1,
    };
    let mut fleet = Fleet::prepare(plan).await?;
    fleet.in_flight_max = IN_FLIGHT;
    fleet.start().await?;
    sleep(WARM_UP).await;
    let from = fleet.service.now();
    sleep(time).await;
    let log = fleet.service.log().between(from, from.after(Nanos::from(time)));
    fleet.stop().await;
    let accepted = log.arrivals().iter().filter(|arrival| arrival.is_accepted()).count();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(accepted as f64 / time.as_secs_f64())
}

/// The part of one core that a process takes which sends 2,000 records a second.
async fn child_processor(time: Duration) -> anyhow::Result<f64> {
    let limit = TargetLimit::per_second(Dimension::Units, 10 * CHILD_RATE);
    let limits = vec![ServiceLimit { limit, kind: LimitKind::FixedWindow }];
    let mut settings = ThrottledServiceSettings::new(limits);
    (settings.delay_before, settings.delay_after) = (NETWORK, NETWORK);
    let service = ThrottledService::start(settings)?;
    let arguments =
        ["forward-processor".to_owned(), service.address().to_string(), time.as_secs().to_string()];
    let output = tokio::task::spawn_blocking(move || child::output_of(&arguments)).await??;
    let part = String::from_utf8(output)?.trim().parse().context("the child prints a number")?;
    let sent = service.log().arrivals().len();
    anyhow::ensure!(sent > 0, "the child sent nothing");
    Ok(part)
}

/// Sends 2,000 records a second to a service, and prints the part of a core that it took.
pub(crate) fn measure_processor(service: SocketAddr, seconds: u64) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let plan = FleetPlan {
            members: 1,
            limit: TargetLimit::per_second(Dimension::Units, CHILD_RATE),
            kind: LimitKind::FixedWindow,
            latency: NETWORK,
            records: usize::try_from(CHILD_RATE * (seconds + WARM_UP.as_secs() + 2))?,
            units: 1,
        };
        let fleet = Fleet::prepare_for(plan, service).await?;
        fleet.start().await?;
        sleep(WARM_UP).await;
        let (from, left) = (time_of(std::process::id())?, fleet.waiting().await?);
        sleep(Duration::from_secs(seconds)).await;
        let spent = time_of(std::process::id())?.saturating_sub(from);
        let sent = left.saturating_sub(fleet.waiting().await?);
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let (seconds, sent) = (seconds as f64, sent as f64);
        // For each 2,000 records, should it have sent fewer.
        println!("{}", spent.as_secs_f64() / sent * CHILD_RATE as f64);
        anyhow::ensure!(sent > 0.9 * seconds * CHILD_RATE as f64, "it sent {sent} in {seconds} s");
        fleet.stop().await;
        Ok(())
    })
}
