use proptest::prelude::*;

use super::*;

const START: Timestamp = Timestamp::from_secs(1_000);

fn node(capacity: u64) -> Arc<FleetShedder> {
    Arc::new(FleetShedder::new(FleetSettings::default(), capacity))
}

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// Enters until refused.
fn fill(node: &Arc<FleetShedder>, now: Timestamp, category: Category) -> Vec<Credit> {
    std::iter::from_fn(|| node.try_enter(now, category)).take(1_000).collect()
}

#[test]
fn a_node_alone_keeps_a_fifth_for_critical_requests() {
    let node = node(100);
    let posts = fill(&node, START, Category::Post);
    assert_eq!(posts.len(), 80);
    assert_eq!(fill(&node, START, Category::Critical).len(), 1_000, "never refused");
    assert_eq!(node.view(START).in_flight, 80, "and not counted");
    drop(posts);
    assert_eq!(node.view(START).in_flight, 0);
}

#[test]
fn the_last_tenth_is_for_post_and_the_last_fifth_not_for_tests() {
    let node = node(125);
    let tests = fill(&node, START, Category::Test);
    assert_eq!(tests.len(), 80);
    let gets = fill(&node, START, Category::Get);
    assert_eq!(gets.len(), 10);
    assert_eq!(fill(&node, START, Category::Post).len(), 10);
}

#[test]
fn a_small_node_serves_every_category() {
    for category in Category::ALL {
        assert!(node(1).try_enter(START, category).is_some());
        assert!(node(0).try_enter(START, category).is_some());
    }
}

#[test]
fn a_grant_is_used_for_four_fifths_of_its_lease_and_then_the_safe_share() {
    let node = node(100);
    let grant =
        Grant { grant: 120, admit_below: 110, pool: 160, fleet_capacity: 200, fleet_used: 40 };
    node.accept(START, &grant);
    assert_eq!(node.admit_below(START.after(ms(1_599))), 110);
    assert_eq!(node.admit_below(START.after(ms(1_600))), 80);
    let view = node.view(START.after(ms(1_600)));
    assert_eq!((view.lease_age, view.fallback), (Some(ms(1_600)), true));
    assert_eq!(node.report(1, START).held, 110);
    assert_eq!(node.report(1, START.after(ms(1_700))).held, 80);
    node.accept(START.after(ms(5_000)), &grant);
    assert_eq!(node.admit_below(START.after(ms(5_001))), 110);
}

#[test]
fn demand_is_the_peak_and_what_was_refused_since_the_last_report() {
    let node = node(10);
    let credits = fill(&node, START, Category::Post);
    assert_eq!(credits.len(), 8);
    drop(credits);
    let report = node.report(7, START);
    assert_eq!((report.in_flight, report.demand, report.held), (0, 9, 8));
    assert_eq!(node.report(7, START).demand, 0);
}

#[test]
fn a_saturated_fleet_is_told() {
    let alone = node(100);
    let _credits = fill(&alone, START, Category::Post);
    assert!(alone.is_saturated());
    let member = node(100);
    let grant = |fleet_used| Grant { pool: 1_000, fleet_used, ..Grant::default() };
    member.accept(START, &grant(950));
    assert!(!member.is_saturated());
    member.accept(START, &grant(951));
    assert!(member.is_saturated());
}

#[test]
fn a_node_alone_follows_its_capacity() {
    let node = node(100);
    node.set_capacity(50);
    assert_eq!(node.admit_below(START), 40);
}

#[test]
fn threads_never_exceed_the_grant_and_leave_nothing_behind() {
    let node = node(20);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let credit = node.try_enter(START, Category::Post);
                    assert!(node.view(START).in_flight <= 16);
                    drop(credit);
                }
            });
        }
    });
    assert_eq!(node.view(START).in_flight, 0);
}

proptest! {
    #[test]
    fn no_grant_of_any_size_overflows(grant: u64, pool: u64, fleet_capacity: u64, capacity: u64) {
        let node = node(capacity);
        let grant =
            Grant { grant, admit_below: grant, pool, fleet_capacity, fleet_used: u64::MAX };
        node.accept(Timestamp::MAX, &grant);
        node.accept(START, &grant);
        let late = START.after(ms(10_000));
        prop_assert!(node.admit_below(late) >= 1);
        prop_assert!(node.try_enter(late, Category::Get).is_some());
        let _ = (node.is_saturated(), node.report(1, late));
    }
}
