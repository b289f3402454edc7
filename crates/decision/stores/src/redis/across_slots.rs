//! A request whose keys lie in several slots of a cluster.
//!
//! No script can access two slots, so such a request is decided slot by slot, in the same order by every process. A
//! check that admits is charged immediately; once a check refuses the request, the charges are refunded.
//!
//! For a few round trips other requests may be refused because of a charge that is refunded later; no request is
//! admitted wrongly. If this process dies in between, or a slot cannot be reached, the charges stay, as if the request
//! had been admitted: at most the cost of one request, until the window ends or the bucket refills. A turn of a leaky
//! bucket cannot be refunded, nor can a soft limit's allowance that was opened.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Limit};

use super::RedisStore;
use super::codec::ScriptVerb;
use super::exchange::Exchange;
use crate::batch::{Batch, Charge, Check, Role, Verb, passes};
use crate::check_all::Decisions;
use crate::counter_store::StoreError;
use crate::shared::{CurrentRoute, Remote};

/// The checks of a batch that lie in one slot.
struct SlotGroup<'a> {
    /// Their indexes in the batch.
    indexes: SmallVec<[usize; 4]>,
    checks: SmallVec<[Check<'a>; 4]>,
    limits: SmallVec<[Cow<'a, Limit>; 4]>,
}

/// Whether the checks lie in more than one slot.
pub(super) fn is_spread(checks: &[Check<'_>]) -> bool {
    let tag = |check: &Check<'_>| check.key.fingerprint.tag();
    checks.windows(2).any(|pair| tag(&pair[0]) != tag(&pair[1]))
}

/// Decides a batch slot by slot; sets `route` to the master of the current slot.
pub(super) async fn decide(
    store: &RedisStore,
    batch: &Batch<'_>,
    limits: &[Cow<'_, Limit>],
    route: &CurrentRoute,
) -> Result<Decisions, StoreError> {
    let groups = groups(batch.checks, limits);
    let all_or_nothing = batch.verb == Verb::Check && batch.charge == Charge::AllOrNothing;
    let mut decided: Vec<Option<Decision>> = vec![None; batch.checks.len()];
    let mut refused = false;
    let mut charged = 0;
    for group in &groups {
        if let Some(check) = group.checks.first() {
            route.set(store.route(check.key));
        }
        let part = Batch { checks: &group.checks, ..*batch };
        let mut exchange = Exchange::new(store, &part, &group.limits);
        if all_or_nothing && refused {
            exchange.verb = ScriptVerb::ChargeNone;
        }
        let decisions = match exchange.decide().await {
            Ok(decisions) => decisions,
            Err(error) => {
                if all_or_nothing && !refused {
                    refund(store, batch, &groups[..charged], &mut decided).await;
                }
                return Err(error);
            }
        };
        for (index, decision) in group.indexes.iter().zip(&decisions) {
            decided[*index] = Some(*decision);
        }
        if all_or_nothing && !refused {
            charged += 1;
            refused = group_refuses(group, &decisions);
            if refused {
                // The group that refused was not charged.
                refund(store, batch, &groups[..charged - 1], &mut decided).await;
            }
        }
    }
    let all: Decisions = decided.iter().flatten().copied().collect();
    let decisions = batch.checks.iter().zip(&all);
    let pass = passes(decisions.map(|(check, decision)| (check.role, decision.is_admitted())));
    if all_or_nothing && !refused && !pass {
        // Every alternative refused, which is known only after the last group.
        refund(store, batch, &groups, &mut decided).await;
        return Ok(decided.into_iter().flatten().collect());
    }
    Ok(all)
}

/// Whether a required check of the group refuses.
fn group_refuses(group: &SlotGroup<'_>, decisions: &[Decision]) -> bool {
    let mut decisions = group.checks.iter().zip(decisions);
    decisions.any(|(check, decision)| check.role == Role::Required && !decision.is_admitted())
}

fn groups<'a>(checks: &[Check<'a>], limits: &[Cow<'a, Limit>]) -> Vec<SlotGroup<'a>> {
    let tag = |index: &usize| checks[*index].key.fingerprint.tag();
    let mut indexes: SmallVec<[usize; 8]> = (0..checks.len()).collect();
    indexes.sort_by_key(tag);
    indexes
        .chunk_by(|one, other| tag(one) == tag(other))
        .map(|indexes| SlotGroup {
            indexes: SmallVec::from_slice(indexes),
            checks: indexes.iter().map(|index| observe_alternative(&checks[*index])).collect(),
            limits: indexes.iter().map(|index| limits[*index].clone()).collect(),
        })
        .collect()
}

/// Alternatives are evaluated over all groups, so within a group they do not refuse.
fn observe_alternative<'a>(check: &Check<'a>) -> Check<'a> {
    let role = if check.role == Role::Alternative { Role::Observed } else { check.role };
    Check { role, ..*check }
}

/// Refunds the charges of these groups. If that fails too, the charge stays.
async fn refund(
    store: &RedisStore,
    batch: &Batch<'_>,
    groups: &[SlotGroup<'_>],
    decided: &mut [Option<Decision>],
) {
    for group in groups {
        let taken = |index: &usize| decided[*index].map_or(0, |decision| decision.taken);
        let checks: SmallVec<[Check<'_>; 4]> = group
            .checks
            .iter()
            .zip(&group.indexes)
            .map(|(check, index)| Check { cost: taken(index), ..*check })
            .collect();
        let refund = Batch { verb: Verb::Refund, checks: &checks, ..*batch };
        let Ok(left) = Exchange::new(store, &refund, &group.limits).decide().await else {
            continue;
        };
        for (index, left) in group.indexes.iter().zip(left) {
            if let Some(decision) = &mut decided[*index]
                && decision.is_admitted()
            {
                let (remaining, reset_after) = (left.remaining, left.reset_after);
                *decision = Decision { taken: 0, remaining, reset_after, ..*decision };
            }
        }
    }
}
