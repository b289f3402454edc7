//! The servers of other tests start, fail and stop as configured.

use tidegate_test_servers::authority::Authority;
use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::eventually;
use tidegate_test_servers::port::Port;
use tidegate_test_servers::resp::{Client, Reply};
use tidegate_test_servers::sentinel::SentinelGroup;
use tidegate_test_servers::server::{Flavour, Server, Setup};

fn text(words: &str) -> Reply {
    Reply::Text(words.to_owned())
}

#[test]
fn redis_and_valkey_answer_as_soon_as_they_are_handed_out() {
    for server in [Server::redis(), Server::valkey()] {
        assert_eq!(server.ask(&["PING"]), text("PONG"));
    }
}

#[test]
fn a_server_is_gone_when_its_handle_is() {
    let server = Server::redis();
    let port = server.port();
    drop(server);
    assert!(Client::connect(port).is_err());
}

#[test]
fn a_killed_server_comes_back_on_its_port() {
    let mut server = Server::redis();
    server.kill();
    assert_eq!(server.try_ask(&["PING"]), None);
    server.restart();
    assert_eq!(server.ask(&["PING"]), text("PONG"));
}

#[test]
fn a_port_is_not_given_out_twice_while_it_is_held() {
    let port = Port::claim();
    let number = port.number();
    assert!(Port::claim_this(number).is_none());
    drop(port);
    assert!(Port::claim_this(number).is_some());
}

#[test]
fn a_server_that_is_down_keeps_its_ports() {
    let mut server = Setup::valkey().being_cluster_node().start();
    server.kill();
    for port in [server.port(), server.second_port()] {
        assert!(Port::claim_this(port).is_none());
    }
    server.restart();
}

#[test]
fn a_server_is_not_taken_for_another_that_answers_on_its_port() {
    let other = Server::redis();
    let node = Setup::valkey().being_cluster_node();
    let taken = || Port::unclaimed(other.port());
    assert!(Setup::redis().try_start(taken(), Port::claim()).is_none());
    assert!(node.try_start(taken(), Port::claim()).is_none());
    assert!(node.try_start(Port::claim(), taken()).is_none());
    assert_eq!(other.ask(&["PING"]), text("PONG"));
}

#[test]
fn a_server_with_tls_users_and_a_socket_starts() {
    let authority = Authority::new();
    let server = Setup::redis()
        .with_tls(&authority)
        .with_user("limiter", "hunter2", &["~*", "+@all"])
        .with_unix_socket()
        .start();
    assert_ne!(server.port(), server.second_port());
    assert!(Client::connect(server.second_port()).is_ok());
    assert_eq!(server.ask(&["AUTH", "limiter", "hunter2"]), text("OK"));
    assert!(server.unix_socket().exists());
}

#[test]
fn a_server_with_a_password_is_asked_with_it() {
    let server = Setup::redis().with_password("hunter2").start();
    assert_eq!(server.ask(&["PING"]), text("PONG"));
    let stranger = Client::connect(server.port()).unwrap().ask(&["PING"]).unwrap();
    assert!(matches!(stranger, Reply::Error(why) if why.starts_with("NOAUTH")));
}

#[test]
fn a_cluster_is_whole_when_it_is_handed_out() {
    let cluster = Cluster::start(Flavour::Valkey);
    let first = &cluster.masters[0];
    assert_eq!(first.info(&["CLUSTER", "INFO"], "cluster_size").as_deref(), Some("3"));
    let moved = first.ask(&["GET", "{far away}"]);
    assert!(matches!(moved, Reply::Nil | Reply::Error(_)));
}

#[test]
fn a_replica_of_a_cluster_takes_over_from_its_master() {
    let mut cluster = Cluster::start_with(3, 1, &Setup::redis());
    cluster.masters[0].kill();
    eventually("that the replica is master", || {
        let role = cluster.replicas[0].info(&["INFO", "replication"], "role")?;
        (role == "master").then_some(())
    });
}

#[test]
fn sentinels_make_a_replica_the_master_when_theirs_is_gone() {
    let mut group = SentinelGroup::start(Flavour::Redis, 1);
    assert_eq!(group.master(), Some(0));
    group.servers[0].kill();
    assert_eq!(group.wait_for_other_master(0), 1);
}
