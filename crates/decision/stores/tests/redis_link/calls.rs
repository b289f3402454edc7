//! What a call carries, when nothing fails.

use std::time::Duration;

use redis::{Value, cmd};
use tidegate_algorithms::Timestamp;

use super::caller::{Caller, HURRIED, UNHURRIED, adds, sum};
use super::support::eventually;
use super::support::server::Server;
use crate::counter_store::FailureKind;

#[test]
fn a_parcel_is_answered_with_the_servers_clock() {
    let server = Server::redis();
    let caller = Caller::to(&server.url());
    let receipt = caller.send(adds(3, 1, &["a"]), UNHURRIED).unwrap();
    assert_eq!(sum(&receipt), 3);
    let clock = server.tell(&["TIME"]).list()[0].text().unwrap().parse().unwrap();
    let gap = Timestamp::from_secs(clock).since(receipt.now).get();
    assert!(gap < 2_000_000_000, "{gap}");
}

#[test]
fn the_clock_can_be_turned_by_hand() {
    let server = Server::valkey();
    let caller = Caller::to(&server.url());
    caller.courier.set_instant(b"42");
    let receipt = caller.send(adds(1, 1, &["a"]), UNHURRIED).unwrap();
    assert_eq!(receipt.now, Timestamp::from_secs(42));
}

#[test]
fn parcels_that_come_while_calls_are_out_share_one() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    caller.add("{warm}").unwrap();
    let before = caller.courier.figures();
    server.freeze();
    let thaw = std::thread::spawn(move || {
        // Long enough for all parcels to be waiting; if not, there are only more calls.
        std::thread::park_timeout(Duration::from_millis(300));
        server.thaw();
        server
    });
    let parcels: Vec<_> = (0..100).map(|_| adds(1, 1, &["k"])).collect();
    let answers = caller.send_together(parcels);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let server = thaw.join().unwrap();
    assert_eq!(server.tell(&["GET", "k"]).text().unwrap(), "100");
    let after = caller.courier.figures();
    assert_eq!(after.parcels_per_call.sum - before.parcels_per_call.sum, 100);
    assert!(after.calls - before.calls <= 8, "{after:?}");
}

#[test]
fn a_parcel_may_have_many_keys_and_others_their_own() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let parcels = vec![adds(1, 1, &["a", "b", "c"]), adds(2, 2, &["b"]), adds(4, 3, &[])];
    let answers = caller.send_together(parcels);
    assert!(answers[0].is_ok() && answers[1].is_ok(), "{answers:?}");
    assert_eq!(answers[2].as_ref().unwrap().body, b"");
    let sums: Vec<_> = ["a", "b", "c"].map(|key| server.tell(&["GET", key]).text().unwrap()).into();
    assert_eq!(sums, ["1", "3", "1"]);
}

#[test]
fn an_error_at_one_parcel_spares_the_others() {
    let server = Server::redis();
    server.tell(&["LPUSH", "list", "x"]);
    let caller = Caller::connected_to(&server.url());
    let answers = caller.send_together(vec![adds(1, 1, &["list"]), adds(1, 1, &["fine"])]);
    let error = answers[0].as_ref().unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    assert_eq!(sum(answers[1].as_ref().unwrap()), 1);
    // The connection is as good as before.
    assert_eq!(caller.courier.figures().connects, 1);
}

#[test]
fn commands_are_answered_in_their_order() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let mut add = cmd("INCRBY");
    add.arg("hits").arg(7);
    let mut expire = cmd("EXPIRE");
    expire.arg("hits").arg(60);
    let answers = caller.commands(vec![add.clone(), expire, add]).unwrap();
    assert_eq!(answers, [Value::Int(7), Value::Int(1), Value::Int(14)]);
    assert_eq!(caller.commands(Vec::new()).unwrap(), []);
}

#[test]
fn a_command_that_fails_is_told_in_words() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let mut push = cmd("LPUSH");
    push.arg("list").arg(1);
    let mut add = cmd("INCRBY");
    add.arg("list").arg(1);
    let error = caller.commands(vec![push, add]).unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

#[test]
fn a_full_queue_is_an_error_at_once() {
    let server = Server::redis();
    let caller = Caller::connected_to(&format!("{}?queue=10", server.url()));
    server.freeze();
    let load = caller.under_load(&["a", "b", "c", "d"], UNHURRIED);
    load.wait_for_failures(1);
    assert_eq!(caller.courier.figures().waiting, 10);
    server.thaw();
    load.wait_for_answers(50);
    let tally = load.stop();
    let kinds: Vec<_> = tally.kinds.keys().collect();
    assert_eq!(kinds, [&FailureKind::Overloaded], "{tally:?}");
    assert_eq!(caller.courier.figures().waiting, 0);
}

#[test]
fn a_caller_that_goes_away_disturbs_nobody() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    server.freeze();
    runtime.block_on(async {
        for _ in 0..50 {
            // Polled once, so that the parcel is on its way, and dropped.
            let send = caller.courier.send(adds(1, 1, &["gone"]), UNHURRIED);
            tokio::select! { biased; _ = send => {}, () = std::future::ready(()) => {} }
        }
    });
    server.thaw();
    assert_eq!(caller.add("kept").unwrap(), 1);
    let gone = server.tell(&["GET", "gone"]).text().unwrap_or_default();
    assert!(gone.is_empty() || gone.parse::<u64>().unwrap() <= 50, "{gone}");
}

#[test]
fn a_script_that_is_forgotten_is_loaded_again_and_nothing_runs_twice() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let load = caller.under_load(&["a", "b"], UNHURRIED);
    for _ in 0..20 {
        load.wait_for_answers(20);
        server.tell(&["SCRIPT", "FLUSH"]);
    }
    load.wait_for_answers(20);
    let tally = load.stop();
    assert!(tally.failed.is_empty(), "{tally:?}");
    for key in ["a", "b"] {
        let counter = server.tell(&["GET", key]).text().unwrap().parse().unwrap();
        tally.assert_counted_once(key, counter);
    }
    assert!(caller.courier.figures().script_reloads >= 20);
}

#[test]
fn figures_tell_calls_parcels_and_time() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    for _ in 0..3 {
        caller.add("a").unwrap();
    }
    let figures = caller.courier.figures();
    assert_eq!((figures.calls, figures.parcels_per_call.sum), (3, 3));
    assert_eq!(figures.latency_us.counts.iter().sum::<u64>(), 3);
    assert!(figures.latency_us.sum > 0);
    assert_eq!((figures.connected, figures.wanted, figures.waiting), (1, 1, 0));
    assert_eq!(figures.errors.iter().sum::<u64>(), 0);
}

#[test]
fn the_thread_ends_with_the_courier() {
    let server = Server::redis();
    let clients = || server.info(&["INFO", "clients"], "connected_clients");
    let alone = clients();
    let caller = Caller::connected_to(&server.url());
    assert_ne!(clients(), alone);
    drop(caller);
    eventually("that the connection ends", || (clients() == alone).then_some(()));
}

#[test]
fn a_deadline_of_nothing_is_over_at_once() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let error = caller.add_within("a", Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), FailureKind::Timeout);
    assert_eq!(caller.add_within("a", HURRIED).unwrap(), 1);
}
