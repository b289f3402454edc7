//! Members of one target under faults: no window holds more than the limit, and no slot has two users.

#![allow(clippy::unwrap_used, reason = "a test cannot continue without these values")]

mod simulation;

use simulation::{Defect, Faults, Fleet, SECOND, Scene, scene};
use tidegate_capacity::{CapacityDocument, Dimension, StoreLost, TargetLimit, TargetLimits};

const ALL_FAULTS: Faults =
    Faults { lost: 10, frozen: 10, killed: 3, outages: 2, wiped: 2, changes: 20, limit_changes: 0 };

fn play(scene: Scene, seed: u64) -> Fleet {
    let mut fleet = Fleet::new(scene, seed);
    fleet.run();
    fleet.check_windows(seed);
    fleet.check_quota(seed);
    fleet
}

#[test]
fn steady_members_use_the_limit_and_never_exceed_it() {
    for members in [1, 4, 10] {
        let fleet = play(Scene { members, ..scene() }, 1);
        let ideal = fleet.scene.limit * fleet.scene.seconds;
        // The first seconds are spent in settling: the store might have been wiped.
        let settling = fleet.scene.limit * 17;
        let ratio = fleet.units_sent() as f64 / (ideal - settling) as f64;
        assert!(ratio >= 0.95, "{members} members: {ratio}");
    }
}

#[test]
fn no_fault_makes_the_fleet_exceed_the_limit() {
    for seed in 0..40 {
        let fleet = play(Scene { faults: ALL_FAULTS, store_clock: seed % 2 == 0, ..scene() }, seed);
        assert!(fleet.units_sent() > 0, "seed {seed}");
    }
}

#[test]
fn the_checks_find_every_defect_that_is_put_in_on_purpose() {
    for defect in Defect::ALL {
        let is_found = |seed: u64| {
            let defect = Some(defect);
            let store_clock = seed.is_multiple_of(2);
            let mut fleet =
                Fleet::new(Scene { defect, faults: ALL_FAULTS, store_clock, ..scene() }, seed);
            fleet.run();
            fleet.is_broken()
        };
        assert!((0..40).any(is_found), "{defect:?} is not found");
    }
}

#[test]
fn mixed_costs_keep_the_limit_too() {
    for seed in 0..15 {
        play(Scene { cost_max: 10, faults: ALL_FAULTS, ..scene() }, seed);
    }
}

#[test]
fn the_capacity_of_a_killed_member_is_in_use_again_after_its_lease() {
    let mut fleet = Fleet::new(Scene { seconds: 40, ..scene() }, 3);
    fleet.run();
    fleet.members[0].alive = false;
    fleet.scene.seconds = 17;
    fleet.run();
    let from = fleet.now;
    fleet.scene.seconds = 10;
    fleet.run();
    let recent = fleet.units_between(from, u64::MAX);
    assert!(recent as f64 >= 0.95 * 10.0 * fleet.scene.limit as f64, "{recent}");
}

#[test]
fn a_change_of_the_limit_never_lets_the_fleet_exceed_the_highest_of_the_last_lease() {
    for seed in 0..12 {
        let faults = Faults { limit_changes: 15, ..ALL_FAULTS };
        let fleet = play(Scene { faults, store_clock: seed % 2 == 0, ..scene() }, seed);
        assert!(fleet.limits_known.len() > 3, "seed {seed}: the limit changed");
    }
}

