//! The example of each feature runs and prints what it promises.

#[cfg(feature = "capacity")]
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/capacity.rs"]
mod capacity;
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/concurrency.rs"]
mod concurrency;
#[cfg(feature = "layer")]
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/layer.rs"]
mod layer;
#[cfg(feature = "pacer")]
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/pacer.rs"]
mod pacer;
#[cfg(feature = "protection")]
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/protection.rs"]
mod protection;
#[cfg(feature = "queue")]
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/queue.rs"]
mod queue;
#[cfg(feature = "redis")]
#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/redis.rs"]
mod redis;

#[test]
fn a_dropped_permit_makes_room_for_the_next_export() {
    let lines = concurrency::demo().expect("the rules are right");
    let expected = [
        "export 1: runs",
        "export 2: runs",
        "export 3: refused",
        "export 4, after the others: runs",
    ];
    assert_eq!(lines, expected);
}

#[cfg(feature = "layer")]
#[tokio::test]
async fn the_layer_answers_429_over_the_limit() {
    assert_eq!(layer::demo().await.expect("the rules are right"), [200, 200, 429]);
}

#[cfg(feature = "protection")]
#[tokio::test]
async fn the_gate_refuses_while_it_is_full() {
    let expected = ["request 1: admitted", "request 2: refused", "request 3: admitted"];
    assert_eq!(protection::demo().await, expected);
}

#[cfg(feature = "pacer")]
#[tokio::test(start_paused = true)]
async fn calls_leave_one_interval_apart() {
    let expected =
        ["sent after 0 ms", "sent after 100 ms", "sent after 200 ms", "no room, retry after 100ms"];
    assert_eq!(pacer::demo().await.expect("the default budget"), expected);
}

#[cfg(feature = "queue")]
#[tokio::test]
async fn records_are_claimed_within_the_budget_and_survive_a_restart() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let lines = queue::demo(&files.path().join("data")).await.expect("the disk has room");
    let expected = [
        "enqueued 5 records, the repeated one once",
        "claimed 2 records of cost 20, the next costs 10",
        "sent order 0",
        "order 1 was throttled: later, without an attempt",
        "after a restart 4 records wait",
        "sent order 2",
        "sent order 3",
        "sent order 4",
        "sent order 1",
    ];
    assert_eq!(lines, expected);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn without_redis_each_process_decides_on_its_own() {
    // No server listens on port 1.
    let lines = redis::demo("redis://127.0.0.1:1").await.expect("the URL is right");
    let expected = [
        "request 1: admitted without Redis",
        "request 2: admitted without Redis",
        "request 3: refused without Redis",
    ];
    assert_eq!(lines, expected);
}

#[cfg(feature = "capacity")]
#[tokio::test]
async fn workers_share_the_capacity_of_a_service() {
    let lines = capacity::demo(5).await.expect("the limits are right");
    let line = |name: &str| format!("worker {name} sent 5 calls at its share of the pace");
    assert_eq!(lines, ["a", "b", "c"].map(line));
}
