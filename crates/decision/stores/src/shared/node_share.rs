//! A node's share of a limit, and states reconstructed from decisions.
//!
//! A decision contains what remains and when the limit is unused again. That suffices to reconstruct a state to
//! continue from: not the remote's own, but one that refuses no later.

use tidegate_algorithms::{BucketState, CheckInput, Decision, Limit, State, Timestamp};

/// A state that gives the same answers as the one after this decision.
pub(crate) fn state_after(limit: &Limit, decision: &Decision, now: Timestamp) -> State {
    let mut state = State::Unused;
    limit.settle(&mut state, now);
    match &mut state {
        _ if limit.algorithm().holds_slots() => return State::Unused,
        // A token bucket's debt beyond the burst, which `remaining` cannot express.
        State::Bucket(bucket) if limit.algorithm().is_refundable() => {
            let (_, scale) = bucket.to_parts();
            *bucket = BucketState::from_parts(now.after(decision.reset_after), scale);
        }
        _ => {
            let used = decision.limit.saturating_sub(decision.remaining);
            limit.overcharge(&mut state, CheckInput::new(used, now));
        }
    }
    state
}

/// How much of its limit a state uses at `now`.
pub(crate) fn used(limit: &Limit, state: &mut State, now: Timestamp) -> u64 {
    let left = limit.peek(state, CheckInput::new(0, now));
    left.limit.saturating_sub(left.remaining)
}

/// One node's share of a limit: at least one unit, unless the limit is 0.
pub(crate) fn share(limit: &Limit, nodes: usize) -> Limit {
    let share = Limit::new(limit.algorithm().part(nodes as u64));
    match limit.soft() {
        Some(soft) => share.with_soft(soft),
        None => share,
    }
}

/// A state of the node's share, with the node's part of the usage of `state`.
pub(crate) fn share_of_state(
    limit: &Limit,
    state: &mut State,
    share: &Limit,
    nodes: usize,
    now: Timestamp,
) -> State {
    let part = used(limit, state, now).div_ceil((nodes as u64).max(1));
    let mut state = State::Unused;
    if part > 0 && !limit.algorithm().holds_slots() {
        share.overcharge(&mut state, CheckInput::new(part, now));
    }
    state
}

/// An admission without any knowledge of the key.
pub(crate) fn admit_without_store(limit: &Limit, input: CheckInput) -> Decision {
    let Decision { limit, remaining, reset_after, soft, .. } =
        limit.peek(&mut State::Unused, input);
    Decision { soft, ..Decision::admitted(limit, input.cost, remaining, reset_after) }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{
        FixedWindow, Nanos, Period, SlidingLog, SlidingWindow, TokenBucket, Window,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn limits() -> Vec<Limit> {
        vec![
            Limit::new(TokenBucket::new(10, Period::SECOND, 20)),
            Limit::new(FixedWindow::new(20, Window::Every(Period::MINUTE))),
            Limit::new(SlidingLog::new(20, Period::MINUTE).unwrap()),
            Limit::new(SlidingWindow::new(20, Period::MINUTE, 4).unwrap()),
        ]
    }

    #[test]
    fn a_state_made_of_a_decision_has_as_much_remaining() {
        for limit in limits() {
            let mut state = State::Unused;
            let decision = limit.check(&mut state, CheckInput::new(13, NOW));
            let mut made = state_after(&limit, &decision, NOW);
            assert_eq!(limit.peek(&mut made, CheckInput::new(0, NOW)).remaining, 7, "{limit:?}");
        }
    }

    #[test]
    fn a_bucket_that_owes_more_than_its_burst_still_does() {
        let limit = &limits()[0];
        let mut state = State::Unused;
        let decision = limit.overcharge(&mut state, CheckInput::new(25, NOW));
        let mut made = state_after(limit, &decision, NOW);
        let half_second = NOW.after(Nanos::from_millis(500));
        assert_eq!(limit.peek(&mut made, CheckInput::new(1, half_second)).remaining, 0);
        assert!(!limit.peek(&mut made, CheckInput::new(1, half_second)).is_admitted());
    }

    #[test]
    fn the_shares_of_all_nodes_are_no_more_than_the_limit() {
        for limit in limits() {
            for nodes in 1..=20 {
                let share = share(&limit, nodes).algorithm().capacity();
                assert!(share >= 1 && share * nodes as u64 <= 20, "{limit:?} {nodes}");
            }
        }
    }

    #[test]
    fn a_share_continues_from_its_part_of_the_usage() {
        for limit in limits() {
            let mut state = State::Unused;
            limit.check(&mut state, CheckInput::new(10, NOW));
            let share = share(&limit, 4);
            let mut part = share_of_state(&limit, &mut state, &share, 4, NOW);
            assert_eq!(share.peek(&mut part, CheckInput::new(0, NOW)).remaining, 2, "{limit:?}");
        }
    }
}
