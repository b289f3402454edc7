//! The short version of each scene. `make soak` plays the long ones.

use std::path::Path;

use tidegate_forward_faults::{Scene, SceneLength};

const SEED: u64 = 7;

fn play(scene: Scene) {
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate-forward-faults"));
    println!("{}", scene.play(program, SceneLength::Short, SEED));
}

#[test]
fn killed_processes_lose_nothing_and_repeat_only_what_was_in_flight() {
    play(Scene::KilledProcesses);
}

#[test]
fn a_process_that_was_frozen_sends_nothing_under_slots_of_others() {
    play(Scene::FrozenProcess);
}

#[test]
fn a_killed_owner_of_a_queue_loses_nothing_that_it_acknowledged() {
    play(Scene::KilledQueueOwner);
}

#[test]
fn a_killed_redis_of_a_queue_loses_nothing_that_was_acknowledged() {
    play(Scene::KilledRedisQueue);
}

#[test]
fn a_killed_postgres_of_a_queue_loses_nothing_that_was_acknowledged() {
    play(Scene::KilledPostgresQueue);
}

#[test]
fn members_stop_at_the_end_of_their_leases_when_the_store_is_lost_and_survive_its_loss_of_memory() {
    play(Scene::LostLeaseStore);
}

#[test]
fn members_that_are_cut_off_and_members_that_are_not_keep_the_limit_together() {
    play(Scene::PartitionedMembers);
}

#[test]
fn clocks_that_are_an_hour_wrong_lose_nothing() {
    play(Scene::WrongClocks);
}

#[test]
fn a_dead_slow_or_closed_service_kills_no_record_and_meets_no_burst() {
    play(Scene::DeadService);
}

#[test]
fn a_full_disk_refuses_records_and_loses_none_that_were_acknowledged() {
    play(Scene::FullDisk);
}

#[test]
fn poison_records_become_dead_letters_and_hold_up_no_other() {
    play(Scene::PoisonRecords);
}

#[test]
fn a_limit_that_changes_is_never_exceeded_for_longer_than_a_lease() {
    play(Scene::ChangedLimits);
}

#[test]
fn members_that_join_and_leave_keep_the_limit_together() {
    play(Scene::JoinsAndLeaves);
}

#[test]
fn a_rival_makes_the_brake_give_way() {
    play(Scene::Rival);
}
