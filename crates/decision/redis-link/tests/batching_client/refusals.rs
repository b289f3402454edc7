//! Servers that answer, and refuse.

use crate::caller::{Caller, HURRIED};
use tidegate_redis_link::FailureKind;
use tidegate_test_servers::authority::text;
use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::{Flavour, Server, Setup};

#[test]
fn a_wrong_password_is_told_and_a_corrected_file_heals() {
    let server = Setup::redis().with_password("right").start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "wrong").unwrap();
    let url = format!("{}?password_file={}", server.url(), text(file.path()));
    let caller = Caller::to(&url);
    let words = caller.wait_for_failure(FailureKind::Auth);
    assert!(words.contains("WRONGPASS") && !words.contains("right"), "{words}");
    std::fs::write(file.path(), "right\n").unwrap();
    caller.wait_until_well("a");
}

#[test]
fn a_missing_password_is_told() {
    let server = Setup::valkey().with_password("right").start();
    let caller = Caller::to(&server.url());
    let words = caller.wait_for_failure(FailureKind::Auth);
    assert!(words.contains("NOAUTH"), "{words}");
    server.tell(&["CONFIG", "SET", "requirepass", ""]);
    caller.wait_until_well("a");
}

#[test]
fn a_password_file_that_is_not_there_is_told() {
    let server = Server::redis();
    let caller = Caller::to(&format!("{}?password_file=/nowhere/at/all", server.url()));
    let words = caller.wait_for_failure(FailureKind::Auth);
    assert!(words.contains("password file"), "{words}");
}

#[test]
fn a_server_without_memory_is_told_and_used_once_it_has_some() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    assert_eq!(caller.add("a"), Ok(1));
    server.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    let words = caller.wait_for_failure(FailureKind::Full);
    assert!(words.contains("OOM") && words.contains("maxmemory"), "{words}");
    // The connection is not to blame.
    assert!(caller.client.state().is_connected());
    server.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    caller.wait_until_well("a");
    assert_eq!(caller.client.figures().connects, 1);
}

#[test]
fn a_replica_is_told_and_used_once_it_is_master() {
    let master = Server::redis();
    let replica =
        Setup::redis().with("replicaof", &["127.0.0.1", &master.port().to_string()]).start();
    let caller = Caller::to(&replica.url());
    let words = caller.wait_for_failure(FailureKind::ReadOnly);
    assert!(words.contains("READONLY") && words.contains("master"), "{words}");
    replica.tell(&["REPLICAOF", "NO", "ONE"]);
    caller.wait_until_well("a");
}

#[test]
fn a_replica_that_lost_its_master_is_told() {
    let mut master = Server::redis();
    let replica = Setup::redis()
        .with("replicaof", &["127.0.0.1", &master.port().to_string()])
        .with("replica-serve-stale-data", &["no"])
        .start();
    master.kill();
    let caller = Caller::to(&replica.url());
    let words = caller.wait_for_failure(FailureKind::ReadOnly);
    assert!(words.contains("MASTERDOWN") || words.contains("READONLY"), "{words}");
}

#[test]
fn a_busy_server_is_told_and_used_once_it_is_free() {
    let server = Setup::redis().with("lua-time-limit", &["1"]).start();
    let caller = Caller::connected_to(&server.url());
    assert_eq!(caller.add("a"), Ok(1));
    let port = server.port();
    let endless = std::thread::spawn(move || {
        let mut client = tidegate_test_servers::resp::Client::connect(port).unwrap();
        client.ask(&["EVAL", "while true do end", "0"])
    });
    let words = eventually("that it is busy", || {
        let error = caller.add_within("a", HURRIED).err()?;
        error.to_string().contains("BUSY").then(|| error.to_string())
    });
    assert!(words.contains("SCRIPT KILL"), "{words}");
    server.tell(&["SCRIPT", "KILL"]);
    assert!(endless.join().unwrap().is_ok());
    caller.wait_until_well("a");
}

#[test]
fn a_node_of_a_cluster_that_is_taken_for_a_single_server_is_told() {
    let cluster = Cluster::start(Flavour::Redis);
    let caller = Caller::to(&cluster.masters[0].url());
    let words = eventually("that a slot is elsewhere", || {
        let keys = (0..100).map(|number| format!("k{number}"));
        let failed = keys.filter_map(|key| caller.add(&key).err()).next()?;
        Some((failed.kind(), failed.to_string()))
    });
    assert_eq!(words.0, FailureKind::Cluster);
    assert!(words.1.contains("redis-cluster://"), "{words:?}");
}

#[test]
fn a_server_with_no_room_for_connections_is_told() {
    let server = Setup::redis().with("maxclients", &["1"]).start();
    let mut first = tidegate_test_servers::resp::Client::connect(server.port()).unwrap();
    first.ask(&["PING"]).unwrap();
    let caller = Caller::to(&server.url());
    // It says so and closes at once: sometimes its words are lost, and only the end is seen.
    let words = caller.wait_for_failure(FailureKind::Refused);
    assert!(words.contains(&server.port().to_string()), "{words}");
    drop(first);
    caller.wait_until_well("a");
}
