//! The fair share of each member, as one pure function.
//!
//! Every member computes the shares of all members from the same document and gets the same result, so nothing has to
//! elect a leader. Reserves come first, then the minima of pools, then weighted max-min shares among pools and among the
//! members of a pool: one slot at a time to the lowest share for its weight, ties in the order of joining.

use serde::{Deserialize, Serialize};

/// A workflow's share of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name; members name the pool that they belong to.
    pub name: String,
    /// Its weight against other pools, at least one.
    pub weight: u32,
    /// Slots that it gets first, if it wants them.
    pub slots_min: u16,
    /// Slots that it never exceeds.
    pub slots_max: u16,
}

/// What one member asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRequest {
    /// The index of its pool.
    pub pool: usize,
    /// Its weight against other members of the pool; zero counts as one.
    pub weight: u32,
    /// The slots that it can use now.
    pub wants: u16,
    /// The slots that it keeps also while it is idle.
    pub reserve: u16,
}

/// The part of all slots that reserves may take together: a quarter.
const RESERVE_DIVISOR: u32 = 4;

/// The slots that each member should have; `requests` are in the order of joining.
///
/// The sum never exceeds `slots`. A request whose pool does not exist gets nothing.
pub fn fair_shares(slots: u16, pools: &[Pool], requests: &[ShareRequest]) -> Vec<u16> {
    let mut shares = reserves(slots, pools.len(), requests);
    let mut left = slots - shares.iter().sum::<u16>();
    let mut groups: Vec<Group> =
        (0..pools.len()).map(|pool| Group::of(pool, requests, &shares)).collect();

    // Minima first: one slot at a time to the pool with the lowest share of its minimum.
    while left > 0 {
        let below = groups.iter_mut().zip(pools).filter(|(group, pool)| {
            group.share < group.demand.min(pool.slots_min).min(pool.slots_max)
        });
        let lowest =
            below.min_by_key(|(group, pool)| Ratio::of(group.share, u32::from(pool.slots_min)));
        let Some((group, _)) = lowest else { break };
        group.share += 1;
        left -= 1;
    }
    while left > 0 {
        let hungry = groups
            .iter_mut()
            .zip(pools)
            .filter(|(group, pool)| group.share < group.demand.min(pool.slots_max));
        let lowest = hungry.min_by_key(|(group, pool)| Ratio::of(group.share, pool.weight));
        let Some((group, _)) = lowest else { break };
        group.share += 1;
        left -= 1;
    }
    for (pool, group) in groups.iter().enumerate() {
        divide(group, pool, requests, &mut shares);
    }
    shares
}

/// The reserve of each member, in proportion when all of them exceed their part of the slots.
fn reserves(slots: u16, pools: usize, requests: &[ShareRequest]) -> Vec<u16> {
    let reserve =
        |request: &ShareRequest| if request.pool < pools { request.reserve.min(slots) } else { 0 };
    let sum: u32 = requests.iter().map(|request| u32::from(reserve(request))).sum();
    let most = u32::from(slots) / RESERVE_DIVISOR;
    let scaled = |request: &ShareRequest| {
        let reserve = reserve(request);
        if sum <= most {
            return reserve;
        }
        let part = u64::from(reserve) * u64::from(most) / u64::from(sum);
        u16::try_from(part).unwrap_or(reserve)
    };
    requests.iter().map(scaled).collect()
}

/// The members of one pool together.
#[derive(Clone, Copy)]
struct Group {
    demand: u16,
    share: u16,
}

impl Group {
    fn of(pool: usize, requests: &[ShareRequest], shares: &[u16]) -> Self {
        let members = requests.iter().zip(shares).filter(|(request, _)| request.pool == pool);
        let (mut demand, mut share) = (0u16, 0u16);
        for (request, &reserve) in members {
            demand = demand.saturating_add(request.wants.max(reserve));
            share = share.saturating_add(reserve);
        }
        Group { demand, share }
    }
}

/// Divides a pool's slots among its members.
fn divide(group: &Group, pool: usize, requests: &[ShareRequest], shares: &mut [u16]) {
    let in_pool = |request: &ShareRequest| request.pool == pool;
    let reserved: u16 = requests
        .iter()
        .zip(&*shares)
        .filter(|(request, _)| in_pool(request))
        .map(|(_, &share)| share)
        .sum();
    for _ in reserved..group.share {
        let hungry = requests.iter().zip(shares.iter_mut());
        let hungry = hungry.filter(|(request, share)| in_pool(request) && **share < request.wants);
        let Some((_, share)) =
            hungry.min_by_key(|(request, share)| Ratio::of(**share, request.weight))
        else {
            break;
        };
        *share += 1;
    }
}

/// A share for its weight, ordered without division. The first of equal ones is the minimum.
#[derive(Clone, Copy)]
struct Ratio {
    share: u64,
    weight: u64,
}

impl Ratio {
    fn of(share: u16, weight: u32) -> Self {
        Ratio { share: u64::from(share), weight: u64::from(weight.max(1)) }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.share * other.weight).cmp(&(other.share * self.weight))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ratio {}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests;
