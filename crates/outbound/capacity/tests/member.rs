//! Running members on paused time, with leases in memory. The conformance suite runs them on real stores.

#![allow(clippy::unwrap_used, reason = "a test cannot continue without these values")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tidegate_capacity::{
    Cost, CostTooHigh, Dimension, MemberTerms, MemoryCapacityStore, Target, TargetAnswer,
    TargetLimit, TargetLimits, TargetMember,
};
use tokio::time::{Instant, sleep, timeout};

/// One store for several members of a test.
type SharedMemory = Arc<MemoryCapacityStore>;

/// Tokio's clock, which tests pause.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1).after(Nanos::from(self.0.elapsed()))
    }
}

fn target(amount: u64, slots: u16) -> Target {
    let limit = TargetLimit::per_second(Dimension::Operations, amount);
    Target::new("service", TargetLimits::with_slots(vec![limit], slots).unwrap())
}

const ONE: Cost = Cost { operations: 1, bytes: 0, units: 0 };

fn many(records: u64) -> Cost {
    Cost { operations: records, bytes: 0, units: 0 }
}

type PausedMember = TargetMember<SharedMemory, PausedClock>;

fn join(store: &SharedMemory, name: &str, target: Target) -> PausedMember {
    let clock = PausedClock(Instant::now());
    TargetMember::join_with_clock(Arc::clone(store), target, MemberTerms::named(name), clock)
}

