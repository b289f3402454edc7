//! Servers that go, come back, or say nothing.

use std::time::Duration;

use crate::caller::{Caller, HURRIED, UNHURRIED};
use tidegate_redis_link::FailureKind;
use tidegate_test_servers::eventually;
use tidegate_test_servers::fake::{Fake, Fault};
use tidegate_test_servers::port::Port;
use tidegate_test_servers::server::{Server, Setup};

/// With a short time to connect, so that silence is noticed soon.
fn impatient(port: u16) -> String {
    format!("redis://127.0.0.1:{port}?connect_timeout=300ms")
}

#[test]
fn it_starts_without_a_server_and_heals_when_one_comes() {
    let mut server = Server::redis();
    server.kill();
    let caller = Caller::to(&server.url());
    let words = caller.wait_for_failure(FailureKind::Refused);
    assert!(words.contains(&format!("127.0.0.1:{}", server.port())), "{words}");
    let state = caller.client.state();
    assert!(!state.is_connected());
    assert_eq!(state.last_failure.map(|why| why.kind()), Some(FailureKind::Refused));
    server.restart();
    caller.wait_until_connected();
    assert_eq!(caller.client.state().last_failure, None);
    assert_eq!(caller.add("a"), Ok(1));
}

#[test]
fn a_server_that_crashes_and_comes_back_is_used_again() {
    // Each write is on disk before it is answered, so that the counter tells.
    let mut server =
        Setup::redis().with("appendonly", &["yes"]).with("appendfsync", &["always"]).start();
    let caller = Caller::connected_to(&server.url());
    let load = caller.under_load(&["a"], HURRIED);
    for _ in 0..3 {
        load.wait_for_answers(50);
        server.kill();
        load.wait_for_failures(20);
        server.restart();
        load.wait_for_answers(50);
    }
    let tally = load.stop();
    tally.assert_answered_in_time(HURRIED);
    let counter = server.tell(&["GET", "a"]).text().unwrap().parse().unwrap();
    tally.assert_counted_once("a", counter);
    assert!(tally.kinds.contains_key(&FailureKind::Refused), "{tally:?}");
    assert!(caller.client.figures().connects >= 4);
}

#[test]
fn a_connection_that_the_server_closes_between_calls_costs_none_of_them() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    for round in 1..=5 {
        assert_eq!(caller.add("a"), Ok(round));
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("that it is made again by itself", || {
            (caller.client.figures().connects > round).then_some(())
        });
        caller.wait_until_connected();
    }
    assert_eq!(caller.client.figures().errors.iter().sum::<u64>(), 0);
}

#[test]
fn a_server_that_pauses_is_used_on_the_same_connection() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let load = caller.under_load(&["a"], HURRIED);
    load.wait_for_answers(50);
    server.freeze();
    load.wait_for_failures(2);
    server.thaw();
    load.wait_for_answers(50);
    let tally = load.stop();
    tally.assert_answered_in_time(HURRIED);
    let counter = server.tell(&["GET", "a"]).text().unwrap().parse().unwrap();
    tally.assert_counted_once("a", counter);
    let kinds: Vec<_> = tally.kinds.keys().collect();
    assert_eq!(kinds, [&FailureKind::Timeout], "{tally:?}");
    assert!(tally.kinds[&FailureKind::Timeout].contains("100ms"), "{tally:?}");
}

#[test]
fn a_server_that_says_nothing_for_long_is_connected_to_again() {
    let server = Server::redis();
    let caller = Caller::connected_to(&impatient(server.port()));
    assert_eq!(caller.add("a"), Ok(1));
    server.freeze();
    let load = caller.under_load(&["a"], HURRIED);
    eventually("that it is given up", || (!caller.client.state().is_connected()).then_some(()));
    // From now on calls fail before their deadline.
    let why = caller.add_within("a", UNHURRIED).unwrap_err();
    assert!(why.to_string().contains("said nothing"), "{why}");
    server.thaw();
    load.wait_for_answers(50);
    let tally = load.stop();
    tally.assert_answered_in_time(HURRIED);
    let counter: u64 = server.tell(&["GET", "a"]).text().unwrap().parse().unwrap();
    tally.assert_counted_once("a", counter - 1);
}

