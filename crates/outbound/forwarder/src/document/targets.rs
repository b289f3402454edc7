//! From the document to throttled services.

use tidegate_capacity::{Dimension, LimitsError, Pool, Target, TargetLimit, TargetLimits};
use tidegate_document::{Fault, Problems, Size};

use super::table::{LimitKeys, PoolKeys, TargetKeys};
use super::{count, put, small};

/// A target; `None` if a problem was reported.
pub(super) fn target(keys: TargetKeys, problems: &mut Problems<'_>) -> Option<Target> {
    let wanted = keys.limits.len();
    let limits: Vec<TargetLimit> =
        keys.limits.iter().filter_map(|limit| target_limit(limit, problems)).collect();
    let slots = keys.slots.map_or(TargetLimits::SLOTS_DEFAULT, small);
    let pools: Vec<Pool> =
        keys.pools.iter().filter_map(|each| pool(each, slots, problems)).collect();
    let minima: u64 = pools.iter().map(|pool| u64::from(pool.slots_min)).sum();
    if minima > u64::from(slots) {
        let message = format!("the pools get {minima} slots first, and there are {slots}");
        let fault = Fault::new("out_of_range", message).hint("lower `slots_min`, or raise `slots`");
        problems.error(keys.keys.value_location("pools"), fault);
    }
    let name = keys.name?.value.0;
    // A limit that could not be read has been reported, and the rest would be another target.
    if limits.len() < wanted || !keys.keys.has("limits") {
        return None;
    }
    let limits = match TargetLimits::with_slots(limits, slots) {
        Ok(limits) => limits,
        Err(error) => {
            let hint = match error {
                LimitsError::Empty => "such as `{units: 20000, per: 1s}`",
                LimitsError::NoPace => "such as `{operations: 100, per: 1s}` beside it",
                _ => "docs/capacity.md says which limits can be kept",
            };
            let fault = Fault::new("invalid_limits", error.to_string()).hint(hint);
            problems.error(keys.keys.value_location("limits"), fault);
            return None;
        }
    };
    let mut target = Target { pools, ..Target::new(name, limits) };
    put(&mut target.utilisation_ppm, keys.utilisation.map(|part| part.0));
    put(&mut target.hold_max, keys.hold_max);
    Some(target)
}

fn target_limit(keys: &LimitKeys, problems: &mut Problems<'_>) -> Option<TargetLimit> {
    const AMOUNTS: [&str; 3] = ["operations", "bytes", "units"];
    keys.keys.exclude_each_other(&AMOUNTS, problems);
    let amounts = [
        (Dimension::Operations, keys.operations),
        (Dimension::Bytes, keys.bytes.map(Size::bytes)),
        (Dimension::Units, keys.units),
    ];
    let given = amounts.into_iter().find_map(|(dimension, amount)| Some((dimension, amount?)));
    if given.is_none() && !AMOUNTS.iter().any(|name| keys.keys.has(name)) {
        let fault = Fault::new("missing_key", "the limit has no amount")
            .hint("give it `operations`, `bytes` or `units`, such as `{units: 20000, per: 1s}`");
        problems.error(keys.keys.location, fault);
    }
    let (dimension, amount) = given?;
    let window_ms = u64::try_from(keys.per?.as_millis()).unwrap_or(u64::MAX);
    Some(TargetLimit { dimension, amount, window_ms })
}

fn pool(keys: &PoolKeys, slots: u16, problems: &mut Problems<'_>) -> Option<Pool> {
    let pool = Pool {
        name: keys.name.as_ref()?.value.0.clone(),
        weight: keys.weight.map_or(1, count),
        slots_min: keys.slots_min.map_or(0, small),
        slots_max: keys.slots_max.map_or(slots, small),
    };
    if pool.slots_min > pool.slots_max {
        let message = "`slots_min` is above `slots_max`";
        problems.error(keys.keys.value_location("slots_min"), Fault::new("out_of_range", message));
    }
    Some(pool)
}
