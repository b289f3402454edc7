//! A rival takes a part of a service: the brake gives way, uses the rest, and comes back.
//!
//! The member runs as in production, on tokio's paused clock, against the judge.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tidegate_capacity::{
    Cost, Dimension, MemberTerms, MemoryCapacityStore, Target, TargetAnswer, TargetLimit,
    TargetLimits, TargetMember,
};
use tidegate_throttled_service::{Judge, Judgement, LimitKind, Rival, ServiceLimit};
use tokio::time::Instant;

/// Tokio's clock, which the test pauses.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1).after(Nanos::from(self.0.elapsed()))
    }
}

const LIMIT: u64 = 500;
/// The rival comes after 10 s, stays for a minute and takes 200 a second.
const FROM: u64 = 10;
const UNTIL: u64 = 70;
const RIVAL: u64 = 200;

/// What happened in each second.
#[derive(Clone, Copy, Default)]
struct Second {
    accepted: u64,
    throttled: u64,
}

async fn play(seconds: u64) -> Vec<Second> {
    let limit = TargetLimit::per_second(Dimension::Operations, LIMIT);
    let mut judge = Judge::new(&[ServiceLimit { limit, kind: LimitKind::FixedWindow }]);
    let began = Instant::now();
    let at = |second: u64| Timestamp::from_secs(second);
    judge.add_rival(Rival {
        cost: Cost::units(0),
        every: Nanos::new(1_000_000_000 / RIVAL),
        from: at(FROM),
        until: at(UNTIL),
    });
    let target = Target::new("service", TargetLimits::new(vec![limit]).unwrap());
    let (store, terms) = (MemoryCapacityStore::default(), MemberTerms::named("importer"));
    let member = TargetMember::join_with_clock(store, target, terms, PausedClock(began));
    let cost = Cost { operations: 1, bytes: 0, units: 0 };
    let mut history = vec![Second::default(); usize::try_from(seconds).unwrap()];
    while began.elapsed() < Duration::from_secs(seconds) {
        member.set_backlog(Cost { operations: 1_000_000, bytes: 0, units: 0 });
        let permit = member.turn(cost).await.unwrap();
        let now = began.elapsed();
        let now_nanos = u64::try_from(now.as_nanos()).unwrap();
        let Some(second) = history.get_mut(usize::try_from(now.as_secs()).unwrap()) else { break };
        match judge.judge(cost, Timestamp::from_nanos(now_nanos)) {
            Judgement::Accepted => {
                second.accepted += 1;
                permit.finish(TargetAnswer::Accepted, None);
            }
            Judgement::Throttled { .. } => {
                second.throttled += 1;
                permit.finish(TargetAnswer::Throttled { retry_after: None }, None);
            }
        }
    }
    history
}

#[tokio::test(start_paused = true)]
async fn a_rival_costs_few_throttled_answers_and_the_rest_is_used() {
    let history = play(110).await;
    let sum = |from: u64, to: u64, of: fn(&Second) -> u64| -> u64 {
        history[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()].iter().map(of).sum()
    };
    let accepted = sum(FROM, UNTIL, |second| second.accepted);
    let throttled = sum(FROM, UNTIL, |second| second.throttled);
    let share = throttled as f64 / (accepted + throttled) as f64;
    assert!(share < 0.02, "{share:.4} throttled");
    let rest = (LIMIT - RIVAL) * (UNTIL - FROM);
    let used = accepted as f64 / rest as f64;
    assert!(used >= 0.95, "{used:.3} of the rest used");
    // Half a minute after the rival has left, the whole limit is in use again.
    let recovered = sum(UNTIL + 30, UNTIL + 40, |second| second.accepted);
    assert!(recovered >= LIMIT * 10 * 95 / 100, "{recovered} in ten seconds");
    let undisturbed = sum(3, FROM, |second| second.throttled);
    assert_eq!(undisturbed, 0);
}
