//! Masters that are lost, and replicas that are promoted.
//!
//! Replication is asynchronous, so a master that is killed under load loses some counts. Here the callers pause before
//! the kill until the replica has caught up, so that every count can be verified afterwards.

use crate::fleet::{Fleet, Plan};
use crate::load::{Load, Rests, every_mode};
use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::eventually;
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::sentinel::{MASTER, SentinelGroup};
use tidegate_test_servers::server::{Flavour, Server, Setup};

/// Pauses the callers until the replica has every answered write.
#[track_caller]
fn rest_until_in_step(fleet: &Fleet, load: &Load, master: &Server, replica: &Server) {
    load.pause();
    let seen = load.seen();
    for subject in seen.subjects.iter().filter(|subject| subject.name == "eventual, wide") {
        let admitted = seen.of(subject.name, |tally| tally.firm + tally.local);
        eventually("that all is counted", || (fleet.counted(subject) >= admitted).then_some(()));
    }
    eventually("that the replica is in step", || {
        let written = master.info(&["INFO", "replication"], "master_repl_offset")?;
        let replicated = replica.info(&["INFO", "replication"], "slave_repl_offset")?;
        (written.parse::<u64>().unwrap() <= replicated.parse::<u64>().unwrap()).then_some(())
    });
}

#[test]
fn a_master_that_sentinels_replace_takes_no_count_with_it() {
    let mut group = SentinelGroup::start(Flavour::Redis, 1);
    let url = format!("redis-sentinel://{}/{MASTER}?connect_timeout=300ms", group.addresses());
    let fleet = Plan::new(2, &url).start();
    let load = fleet.load(every_mode());
    load.wait_for(Rests::OnTheStore, 10);
    rest_until_in_step(&fleet, &load, &group.servers[0], &group.servers[1]);
    group.servers[0].kill();
    load.go_on();
    fleet.wait_until_degraded();
    load.wait_for(Rests::OnTheNode, 5);
    assert_eq!(group.wait_for_other_master(0), 1);
    fleet.measure_recovery("sentinel failover", &load);
    load.wait_until_used_up();
    fleet.audit("sentinel failover", load);
}

#[test]
fn a_master_of_a_cluster_that_its_replica_replaces_takes_no_count_with_it() {
    let mut cluster = Cluster::start_with(3, 1, &Setup::redis());
    let url = format!("redis-cluster://{}?connect_timeout=300ms", cluster.addresses());
    let fleet = Plan::new(2, &url).start();
    let load = fleet.load(every_mode());
    load.wait_for(Rests::OnTheStore, 10);
    let keys = |master: &Server| match master.tell(&["DBSIZE"]) {
        Reply::Number(keys) => keys,
        _ => 0,
    };
    let lost = (0..3).max_by_key(|at| keys(&cluster.masters[*at])).unwrap();
    rest_until_in_step(&fleet, &load, &cluster.masters[lost], &cluster.replicas[lost]);
    cluster.masters[lost].kill();
    let before = load.seen().sum(|tally| tally.local);
    load.go_on();
    eventually("that nodes go on by themselves", || {
        (load.seen().sum(|tally| tally.local) > before + 5).then_some(())
    });
    eventually("that the replica is master", || {
        let role = cluster.replicas[lost].info(&["INFO", "replication"], "role")?;
        (role == "master").then_some(())
    });
    fleet.measure_recovery("a cluster loses a master", &load);
    load.wait_until_used_up();
    fleet.audit("a cluster loses a master", load);
}

#[test]
fn a_cluster_without_one_of_its_masters_is_waited_for() {
    let cluster = Cluster::start(Flavour::Redis);
    let url = format!("redis-cluster://{}?connect_timeout=300ms", cluster.addresses());
    let fleet = Plan::new(2, &url).start();
    let load = fleet.load(every_mode());
    load.wait_for(Rests::OnTheStore, 10);
    cluster.masters[0].freeze();
    fleet.wait_until_degraded();
    load.wait_for(Rests::OnTheNode, 5);
    eventually("that the others call the cluster down", || {
        let state = cluster.masters[1].info(&["CLUSTER", "INFO"], "cluster_state")?;
        (state == "fail").then_some(())
    });
    cluster.masters[0].thaw();
    cluster.wait_until_whole();
    fleet.measure_recovery("a cluster is down", &load);
    load.wait_until_used_up();
    fleet.audit("a cluster is down", load);
}
