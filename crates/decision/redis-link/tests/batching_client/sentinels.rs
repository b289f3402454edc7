//! A master that sentinels name, and a new one when it is gone.

use crate::caller::{Caller, HURRIED};
use tidegate_redis_link::FailureKind;
use tidegate_test_servers::sentinel::{MASTER, SentinelGroup};
use tidegate_test_servers::server::Flavour;

fn url(group: &SentinelGroup, master: &str) -> String {
    format!("redis-sentinel://{}/{master}?connect_timeout=300ms", group.addresses())
}

#[test]
fn a_new_master_is_found_when_the_old_one_crashes() {
    let mut group = SentinelGroup::start(Flavour::Redis, 1);
    let caller = Caller::connected_to(&url(&group, MASTER));
    let load = caller.under_load(&["a"], HURRIED);
    load.wait_for_answers(50);
    group.servers[0].kill();
    load.wait_for_failures(1);
    let master = group.wait_for_other_master(0);
    assert_eq!(master, 1);
    load.wait_for_answers(50);
    let tally = load.stop();
    tally.assert_answered_in_time(HURRIED);
    assert!(group.servers[1].tell(&["GET", "a"]).text().is_some());
}

#[test]
fn a_new_master_is_found_when_the_old_one_freezes_and_comes_back_as_replica() {
    let group = SentinelGroup::start(Flavour::Valkey, 1);
    let caller = Caller::connected_to(&url(&group, MASTER));
    assert_eq!(caller.add("a"), Ok(1));
    group.servers[0].freeze();
    let load = caller.under_load(&["a"], HURRIED);
    group.wait_for_other_master(0);
    load.wait_for_answers(50);
    group.servers[0].thaw();
    load.wait_for_answers(50);
    let tally = load.stop();
    tally.assert_answered_in_time(HURRIED);
    assert!(tally.kinds.contains_key(&FailureKind::Timeout), "{tally:?}");
}

#[test]
fn a_sentinel_that_is_gone_does_not_matter() {
    let mut group = SentinelGroup::start(Flavour::Redis, 0);
    group.sentinels[0].kill();
    let caller = Caller::connected_to(&url(&group, MASTER));
    assert_eq!(caller.add("a"), Ok(1));
}

#[test]
fn a_master_that_no_sentinel_knows_is_told_by_its_name() {
    let group = SentinelGroup::start(Flavour::Redis, 0);
    let caller = Caller::to(&url(&group, "other"));
    let words = caller.wait_for_failure(FailureKind::Other);
    assert!(words.contains("\"other\""), "{words}");
}
