//! The error of the pace for slow, fast, cheap and costly records, in virtual time, and the costs of others.

use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{Cost, Departure, Dimension, Pace, TargetLimit, TargetLimits, TargetPacer};
use tidegate_throttled_service::Chance;

use super::Row;
use super::baselines::batcher_rate;
use crate::goal::Goal;

/// The latest that a timer wakes its task.
const TIMER_LATE_MAX: Nanos = Nanos::from_millis(2);
const SLOTS: u16 = 100;

/// The limits, as an amount in a window of milliseconds: from one in five seconds to 20,000 a second.
const LIMITS: [(u64, u64); 6] =
    [(1, 5_000), (2, 1_000), (20, 1_000), (200, 1_000), (2_000, 1_000), (20_000, 1_000)];

pub(super) fn rows() -> anyhow::Result<Vec<Row>> {
    let (mut lowest, mut highest) = (f64::INFINITY, 0.0_f64);
    let mut shown = Vec::new();
    for (amount, window_ms) in LIMITS {
        let slot = (amount / u64::from(SLOTS)).max(1);
        let mut of_limit = f64::INFINITY;
        // From one unit to ten slots' worth.
        for cost in [1, slot, 10 * slot].map(|cost| cost.min(amount)) {
            let part = part_of_target(
                TargetLimit { dimension: Dimension::Units, amount, window_ms },
                cost,
            )?;
            (lowest, highest) = (lowest.min(part), highest.max(part));
            of_limit = of_limit.min(part);
        }
        shown.push(format!("{of_limit:.3}"));
    }
    let costs = [1, 99, 500].map(|cost| format!("{:.2}", batcher_rate(1_000, cost)));
    let slow = [9, 25].map(|limit| format!("{:.2}", batcher_rate(limit, 1)));
    Ok(vec![
        Row::new(
            "rate ÷ target, 0.2/s to 20,000/s, costs 1 to 10 slots, lowest",
            lowest,
            Goal::at_least(0.98),
        )
        .shown(format!("{lowest:.3} (by limit: {})", shown.join(", ")))
        .beside(format!("go-batcher: 9/s {}, 25/s {}", slow[0], slow[1])),
        Row::new("the same, highest", highest, Goal::at_most(1.0))
            .beside(format!("go-batcher, 1,000/s, cost 1, 99 and 500: {}", costs.join(", "))),
    ])
}

/// The rate of one member with all slots, divided by the used part of the limit.
fn part_of_target(limit: TargetLimit, cost: u64) -> anyhow::Result<f64> {
    let limits = TargetLimits::with_slots(vec![limit], SLOTS)?;
    let mut pacer = TargetPacer::new(&limits);
    let start = Timestamp::from_secs(1_000);
    let pace = Pace { slots: SLOTS, level_ppm: Pace::UTILISATION_DEFAULT };
    pacer.set_pace(pace, start);
    let mut chance = Chance::new(limit.amount);
    let (mut now, mut sent) = (start, 0_u64);
    // Long enough for two hundred records of any limit, and a minute at least.
    let records = (limit.amount * 60_000 / limit.window_ms / cost).clamp(200, 200_000);
    while sent < records {
        let Departure::At(at) = pacer.earliest(Cost::units(cost), now, Timestamp::MAX) else {
            anyhow::bail!("a whole share permits every record");
        };
        // A record that is due leaves at once; others wait for a timer.
        if at > now {
            now = at.after(Nanos::new(chance.below(TIMER_LATE_MAX.get())));
        }
        pacer.depart(Cost::units(cost), now);
        sent += 1;
    }
    let took = Duration::from(now.since(start)).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let (units, used) = (
        (sent * cost) as f64,
        limit.amount as f64 * 1_000.0 / limit.window_ms as f64
            * f64::from(Pace::UTILISATION_DEFAULT)
            / f64::from(Pace::WHOLE),
    );
    Ok(units / took / used)
}