#[test]
fn what_waited_too_long_is_never_sent() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    assert_eq!(caller.add("warm"), Ok(1));
    server.freeze();
    // Some of these are out; the others wait behind them, and have no time left when they could go.
    let load = caller.under_load(&["late"], HURRIED);
    load.wait_for_failures(12);
    let tally = load.stop();
    server.thaw();
    assert_eq!(caller.add("warm"), Ok(2));
    let late: u64 = server.ask(&["GET", "late"]).text().map_or(0, |text| text.parse().unwrap());
    let failed = tally.failed["late"];
    // At most two pipelines were in flight, with at most one call of each caller.
    assert!(late <= 8 && failed >= 12, "{late} ran of {failed}");
}

#[test]
fn a_server_that_accepts_and_never_answers_is_told_as_such() {
    let fake = Fake::start(Fault::Silence);
    let caller = Caller::to(&impatient(fake.port()));
    // At first there is hope, so the deadline counts.
    let error = caller.add_within("a", Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), FailureKind::Timeout);
    let words = eventually("that it is given up", || {
        let words = caller.add_within("a", HURRIED).unwrap_err().to_string();
        words.contains("said nothing").then_some(words)
    });
    assert!(words.contains(&fake.port().to_string()), "{words}");
}

#[test]
fn a_server_that_answers_garbage_is_told_as_such() {
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\0\xff\xfe", b"*1\r\n$-7\r\n"] {
        let fake = Fake::start(Fault::Says(bytes));
        let caller = Caller::to(&impatient(fake.port()));
        let words = caller.wait_for_failure(FailureKind::Protocol);
        assert!(words.contains("no Redis answers"), "{words}");
    }
}

#[test]
fn a_server_that_hangs_up_is_not_asked_without_end() {
    let fake = Fake::start(Fault::HangsUp);
    let caller = Caller::to(&impatient(fake.port()));
    caller.wait_for_failure(FailureKind::Refused);
    eventually("some attempts", || (fake.accepted() >= 4).then_some(()));
    // The waits between attempts double: a loop without them would have come far further.
    let load = caller.under_load(&["a"], HURRIED);
    load.wait_for_failures(200);
    load.stop();
    assert!(fake.accepted() < 40, "{} attempts", fake.accepted());
}

#[test]
fn a_server_that_loads_its_data_is_told_as_such() {
    let fake = Fake::start(Fault::Says(b"-LOADING Redis is loading the dataset in memory\r\n"));
    let caller = Caller::to(&impatient(fake.port()));
    let words = caller.wait_for_failure(FailureKind::Loading);
    assert!(words.contains("LOADING"), "{words}");
}

#[test]
fn a_server_that_still_loads_is_used_once_it_has() {
    let mut server =
        Setup::redis().with("appendonly", &["yes"]).with("enable-debug-command", &["yes"]).start();
    // Each key takes half a millisecond to load, so that there is something to see.
    server.tell(&["DEBUG", "POPULATE", "1200"]);
    server.tell(&["BGREWRITEAOF"]);
    eventually("that the data are on disk", || {
        let state = server.info(&["INFO", "persistence"], "aof_rewrite_in_progress")?;
        let scheduled = server.info(&["INFO", "persistence"], "aof_rewrite_scheduled")?;
        (state == "0" && scheduled == "0").then_some(())
    });
    server.kill();
    let caller = Caller::to(&server.url());
    server.restart_with(&[
        ("key-load-delay", "500"),
        ("loading-process-events-interval-bytes", "1024"),
    ]);
    caller.wait_for_failure(FailureKind::Loading);
    caller.wait_until_well("{a}");
}

#[test]
fn nobody_listening_is_told_with_the_address() {
    let port = Port::claim();
    let caller = Caller::to(&impatient(port.number()));
    let words = caller.wait_for_failure(FailureKind::Refused);
    assert!(words.contains(&format!("127.0.0.1:{}", port.number())), "{words}");
}

#[test]
fn a_name_that_nobody_knows_is_told_with_the_name() {
    let caller = Caller::to("redis://nowhere.invalid?connect_timeout=2s");
    let words = eventually("that it fails", || {
        let words = caller.add_within("a", HURRIED).unwrap_err().to_string();
        words.contains("nowhere.invalid").then_some(words)
    });
    assert!(words.contains("6379"), "{words}");
}
