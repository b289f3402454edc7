//! A cluster whose slots move and whose nodes go.

use tidegate_redis_link::{Value, cmd};

use crate::caller::{Caller, HURRIED, UNHURRIED, adds, sum};
use tidegate_redis_link::FailureKind;
use tidegate_redis_link::slot_of;
use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::{Flavour, Setup};

fn url(cluster: &Cluster) -> String {
    format!("redis-cluster://{}?connect_timeout=300ms", cluster.addresses())
}

/// A key whose slot this master has.
fn key_of(cluster: &Cluster, master: usize) -> String {
    let slots = cluster.slots(master);
    let keys = (0..10_000).map(|number| format!("tg{{{number}}}k"));
    keys.into_iter().find(|key| slots.contains(&slot_of(key.as_bytes()).into())).unwrap()
}

#[test]
fn every_slot_is_asked_at_its_node() {
    for flavour in [Flavour::Redis, Flavour::Valkey] {
        let cluster = Cluster::start(flavour);
        let caller = Caller::connected_to(&url(&cluster));
        let names: Vec<String> = (0..300).map(|number| format!("tg{{{number}}}x")).collect();
        let calls = names.iter().zip(0..).map(|(name, tag)| adds(1, tag, &[name, name])).collect();
        let answers = caller.send_together(calls);
        assert!(answers.iter().all(|answer| sum(answer.as_ref().unwrap()) == 2), "{answers:?}");
        assert_eq!(caller.client.figures().redirects, 0);
        assert_eq!(caller.client.state().wanted, 3);
    }
}

#[test]
fn one_node_is_enough_to_find_the_others() {
    let cluster = Cluster::start(Flavour::Redis);
    let caller =
        Caller::connected_to(&format!("redis-cluster://127.0.0.1:{}", cluster.masters[2].port()));
    for master in 0..3 {
        assert_eq!(caller.add(&key_of(&cluster, master)), Ok(1));
    }
}

#[test]
fn commands_go_to_the_nodes_of_their_keys() {
    let cluster = Cluster::start(Flavour::Redis);
    let caller = Caller::connected_to(&url(&cluster));
    let keys: Vec<String> = (0..3).map(|master| key_of(&cluster, master)).collect();
    let commands = |name: &str| {
        let command = |key: &String| {
            let mut command = cmd(name);
            command.arg(key);
            command
        };
        keys.iter().map(command).collect()
    };
    let ones = vec![Value::Int(1); 3];
    assert_eq!(caller.commands(commands("INCR")).unwrap(), ones);
    assert_eq!(caller.commands(commands("EXISTS")).unwrap(), ones);
}

#[test]
fn a_slot_that_moves_under_load_loses_and_doubles_nothing() {
    let cluster = Cluster::start(Flavour::Redis);
    let caller = Caller::connected_to(&url(&cluster));
    let (moving, staying) = (key_of(&cluster, 0), key_of(&cluster, 1));
    let slot = usize::from(slot_of(moving.as_bytes()));
    let load = caller.under_load(&[&moving, &staying], UNHURRIED);
    load.wait_for_answers(50);
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        cluster.begin_move(slot, from, to);
        load.wait_for_answers(50);
        cluster.carry_keys(slot, from, to);
        load.wait_for_answers(50);
        cluster.end_move(slot, to);
        load.wait_for_answers(50);
    }
    let tally = load.stop();
    assert!(tally.failed.is_empty(), "{tally:?}");
    for (key, master) in [(&moving, 0), (&staying, 1)] {
        let counter = cluster.masters[master].tell(&["GET", key]).text().unwrap().parse().unwrap();
        tally.assert_counted_once(key, counter);
    }
    assert!(caller.client.figures().redirects >= 3);
}

#[test]
fn keys_on_two_nodes_are_waited_for() {
    let cluster = Cluster::start(Flavour::Redis);
    let caller = Caller::connected_to(&url(&cluster));
    let (one, other) = (key_of(&cluster, 0), format!("{}2", key_of(&cluster, 0)));
    let both = || adds(1, 1, &[&one, &other]);
    caller.send(both(), UNHURRIED).unwrap();
    let slot = usize::from(slot_of(one.as_bytes()));
    cluster.begin_move(slot, 0, 1);
    let port = cluster.masters[1].port().to_string();
    cluster.masters[0].tell(&["MIGRATE", "127.0.0.1", &port, &one, "0", "5000"]);
    // Neither node has both keys, and the deadline is kept nevertheless.
    let error = caller.send(both(), HURRIED).unwrap_err();
    assert_eq!(error.kind(), FailureKind::Timeout, "{error}");
    cluster.carry_keys(slot, 0, 1);
    assert_eq!(sum(&caller.send(both(), UNHURRIED).unwrap()), 2);
    cluster.end_move(slot, 1);
    assert_eq!(sum(&caller.send(both(), UNHURRIED).unwrap()), 3);
}

#[test]
fn a_replica_that_takes_over_is_found() {
    let mut cluster = Cluster::start_with(3, 1, &Setup::redis());
    let caller = Caller::connected_to(&url(&cluster));
    let (lost, safe) = (key_of(&cluster, 0), key_of(&cluster, 1));
    let load = caller.under_load(&[&lost, &safe], HURRIED);
    load.wait_for_answers(50);
    cluster.masters[0].kill();
    load.wait_for_failures(1);
    eventually("that the replica is master", || {
        let role = cluster.replicas[0].info(&["INFO", "replication"], "role")?;
        (role == "master").then_some(())
    });
    caller.wait_until_well(&lost);
    load.wait_for_answers(50);
    let tally = load.stop();
    tally.assert_answered_in_time(HURRIED);
    eventually("that all is well", || caller.client.state().is_connected().then_some(()));
    assert_eq!(caller.client.state().wanted, 3);
}

#[test]
fn a_cluster_without_one_of_its_masters_is_told_as_down() {
    let mut cluster = Cluster::start(Flavour::Valkey);
    let caller = Caller::connected_to(&url(&cluster));
    let safe = key_of(&cluster, 1);
    caller.add(&safe).unwrap();
    cluster.masters[0].kill();
    let words = eventually("that the cluster is down", || {
        let error = caller.add_within(&safe, HURRIED).err()?;
        (error.kind() == FailureKind::Cluster).then(|| error.to_string())
    });
    assert!(words.contains("CLUSTERDOWN"), "{words}");
    cluster.masters[0].restart();
    caller.wait_until_well(&safe);
    caller.wait_until_well(&key_of(&cluster, 0));
}

#[test]
fn scripts_are_loaded_at_every_node_again() {
    let cluster = Cluster::start(Flavour::Redis);
    let caller = Caller::connected_to(&url(&cluster));
    let keys: Vec<String> = (0..3).map(|master| key_of(&cluster, master)).collect();
    for round in 1..=3 {
        for key in &keys {
            assert_eq!(caller.add(key), Ok(round));
        }
        for master in &cluster.masters {
            master.tell(&["SCRIPT", "FLUSH"]);
        }
    }
    assert!(caller.client.figures().script_reloads >= 6);
}

#[test]
fn a_server_that_is_no_cluster_is_told() {
    let server = tidegate_test_servers::server::Server::redis();
    let caller = Caller::to(&format!("redis-cluster://127.0.0.1:{}", server.port()));
    let words = eventually("that it fails", || {
        Some(caller.add_within("a", HURRIED).err()?.to_string())
            .filter(|words| words.contains("cluster support"))
    });
    assert!(words.contains(&server.port().to_string()), "{words}");
}
