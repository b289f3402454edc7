use proptest::prelude::*;

use super::*;

fn pool(weight: u32, slots_min: u16, slots_max: u16) -> Pool {
    Pool { name: String::new(), weight, slots_min, slots_max }
}

fn wants(pool: usize, wants: u16) -> ShareRequest {
    ShareRequest { pool, weight: 1, wants, reserve: 0 }
}

const ANY: u16 = u16::MAX;

#[test]
fn equal_members_get_equal_shares_and_the_rest_goes_to_the_first() {
    let requests = [wants(0, 100); 3];
    assert_eq!(fair_shares(100, &[pool(1, 0, ANY)], &requests), [34, 33, 33]);
}

#[test]
fn a_member_that_wants_little_leaves_the_rest_to_the_others() {
    let requests = [wants(0, 4), wants(0, 100), wants(0, 100)];
    assert_eq!(fair_shares(20, &[pool(1, 0, ANY)], &requests), [4, 8, 8]);
}

#[test]
fn weights_divide_among_members_and_among_pools() {
    let pools = [pool(3, 0, ANY), pool(1, 0, ANY)];
    let heavy = ShareRequest { weight: 2, ..wants(0, 100) };
    assert_eq!(fair_shares(80, &pools, &[heavy, wants(0, 100), wants(1, 100)]), [40, 20, 20]);
}

#[test]
fn a_pool_gets_its_minimum_first_and_never_exceeds_its_maximum() {
    let pools = [pool(1, 0, 30), pool(1, 60, ANY)];
    assert_eq!(fair_shares(100, &pools, &[wants(0, 100), wants(1, 100)]), [30, 70]);
    assert_eq!(fair_shares(100, &pools, &[wants(0, 100), wants(1, 10)]), [30, 10]);
    assert_eq!(fair_shares(70, &pools, &[wants(0, 100), wants(1, 100)]), [10, 60]);
}

#[test]
fn reserves_are_kept_while_idle_and_take_a_quarter_at_most() {
    let idle = ShareRequest { reserve: 2, ..wants(0, 0) };
    assert_eq!(fair_shares(20, &[pool(1, 0, ANY)], &[idle, wants(0, 20)]), [2, 18]);
    let greedy = ShareRequest { reserve: 20, ..wants(0, 0) };
    assert_eq!(fair_shares(20, &[pool(1, 0, ANY)], &[greedy, greedy]), [2, 2]);
}

/// The largest share for its weight that a member has above another that still wants more.
fn most_unfair(requests: &[ShareRequest], shares: &[u16]) -> f64 {
    let ratio = |index: usize| f64::from(shares[index]) / f64::from(requests[index].weight.max(1));
    let mut most = 0.0f64;
    for (hungry, request) in requests.iter().enumerate() {
        if shares[hungry] < request.wants {
            for (other, _) in requests
                .iter()
                .enumerate()
                .filter(|(other, _)| shares[*other] > 0 && *other != hungry)
            {
                let step = 1.0 / f64::from(requests[other].weight.max(1));
                most = most.max(ratio(other) - step - ratio(hungry));
            }
        }
    }
    most
}

proptest! {
    #[test]
    fn shares_never_exceed_the_slots_and_leave_none_unused_that_somebody_wants(
        slots in 1u16..200,
        pools in prop::collection::vec((1u32..5, 0u16..50, 1u16..250), 1..4),
        members in prop::collection::vec((0usize..4, 0u32..5, 0u16..200, 0u16..20), 0..30),
    ) {
        let pools: Vec<_> = pools.into_iter().map(|(weight, min, max)| pool(weight, min, max)).collect();
        let requests: Vec<_> = members.into_iter()
            .map(|(pool, weight, wants, reserve)| ShareRequest { pool, weight, wants, reserve })
            .collect();
        let shares = fair_shares(slots, &pools, &requests);
        let sum: u32 = shares.iter().map(|share| u32::from(*share)).sum();
        prop_assert!(sum <= u32::from(slots));
        if sum < u32::from(slots) {
            for (index, pool) in pools.iter().enumerate() {
                let in_pool = || requests.iter().zip(&shares).filter(move |(request, _)| request.pool == index);
                let share: u32 = in_pool().map(|(_, share)| u32::from(*share)).sum();
                prop_assert!(share >= u32::from(pool.slots_max) || in_pool().all(|(request, share)| *share >= request.wants));
            }
        }
    }

    #[test]
    fn no_member_of_a_pool_can_envy_another_by_more_than_one_slot(
        slots in 1u16..200,
        members in prop::collection::vec((1u32..5, 0u16..200), 1..30),
    ) {
        let requests: Vec<_> = members.into_iter()
            .map(|(weight, wants)| ShareRequest { pool: 0, weight, wants, reserve: 0 })
            .collect();
        let shares = fair_shares(slots, &[pool(1, 0, ANY)], &requests);
        prop_assert!(most_unfair(&requests, &shares) <= 1e-9);
    }
}
