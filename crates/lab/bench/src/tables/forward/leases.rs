//! Leases: shares, newcomers, and what they cost the store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_capacity::{
    CapacityDocument, Dimension, Pool, ShareRequest, TargetLimit, fair_shares,
};
use tidegate_throttled_service::LimitKind;

use super::Row;
use super::baselines::batcher_leases;
use super::fleet::{Fleet, FleetPlan, NETWORK};
use crate::goal::Goal;
use crate::scale::{Scale, Size};

const MEMBERS: usize = 4;

pub(super) async fn rows(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let time = match scale.size {
        Size::Full => Duration::from_secs(20),
        Size::Quick => Duration::from_secs(8),
    };
    let worst = (2..=50).map(|members| jain(&shares(members))).fold(1.0, f64::min);
    let mut rows =
        vec![Row::new("fairness (Jain), 2 to 50 members, worst", worst, Goal::at_least(0.99))];
    rows.push(Row::new(
        "weights 1 to 4: slots away from the exact share, worst",
        weighted_error(),
        Goal::at_most(1.0),
    ));
    eprintln!("forward: calls of the lease store");
    let limit = TargetLimit::per_second(Dimension::Units, 500);
    let plan = FleetPlan {
        members: MEMBERS,
        limit,
        kind: LimitKind::FixedWindow,
        latency: NETWORK,
        records: usize::try_from(500 * (time.as_secs() + 8))?,
        units: 1,
    };
    let fleet = Fleet::prepare(plan).await?;
    fleet.start().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let calls = &fleet.calls;
    let read = || {
        let writes = calls.writes.load(Ordering::Relaxed);
        (writes, calls.failed_writes.load(Ordering::Relaxed))
    };
    let before = read();
    tokio::time::sleep(time).await;
    let after = read();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (per_member, failed) = {
        let writes = (after.0 - before.0) as f64;
        let failed = (after.1 - before.1) as f64 / writes.max(1.0);
        (writes / time.as_secs_f64() / MEMBERS as f64, failed)
    };
    fleet.stop().await;
    let (_, blind) = batcher_leases(MEMBERS, 100);
    let row = Row::new(
        "lease writes per second and hungry member, 4 processes",
        per_member,
        Goal::at_most(1.0),
    );
    rows.push(row.beside("go-batcher 4"));
    let row = Row::new("failed lease writes ÷ writes", failed, Goal::at_most(0.05));
    rows.push(row.beside(format!("go-batcher {blind:.2}")));
    Ok(rows)
}

fn shares(members: usize) -> Vec<u16> {
    let request = ShareRequest { pool: 0, weight: 1, wants: u16::MAX, reserve: 0 };
    // As many slots as keep rounding below a percent.
    let name = CapacityDocument::DEFAULT_POOL.to_owned();
    let pool = Pool { name, weight: 1, slots_min: 0, slots_max: u16::MAX };
    fair_shares(1_000, &[pool], &vec![request; members])
}

/// How far the shares of members with weights of one to four lie from the exact ones, in slots.
fn weighted_error() -> f64 {
    let name = CapacityDocument::DEFAULT_POOL.to_owned();
    let pool = [Pool { name, weight: 1, slots_min: 0, slots_max: u16::MAX }];
    let mut worst = 0.0_f64;
    for members in 2..=50_u32 {
        let weight = |member: u32| 1 + member % 4;
        let request =
            |member| ShareRequest { pool: 0, weight: weight(member), wants: u16::MAX, reserve: 0 };
        let requests: Vec<ShareRequest> = (0..members).map(request).collect();
        let sum: u32 = (0..members).map(weight).sum();
        let shares = fair_shares(100, &pool, &requests);
        for (member, share) in (0..).zip(shares) {
            let exact = 100.0 * f64::from(weight(member)) / f64::from(sum);
            worst = worst.max((f64::from(share) - exact).abs());
        }
    }
    worst
}

/// Jain's index: 1 if all shares are equal.
fn jain(shares: &[u16]) -> f64 {
    let sum: f64 = shares.iter().map(|share| f64::from(*share)).sum();
    let squares: f64 = shares.iter().map(|share| f64::from(*share).powi(2)).sum();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let count = shares.len() as f64;
    sum * sum / (count * squares)
}
