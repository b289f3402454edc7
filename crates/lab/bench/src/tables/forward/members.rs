//! Members that join, wait, rest and die.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{
    Cost, Dimension, MemberTerms, MemoryCapacityStore, Target, TargetLimit, TargetLimits,
    TargetMember,
};
use tidegate_throttled_service::{ArrivalLog, LimitKind};
use tokio::time::{Instant, sleep, timeout};

use super::Row;
use super::fleet::{Fleet, FleetPlan, NETWORK};
use crate::goal::Goal;
use crate::scale::{Scale, Size};

type SharedStore = std::sync::Arc<MemoryCapacityStore>;

/// The lease of a member unless the operator chooses another, and the time after it in which a kill must be made up for.
const LEASE: f64 = 15.0;

pub(super) async fn rows(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let newcomers = match scale.size {
        Size::Full => 10,
        Size::Quick => 3,
    };
    let mut rows = Vec::new();
    for (members, hungry) in [(4, true), (4, false)] {
        eprintln!("forward: newcomers among {members} members, hungry: {hungry}");
        let mut worst = 0.0_f64;
        for _ in 0..newcomers {
            worst = worst.max(newcomer_seconds(members, hungry).await?);
        }
        let others = if hungry { "that want more" } else { "that are satisfied" };
        let what = format!("newcomer at 90 % of its share, {members} members {others}, worst s");
        rows.push(Row::new(what, worst, Goal::at_most(6.0)).beside("go-batcher 1–13 or never"));
    }
    eprintln!("forward: calls of satisfied members");
    rows.push(satisfied().await?);
    eprintln!("forward: a killed member");
    rows.push(after_a_kill().await?);
    Ok(rows)
}

fn member(store: &SharedStore, name: &str) -> anyhow::Result<TargetMember<SharedStore>> {
    let limit = TargetLimit::per_second(Dimension::Operations, 1_000);
    let target = Target::new("service", TargetLimits::new(vec![limit])?);
    Ok(TargetMember::join(SharedStore::clone(store), target, MemberTerms::named(name)))
}

/// How long a member that joins others takes to hold nine tenths of its fair share.
async fn newcomer_seconds(members: usize, hungry: bool) -> anyhow::Result<f64> {
    let store = SharedStore::default();
    // Satisfied members use their parts of all slots: 25 of 100 each, of four.
    let wants = if hungry { 100_000 } else { 1_000 / u64::try_from(members)? };
    let backlog = |records| Cost { operations: records, bytes: 0, units: 0 };
    let mut there = Vec::new();
    for number in 0..members {
        let member = member(&store, &format!("member-{number}"))?;
        member.set_backlog(backlog(wants));
        there.push(member);
    }
    sleep(Duration::from_secs(3)).await;
    let newcomer = member(&store, "newcomer")?;
    let began = Instant::now();
    newcomer.set_backlog(backlog(wants));
    let fair = 100 / (members + 1);
    let arrived = async {
        while newcomer.slots().len() * 10 < fair * 9 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), arrived).await.context("the newcomer gets no share")?;
    let took = began.elapsed().as_secs_f64();
    drop(there);
    Ok(took)
}

/// What a member that has what it wants costs the store.
async fn satisfied() -> anyhow::Result<Row> {
    const MEMBERS: u64 = 4;
    const TIME: Duration = Duration::from_secs(12);
    let plan = FleetPlan {
        members: usize::try_from(MEMBERS)?,
        limit: TargetLimit::per_second(Dimension::Units, 500),
        kind: LimitKind::FixedWindow,
        latency: NETWORK,
        records: 0,
        units: 1,
    };
    let fleet = Fleet::prepare(plan).await?;
    fleet.start().await?;
    // Members look often until nobody has joined for a while.
    sleep(Duration::from_secs(9)).await;
    let before = fleet.calls.writes.load(Ordering::Relaxed);
    sleep(TIME).await;
    let writes = fleet.calls.writes.load(Ordering::Relaxed) - before;
    fleet.stop().await;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = writes as f64 / TIME.as_secs_f64() / MEMBERS as f64;
    Ok(Row::new("lease writes per second and satisfied member", each, Goal::at_most(0.25))
        .beside("go-batcher 4"))
}

/// The time after a kill from which on the others send 95 % of the limit.
async fn after_a_kill() -> anyhow::Result<Row> {
    const RATE: u64 = 400;
    let plan = FleetPlan {
        members: 4,
        limit: TargetLimit::per_second(Dimension::Units, RATE),
        kind: LimitKind::FixedWindow,
        latency: NETWORK,
        records: usize::try_from(RATE * 28)?,
        units: 1,
    };
    let mut fleet = Fleet::prepare(plan).await?;
    fleet.start().await?;
    sleep(Duration::from_secs(6)).await;
    let killed_at = fleet.service.now();
    // Dropped without a word: its tasks end, its leases and claims stay until they expire.
    drop(fleet.forwarders.pop());
    sleep(Duration::from_secs(19)).await;
    let log = fleet.service.log();
    fleet.stop().await;
    let recovered = recovered_after(&log, killed_at, RATE);
    Ok(Row::new("95 % of the limit again after a kill, s", recovered, Goal::at_most(LEASE + 1.0)))
}

/// The first instant after which the next second holds 95 % of the limit, in seconds after the kill.
fn recovered_after(log: &ArrivalLog, killed_at: Timestamp, rate: u64) -> f64 {
    const STEP: Nanos = Nanos::from_millis(50);
    let mut from = killed_at.after(Nanos::from_secs(1));
    for _ in 0..360 {
        let second = log.between(from, from.after(Nanos::from_secs(1)));
        if second.arrivals().len() as u64 * 100 >= rate * 95 {
            return Duration::from(from.since(killed_at)).as_secs_f64();
        }
        from = from.after(STEP);
    }
    f64::INFINITY
}