/// The most instants in any window of a second.
fn most_in_a_second(instants: &[Duration]) -> usize {
    let window = Duration::from_secs(1);
    let mut first = 0;
    let inside = |(last, at): (usize, &Duration)| {
        while instants[first] + window <= *at {
            first += 1;
        }
        last + 1 - first
    };
    instants.iter().enumerate().map(inside).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn processors_a_and_b_finish_their_records_at_the_databases_pace() {
    // The text's scene: a database of 1,000 a second with ten leases of 100 a second; A has 10,000 records, B has 5,000.
    let store = SharedMemory::default();
    let start = Instant::now();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let mut processors = tokio::task::JoinSet::new();
    for (name, records) in [("A", 10_000), ("B", 5_000)] {
        let (member, sent) = (join(&store, name, target(1_000, 10)), Arc::clone(&sent));
        processors.spawn(async move {
            for left in (1..=records).rev() {
                member.set_backlog(many(left));
                let permit = member.turn(ONE).await.unwrap();
                sent.lock().push(start.elapsed());
                permit.finish(TargetAnswer::Accepted, None);
            }
            member.leave().await.unwrap();
        });
    }
    while let Some(done) = processors.join_next().await {
        done.unwrap();
    }
    let mut sent = sent.lock().clone();
    sent.sort_unstable();
    assert_eq!(sent.len(), 15_000);
    assert!(most_in_a_second(&sent) <= 1_000, "{}", most_in_a_second(&sent));
    // Virtual time: 15,000 records at 98 % of 1,000 a second take 15.3 s.
    let took = sent.last().unwrap().as_secs_f64();
    assert!(took < 18.0, "{took}");
}

/// Sends records one after another, and returns when each left.
async fn process(member: PausedMember, records: u64, start: Instant) -> Vec<Duration> {
    let mut sent = Vec::new();
    for left in (1..=records).rev() {
        member.set_backlog(many(left));
        let permit = member.turn(ONE).await.unwrap();
        sent.push(start.elapsed());
        permit.finish(TargetAnswer::Accepted, None);
    }
    member.leave().await.unwrap();
    sent
}

#[tokio::test(start_paused = true)]
async fn processor_a_falls_when_b_joins_and_climbs_when_b_has_finished() {
    // Ten leases of 100 a second for 15 s: A has all of them, then B joins and gets five.
    let (store, start) = (SharedMemory::default(), Instant::now());
    let a = tokio::spawn(process(join(&store, "A", target(1_000, 10)), 10_000, start));
    sleep(Duration::from_secs(2)).await;
    let b = tokio::spawn(process(join(&store, "B", target(1_000, 10)), 1_500, start));
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    let within = |sent: &[Duration], from: f64| {
        let second = from..from + 1.0;
        sent.iter().filter(|at| second.contains(&at.as_secs_f64())).count()
    };
    assert!((960..=980).contains(&within(&a, 1.0)), "{} a second alone", within(&a, 1.0));
    // B gets its share when A sends its next heartbeat, which a satisfied member does every four seconds.
    let first_b = b.first().unwrap().as_secs_f64();
    assert!(first_b < 6.6, "B waited until {first_b}");
    let shared = first_b + 1.0;
    for (name, sent) in [("A", &a), ("B", &b)] {
        let rate = within(sent, shared);
        assert!((470..=490).contains(&rate), "{name}: {rate} a second together");
    }
    // B gives its leases back when it has finished, long before they would end.
    let climbed = b.last().unwrap().as_secs_f64() + 1.5;
    assert!((950..=980).contains(&within(&a, climbed)), "{} alone again", within(&a, climbed));
    let mut both = [a, b].concat();
    both.sort_unstable();
    assert!(most_in_a_second(&both) <= 1_000, "{}", most_in_a_second(&both));
}

#[tokio::test(start_paused = true)]
async fn a_time_to_wait_that_one_member_hears_stops_the_others_too() {
    let store = SharedMemory::default();
    let first = join(&store, "first", target(100, 10));
    let second = join(&store, "second", target(100, 10));
    for member in [&first, &second] {
        member.set_backlog(many(1_000));
        member.holds_slots().await;
    }
    let permit = first.turn(ONE).await.unwrap();
    let retry_after = Some(Nanos::from_secs(30));
    permit.finish(TargetAnswer::Throttled { retry_after }, None);
    sleep(Duration::from_secs(8)).await;
    assert_eq!((first.brake_ppm(), second.brake_ppm()), (0, 0));
    sleep(Duration::from_secs(60)).await;
    assert_eq!((first.brake_ppm(), second.brake_ppm()), (1_000_000, 1_000_000));
}

#[tokio::test(start_paused = true)]
async fn the_last_records_leave_although_the_brake_is_low_and_its_prober_has_no_work() {
    let store = SharedMemory::default();
    let first = join(&store, "first", target(200, 20));
    let second = join(&store, "second", target(200, 20));
    for member in [&first, &second] {
        member.set_backlog(many(1_000));
        member.holds_slots().await;
    }
    // The target throttles all that the first one sends: it becomes the prober, at the lowest level.
    for _ in 0..60 {
        let permit = first.turn(ONE).await.unwrap();
        permit.finish(TargetAnswer::Throttled { retry_after: None }, None);
    }
    sleep(Duration::from_secs(5)).await;
    assert!(second.brake_ppm() < 200_000, "{}", second.brake_ppm());
    first.set_backlog(Cost::NONE);
    let began = Instant::now();
    for left in (1..=200).rev() {
        second.set_backlog(many(left));
        let permit = timeout(Duration::from_secs(30), second.turn(ONE)).await.unwrap().unwrap();
        permit.finish(TargetAnswer::Accepted, None);
    }
    // It waits for ten seconds and rises by one in a hundred a second, then by five.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(second.brake_ppm() > 100_000, "{}", second.brake_ppm());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_leaves_frees_its_slots_at_once() {
    let store = SharedMemory::default();
    let stays = join(&store, "stays", target(100, 10));
    let leaves = join(&store, "leaves", target(100, 10));
    for member in [&stays, &leaves] {
        member.set_backlog(many(1_000));
        member.holds_slots().await;
    }
    sleep(Duration::from_secs(6)).await;
    assert_eq!((stays.slots().len(), leaves.slots().len()), (5, 5));
    leaves.leave().await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(stays.slots().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_no_lease_can_pay_for_is_refused() {
    let member = join(&SharedMemory::default(), "one", target(10, 10));
    assert_eq!(member.turn(many(1_000)).await.err(), Some(CostTooHigh));
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up_makes_records_wait_until_its_window_has_passed() {
    let quota = TargetLimit { dimension: Dimension::Operations, amount: 20, window_ms: 600_000 };
    let limits = vec![TargetLimit::per_second(Dimension::Operations, 100), quota];
    let target = Target::new("service", TargetLimits::with_slots(limits, 10).unwrap());
    let member = join(&SharedMemory::default(), "one", target);
    member.set_backlog(many(100));
    for _ in 0..20 {
        member.turn(ONE).await.unwrap().finish(TargetAnswer::Accepted, None);
    }
    let early = timeout(Duration::from_secs(500), member.turn(ONE)).await;
    assert!(early.is_err(), "the quota is used up");
    let late = timeout(Duration::from_secs(300), member.turn(ONE)).await;
    assert!(late.is_ok(), "the first chunks no longer count");
}
