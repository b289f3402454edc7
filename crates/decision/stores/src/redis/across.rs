//! A request whose keys lie in several slots of a cluster.
//!
//! No script can reach two slots, so such a request is decided slot by slot,
//! in one order for everyone: what admits is charged there and then. Once it is
//! clear that the request is refused, what was charged is given back.
//!
//! So for the length of a few round trips others may be refused by a charge that
//! is taken back, and never the other way: nobody is admitted who should not
//! be. If this process dies in between, or a slot cannot be asked, what was
//! charged stays, as if the request had been admitted: one request's cost at
//! the most, until the window ends or the bucket refills. A place in a leaky
//! bucket cannot be given back, and neither can an allowance that was opened.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidegate_algorithms::{Decision, Limit};

use super::RedisStore;
use super::codec::Order;
use super::exchange::Exchange;
use super::replay::Decisions;
use crate::batch::{Batch, Charge, Check, Role, Verb, passes};
use crate::counter_store::StoreError;
use crate::shared::{Asking, Remote};

/// The checks of a batch that lie in one slot.
struct Group<'a> {
    /// Their places in the batch.
    places: SmallVec<[usize; 4]>,
    checks: SmallVec<[Check<'a>; 4]>,
    limits: SmallVec<[Cow<'a, Limit>; 4]>,
}

/// Whether the checks lie in more than one slot.
pub(super) fn is_spread(checks: &[Check<'_>]) -> bool {
    let tag = |check: &Check<'_>| check.key.fingerprint.tag();
    checks.windows(2).any(|pair| tag(&pair[0]) != tag(&pair[1]))
}

/// Decides a batch slot by slot; says whose slot it asks for.
pub(super) async fn decide(
    store: &RedisStore,
    batch: &Batch<'_>,
    limits: &[Cow<'_, Limit>],
    asking: &Asking,
) -> Result<Decisions, StoreError> {
    let groups = groups(batch.checks, limits);
    let together = batch.verb == Verb::Check && batch.charge == Charge::AllOrNothing;
    let mut decided: Vec<Option<Decision>> = vec![None; batch.checks.len()];
    let mut refused = false;
    let mut charged = 0;
    for group in &groups {
        if let Some(check) = group.checks.first() {
            asking.set(store.route(check.key));
        }
        let order = if together && refused { Some(Order::Nobody) } else { None };
        let decisions = match ask(store, batch, group, order).await {
            Ok(decisions) => decisions,
            Err(error) => {
                if together && !refused {
                    give_back(store, batch, &groups[..charged], &mut decided).await;
                }
                return Err(error);
            }
        };
        note(group, &decisions, &mut decided);
        if together && !refused {
            charged += 1;
            refused = group_refuses(group, &decisions);
            if refused {
                // What its own group has refused was not charged there.
                give_back(store, batch, &groups[..charged - 1], &mut decided).await;
            }
        }
    }
    let all: Decisions = decided.iter().flatten().copied().collect();
    let said = batch.checks.iter().zip(&all);
    let pass = passes(said.map(|(check, decision)| (check.role, decision.is_admitted())));
    if together && !refused && !pass {
        // Every alternative refuses, which only shows at the end.
        give_back(store, batch, &groups, &mut decided).await;
        return Ok(decided.into_iter().flatten().collect());
    }
    Ok(all)
}

/// Whether a required check of the group refuses.
fn group_refuses(group: &Group<'_>, decisions: &[Decision]) -> bool {
    let mut said = group.checks.iter().zip(decisions);
    said.any(|(check, decision)| check.role == Role::Required && !decision.is_admitted())
}

fn groups<'a>(checks: &[Check<'a>], limits: &[Cow<'a, Limit>]) -> Vec<Group<'a>> {
    let tag = |place: &usize| checks[*place].key.fingerprint.tag();
    let mut places: SmallVec<[usize; 8]> = (0..checks.len()).collect();
    places.sort_by_key(tag);
    places
        .chunk_by(|one, other| tag(one) == tag(other))
        .map(|places| Group {
            places: SmallVec::from_slice(places),
            // Alternatives are counted over all groups, not in each.
            checks: places.iter().map(|place| alone(&checks[*place])).collect(),
            limits: places.iter().map(|place| limits[*place].clone()).collect(),
        })
        .collect()
}

fn alone<'a>(check: &Check<'a>) -> Check<'a> {
    let role = if check.role == Role::Alternative { Role::Observed } else { check.role };
    Check { role, ..*check }
}

async fn ask(
    store: &RedisStore,
    batch: &Batch<'_>,
    group: &Group<'_>,
    order: Option<Order>,
) -> Result<Decisions, StoreError> {
    let part = Batch { checks: &group.checks, ..*batch };
    let exchange = Exchange::new(store, &part, &group.limits);
    match order {
        Some(order) => exchange.ordered(order).decide().await,
        None => exchange.decide().await,
    }
}

fn note(group: &Group<'_>, decisions: &[Decision], decided: &mut [Option<Decision>]) {
    for (place, decision) in group.places.iter().zip(decisions) {
        decided[*place] = Some(*decision);
    }
}

/// Gives back what these groups were charged. If that fails too, the charge
/// stays: there is nobody left to tell.
async fn give_back(
    store: &RedisStore,
    batch: &Batch<'_>,
    groups: &[Group<'_>],
    decided: &mut [Option<Decision>],
) {
    for group in groups {
        let taken = |place: &usize| decided[*place].map_or(0, |decision| decision.taken);
        let checks: SmallVec<[Check<'_>; 4]> = group
            .checks
            .iter()
            .zip(&group.places)
            .map(|(check, place)| Check { cost: taken(place), ..*check })
            .collect();
        let back = Batch { verb: Verb::Refund, checks: &checks, ..*batch };
        let Ok(left) = Exchange::new(store, &back, &group.limits).decide().await else { continue };
        for (place, left) in group.places.iter().zip(left) {
            if let Some(decision) = &mut decided[*place]
                && decision.is_admitted()
            {
                let (remaining, reset_after) = (left.remaining, left.reset_after);
                *decision = Decision { taken: 0, remaining, reset_after, ..*decision };
            }
        }
    }
}
