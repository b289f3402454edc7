//! Calls and their replies while nothing fails.

use std::time::Duration;

use tidegate_redis_link::{Value, cmd};

use crate::caller::{Caller, HURRIED, UNHURRIED, adds, sum};
use tidegate_redis_link::FailureKind;
use tidegate_test_servers::eventually;
use tidegate_test_servers::server::Server;

#[test]
fn a_reply_carries_the_servers_clock() {
    let server = Server::redis();
    let caller = Caller::to(&server.url());
    let reply = caller.send(adds(3, 1, &["a"]), UNHURRIED).unwrap();
    assert_eq!(sum(&reply), 3);
    let clock: u64 = server.tell(&["TIME"]).list()[0].text().unwrap().parse().unwrap();
    let gap = clock.saturating_sub(reply.server_micros / 1_000_000);
    assert!(gap < 2, "{gap}");
}

#[test]
fn the_clock_can_be_turned_by_hand() {
    let server = Server::valkey();
    let caller = Caller::to(&server.url());
    caller.client.set_instant(b"42");
    let reply = caller.send(adds(1, 1, &["a"]), UNHURRIED).unwrap();
    assert_eq!(reply.server_micros, 42_000_000);
}

#[test]
fn calls_that_arrive_while_others_are_in_flight_share_a_batch() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    caller.add("{warm}").unwrap();
    let before = caller.client.figures();
    server.freeze();
    let thaw = std::thread::spawn(move || {
        // Long enough for all calls to be waiting; if not, there are only more batches.
        std::thread::park_timeout(Duration::from_millis(300));
        server.thaw();
        server
    });
    let calls: Vec<_> = (0..100).map(|_| adds(1, 1, &["k"])).collect();
    let answers = caller.send_together(calls);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let server = thaw.join().unwrap();
    assert_eq!(server.tell(&["GET", "k"]).text().unwrap(), "100");
    let after = caller.client.figures();
    assert_eq!(after.calls_per_evaluation.sum - before.calls_per_evaluation.sum, 100);
    assert!(after.evaluations - before.evaluations <= 8, "{after:?}");
}

#[test]
fn calls_that_are_made_together_share_a_message_and_so_do_their_replies() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    caller.add("{warm}").unwrap();
    let before = caller.client.figures();
    let answers = caller.send_together((0..100).map(|_| adds(1, 1, &["k"])).collect());
    let sums: Vec<u64> = answers.iter().map(|answer| sum(answer.as_ref().unwrap())).collect();
    assert_eq!(sums, (1..=100).collect::<Vec<_>>(), "each caller has its own reply");
    let after = caller.client.figures();
    assert_eq!(after.evaluations - before.evaluations, 1, "the server was called once");
}

#[test]
fn calls_beyond_the_maximum_of_a_group_are_sent_in_the_next() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let answers = caller.send_together((0..300).map(|_| adds(1, 1, &["k"])).collect());
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(server.tell(&["GET", "k"]).text().unwrap(), "300");
}

#[test]
fn a_call_without_a_tokio_runtime_is_answered() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let mut sent = std::pin::pin!(caller.client.send(adds(1, 1, &["k"]), UNHURRIED));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let reply = eventually("the reply", || match sent.as_mut().poll(&mut context) {
        std::task::Poll::Ready(reply) => Some(reply),
        std::task::Poll::Pending => None,
    });
    assert_eq!(reply.map(|reply| sum(&reply)), Ok(1));
}

#[test]
fn a_call_may_have_many_keys_and_others_their_own() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let calls = vec![adds(1, 1, &["a", "b", "c"]), adds(2, 2, &["b"]), adds(4, 3, &[])];
    let answers = caller.send_together(calls);
    assert!(answers[0].is_ok() && answers[1].is_ok(), "{answers:?}");
    assert_eq!(answers[2].as_ref().unwrap().body, b"");
    let sums: Vec<_> = ["a", "b", "c"].map(|key| server.tell(&["GET", key]).text().unwrap()).into();
    assert_eq!(sums, ["1", "3", "1"]);
}

#[test]
fn an_error_of_one_call_does_not_affect_the_others() {
    let server = Server::redis();
    server.tell(&["LPUSH", "list", "x"]);
    let caller = Caller::connected_to(&server.url());
    let answers = caller.send_together(vec![adds(1, 1, &["list"]), adds(1, 1, &["fine"])]);
    let error = answers[0].as_ref().unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    assert_eq!(sum(answers[1].as_ref().unwrap()), 1);
    // The connection is as good as before.
    assert_eq!(caller.client.figures().connects, 1);
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
fn a_command_that_fails_returns_the_servers_error() {
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
    assert_eq!(caller.client.figures().waiting, 10);
    server.thaw();
    load.wait_for_answers(50);
    let tally = load.stop();
    let kinds: Vec<_> = tally.kinds.keys().collect();
    assert_eq!(kinds, [&FailureKind::Overloaded], "{tally:?}");
    assert_eq!(caller.client.figures().waiting, 0);
}

#[test]
fn a_cancelled_caller_does_not_affect_the_others() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    server.freeze();
    runtime.block_on(async {
        for _ in 0..50 {
            // Polled once, so that the call is enqueued, and dropped.
            let send = caller.client.send(adds(1, 1, &["gone"]), UNHURRIED);
            tokio::select! { biased; _ = send => {}, () = std::future::ready(()) => {} }
        }
    });
    server.thaw();
    assert_eq!(caller.add("kept").unwrap(), 1);
    let gone = server.tell(&["GET", "gone"]).text().unwrap_or_default();
    assert!(gone.is_empty() || gone.parse::<u64>().unwrap() <= 50, "{gone}");
}

#[test]
fn a_script_that_was_flushed_is_loaded_again_and_nothing_runs_twice() {
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
    assert!(caller.client.figures().script_reloads >= 20);
}

#[test]
fn figures_count_batches_calls_and_time() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    for _ in 0..3 {
        caller.add("a").unwrap();
    }
    let figures = caller.client.figures();
    assert_eq!((figures.evaluations, figures.calls_per_evaluation.sum), (3, 3));
    assert_eq!(figures.latency_us.counts.iter().sum::<u64>(), 3);
    assert!(figures.latency_us.sum > 0);
    assert_eq!((figures.connected, figures.wanted, figures.waiting), (1, 1, 0));
    assert_eq!(figures.errors.iter().sum::<u64>(), 0);
}

#[test]
fn the_connection_closes_when_the_client_is_dropped() {
    let server = Server::redis();
    let clients = || server.info(&["INFO", "clients"], "connected_clients");
    let alone = clients();
    let caller = Caller::connected_to(&server.url());
    assert_ne!(clients(), alone);
    drop(caller);
    eventually("that the connection ends", || (clients() == alone).then_some(()));
}

#[test]
fn a_deadline_of_zero_expires_at_once() {
    let server = Server::redis();
    let caller = Caller::connected_to(&server.url());
    let error = caller.add_within("a", Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), FailureKind::Timeout);
    assert_eq!(caller.add_within("a", HURRIED).unwrap(), 1);
}
