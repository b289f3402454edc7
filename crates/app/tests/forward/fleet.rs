//! Several processes that share a queue and a target through one server.

use serde_json::json;
use tidegate_test_servers::server::{Server, Setup};

use crate::harness::{Bench, records, until};

/// A Redis that keeps what it confirmed, as the queue asks for.
fn redis() -> Server {
    Setup::redis().with("appendonly", &["yes"]).start()
}

#[test]
fn processes_share_one_redis_and_a_killed_one_loses_nothing() {
    let bench = Bench::new(100);
    let redis = redis();
    let queue = format!("forward.queue={}", redis.url());
    let mut serving = bench.start("serve").args(["--set", &queue]).serving();
    let worker = |name: &str| {
        let name = format!("forward.name={name}");
        let listen = "forward.worker_listen=127.0.0.1:0";
        bench.start("work").args(["--set", &queue, "--set", &name, "--set", listen]).serving()
    };
    let (first, mut second) = (worker("first"), worker("second"));
    // A worker answers the API, and accepts no records.
    let refused = bench.run(&mut second, &["enqueue", "--quiet"], &records(1));
    assert!(refused.code == 2 && refused.stderr.contains("only works"), "{refused:?}");
    bench.run(&mut serving, &["enqueue", "--quiet"], &records(600)).with(0);
    until("three members hold slots", || {
        let leases = bench.run(&mut serving, &["leases", "--format", "json"], "").json(0);
        let leases = leases["leases"].as_array().cloned().unwrap_or_default();
        leases.iter().filter(|lease| lease["slots"].as_u64() > Some(0)).count() == 3
    });
    first.signal("KILL");
    assert!(!first.ended().0.success());
    until("everything was sent", || bench.accepted() == 600);
    let summary = bench.log().summary(tidegate_forwarder::Dimension::Operations);
    assert!(summary.busiest_second <= 100, "{summary:?}");
    assert_eq!(summary.throttled, 0, "{summary:?}");
    // Claims of the killed process at most: what it had sent or was about to send.
    assert!(summary.duplicates <= 60, "{summary:?}");
    until("nothing waits", || {
        let list = bench.run(&mut serving, &["status", "--format", "json"], "").json(0);
        list["types"][0]["waiting"] == json!(0)
    });
    serving.signal("TERM");
    assert!(serving.ended().0.success());
}

#[test]
fn a_queue_that_processes_share_needs_leases_that_they_share() {
    let bench = Bench::new(100);
    let arguments =
        ["--set", "forward.queue=redis://127.0.0.1:1", "--set", "forward.leases=memory:"];
    let (status, said) = bench.start("serve").args(arguments).failing();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("each would use the whole capacity"), "{said}");
    let (status, said) = bench.start("serve").args(["--set", arguments[1]]).failing();
    assert_eq!(status.code(), Some(2));
    assert!(said.contains("the queue cannot be opened"), "{said}");
}
