//! The ways to a server: Redis, Valkey, sockets, TLS, users, databases.

use crate::caller::Caller;
use tidegate_redis_link::FailureKind;
use tidegate_test_servers::authority::{Authority, text};
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::{Server, Setup};

/// The address with `rediss://` and the port for TLS.
fn encrypted(server: &Server, host: &str, options: &str) -> String {
    format!("rediss://{host}:{}?{options}", server.second_port())
}

#[test]
fn redis_and_valkey_are_asked_over_tcp() {
    for server in [Server::redis(), Server::valkey()] {
        let caller = Caller::to(&server.url());
        assert_eq!(caller.add("a"), Ok(1));
        assert!(caller.client.state().is_connected());
    }
}

#[test]
fn a_server_is_asked_over_its_socket() {
    let server = Setup::redis().with_unix_socket().start();
    let caller = Caller::to(&format!("redis+unix://{}?db=3", text(&server.unix_socket())));
    assert_eq!(caller.add("a"), Ok(1));
    assert_eq!(server.tell(&["GET", "a"]).text(), None);
    assert!(server.info(&["INFO", "keyspace"], "db3").is_some());
}

#[test]
fn a_url_chooses_the_database() {
    let server = Server::redis();
    let caller = Caller::to(&format!("{}/5", server.url()));
    assert_eq!(caller.add("a"), Ok(1));
    assert!(server.info(&["INFO", "keyspace"], "db5").is_some());
}

#[test]
fn a_server_is_asked_over_tls_if_its_authority_is_believed() {
    let authority = Authority::new();
    let server = Setup::redis().with_tls(&authority).start();
    let roots = format!("roots={}", text(&authority.roots()));
    let caller = Caller::to(&encrypted(&server, "127.0.0.1", &roots));
    assert_eq!(caller.add("a"), Ok(1));

    let stranger = Authority::new();
    let roots = format!("roots={}", text(&stranger.roots()));
    let error = Caller::to(&encrypted(&server, "127.0.0.1", &roots)).add("a").unwrap_err();
    assert_eq!(error.kind(), FailureKind::Protocol);
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[test]
fn a_certificate_for_another_name_is_accepted_only_when_told_to() {
    let authority = Authority::new();
    let server = Setup::redis().with_tls(&authority).start();
    let roots = format!("roots={}", text(&authority.roots()));
    let error = Caller::to(&encrypted(&server, "localhost", &roots)).add("a").unwrap_err();
    assert_eq!(error.kind(), FailureKind::Protocol);
    let lenient = format!("{roots}&name_check=off");
    assert_eq!(Caller::to(&encrypted(&server, "localhost", &lenient)).add("a"), Ok(1));
    // Another name, but not another authority.
    let other = Authority::new();
    let stranger = format!("roots={}&name_check=off", text(&other.roots()));
    assert!(Caller::to(&encrypted(&server, "localhost", &stranger)).add("a").is_err());
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_ours() {
    let authority = Authority::new();
    let server = Setup::redis().with_tls(&authority).with("tls-auth-clients", &["yes"]).start();
    let roots = format!("roots={}", text(&authority.roots()));
    assert!(Caller::to(&encrypted(&server, "127.0.0.1", &roots)).add("a").is_err());
    let ours = authority.signs("limiter");
    let pair = format!("{roots}&certificate={}&key={}", text(&ours.certificate), text(&ours.key));
    assert_eq!(Caller::to(&encrypted(&server, "127.0.0.1", &pair)).add("a"), Ok(1));
}

#[test]
fn a_user_with_the_rights_that_are_needed_is_enough() {
    let rights = ["~tg*", "+evalsha", "+script|load", "+incrby", "+time", "+select"];
    let server = Setup::redis().with_user("limiter", "hun%ter2", &rights).start();
    let url = format!("redis://limiter:hun%25ter2@127.0.0.1:{}", server.port());
    let caller = Caller::to(&url);
    assert_eq!(caller.add("tg{a}"), Ok(1));
    let error = caller.add("elsewhere").unwrap_err();
    assert_eq!(error.kind(), FailureKind::Auth, "{error}");
    assert!(!error.to_string().contains("hun"), "{error}");
}

#[test]
fn several_connections_share_the_work() {
    let server = Server::redis();
    let caller = Caller::connected_to(&format!("{}?connections=3", server.url()));
    assert_eq!(caller.client.state().wanted, 3);
    assert_eq!(caller.client.figures().connects, 3);
    let load = caller.under_load(&["a"], crate::caller::UNHURRIED);
    load.wait_for_answers(200);
    let tally = load.stop();
    assert!(tally.failed.is_empty(), "{tally:?}");
    let counter = server.tell(&["GET", "a"]).text().unwrap().parse().unwrap();
    tally.assert_counted_once("a", counter);
}

#[test]
fn a_password_that_changes_is_told_to_the_server_without_a_new_connection() {
    let server = Setup::redis().with_user("limiter", "old", &["~*", "+@all"]).start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "old\n").unwrap();
    let place = format!("127.0.0.1:{}", server.port());
    let caller = Caller::connected_to(&format!(
        "redis://{place}?user=limiter&password_file={}",
        text(file.path())
    ));
    assert_eq!(caller.add("a"), Ok(1));
    let has_logged_in = |times: &str| {
        let stats = server.tell(&["INFO", "commandstats"]).text().unwrap();
        let line = format!("cmdstat_auth:calls={times},");
        stats.lines().any(|found| found.starts_with(&line) && found.contains("failed_calls=0"))
    };
    assert!(has_logged_in("1"));
    server.tell(&["ACL", "SETUSER", "limiter", ">new", "<old"]);
    std::fs::write(file.path(), "new").unwrap();
    eventually("that the new password is told", || has_logged_in("2").then_some(()));
    assert_eq!(caller.add("a"), Ok(2));
    assert_eq!(caller.client.figures().connects, 1);
}