#[test]
fn a_changed_limit_is_used_by_all_soon() {
    for (amount, seed) in [(100, 1), (2_000, 2)] {
        let mut fleet = Fleet::new(Scene { seconds: 40, ..scene() }, seed);
        fleet.run();
        let (bytes, version) = fleet.store.clone().unwrap();
        let mut document = CapacityDocument::decode(&bytes).unwrap();
        let limit = TargetLimit::per_second(Dimension::Units, amount);
        document.set_limits(TargetLimits::with_slots(vec![limit], 20).unwrap()).unwrap();
        fleet.version = version + 1;
        fleet.store = Some((document.encode().unwrap(), fleet.version));
        fleet.scene.seconds = 6;
        fleet.run();
        let from = fleet.now;
        fleet.scene.seconds = 10;
        fleet.run();
        let ratio = fleet.units_between(from, u64::MAX) as f64 / (10 * amount) as f64;
        assert!((0.95..=1.0).contains(&ratio), "{amount}: {ratio}");
    }
}

/// Runs for a minute, loses the store for a minute, and runs for another one. Returns the fleet and the instants at
/// which the store was lost and came back.
fn lose_the_store(store_lost: StoreLost, reserve: u16, seed: u64) -> (Fleet, u64, u64) {
    let faults = Faults { changes: 20, ..Faults::default() };
    let scene = Scene { seconds: 60, store_lost, reserve, faults, ..scene() };
    let mut fleet = Fleet::new(scene, seed);
    fleet.run();
    let lost = fleet.now;
    fleet.unreachable_until = lost + 60 * SECOND;
    fleet.run();
    let back = fleet.now;
    fleet.run();
    fleet.check_windows(seed);
    (fleet, lost, back)
}

#[test]
fn without_a_store_members_stop_at_the_end_of_their_leases() {
    for seed in 0..4 {
        let (fleet, lost, back) = lose_the_store(StoreLost::Stop, 0, seed);
        assert!(fleet.units_between(lost, lost + 8 * SECOND) > 0, "leases last");
        assert_eq!(fleet.units_between(lost + 15 * SECOND, back), 0, "seed {seed}");
        assert!(fleet.units_between(back + 10 * SECOND, u64::MAX) > 0, "seed {seed}");
    }
}

#[test]
fn without_a_store_members_use_equal_parts_and_keep_the_limit() {
    for seed in 0..8 {
        let (fleet, lost, back) = lose_the_store(StoreLost::SafeShare, 0, seed);
        assert!(fleet.units_between(lost + 25 * SECOND, back) > 0, "seed {seed}");
        assert!(fleet.units_between(back + 30 * SECOND, u64::MAX) > 0, "seed {seed}");
    }
}

#[test]
fn without_a_store_members_use_their_reserves() {
    for seed in 0..4 {
        let (fleet, lost, back) = lose_the_store(StoreLost::Floor, 1, seed);
        let sent = fleet.units_between(lost + 25 * SECOND, back);
        // Four members with one slot of 25 a second each.
        assert!(sent > 0 && sent <= 4 * 25 * 35, "seed {seed}: {sent}");
    }
}

/// 5,000 units in two minutes, of 60,000 that the limit for a second would allow.
fn quota_scene(faults: Faults, store_clock: bool) -> Scene {
    Scene { quota: Some((5_000, 120)), seconds: 400, faults, store_clock, ..scene() }
}

#[test]
fn members_use_a_quota_and_never_exceed_it_in_any_window() {
    for seed in 0..2 {
        let fleet = play(quota_scene(Faults::default(), seed % 2 == 0), seed);
        // The window, a chunk's term and the settling leave three windows in 400 s, without the last chunks of each.
        let used = fleet.units_sent();
        assert!(used >= 2 * 5_000, "seed {seed}: {used}");
    }
}

#[test]
fn no_fault_makes_the_fleet_exceed_a_quota() {
    for seed in 0..4 {
        // A chunk is forgotten if its member dies and the store forgets at the same time.
        let apart = match seed % 2 {
            0 => Faults { wiped: 0, ..ALL_FAULTS },
            _ => Faults { killed: 0, frozen: 0, ..ALL_FAULTS },
        };
        let fleet = play(quota_scene(Faults { limit_changes: 5, ..apart }, seed < 2), seed);
        assert!(fleet.units_sent() > 1_000, "seed {seed}");
    }
}
