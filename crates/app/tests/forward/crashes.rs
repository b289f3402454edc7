//! A forwarder that is killed: nothing that it accepted is lost.

use serde_json::json;

use crate::harness::{Bench, records, until};
use crate::process::Serving;

/// Kills it as a crash would.
fn kill(serving: Serving) {
    serving.signal("KILL");
    let (status, _) = serving.ended();
    assert!(!status.success());
}

#[test]
fn a_killed_forwarder_delivers_everything_after_it_was_started_again() {
    let bench = Bench::new(100);
    let mut serving = bench.serve();
    bench.run(&mut serving, &["enqueue", "--job", "import", "--quiet"], &records(200)).with(0);
    for part in [20, 70] {
        until("some were sent", || bench.accepted() >= part);
        kill(serving);
        serving = bench.serve();
    }
    let words = ["job", "import", "--wait", "--quiet", "--format", "json"];
    let job = bench.run(&mut serving, &words, "").json(0);
    assert_eq!((&job["delivered"], &job["dead"]), (&json!(200), &json!(0)));
    assert_eq!(bench.accepted(), 200);
    let summary = bench.log().summary(tidegate_forwarder::Dimension::Operations);
    // At most the records in flight are sent twice: those of the last 400 ms before each of the two kills.
    assert!(summary.duplicates <= 80, "{summary:?}");
    assert!(summary.busiest_second <= 100, "{summary:?}");
}

#[test]
fn an_import_that_was_killed_in_the_middle_can_be_repeated() {
    let bench = Bench::new(400);
    let mut serving = bench.serve();
    let half = records(60);
    bench.run(&mut serving, &["enqueue", "--job", "import", "--quiet"], &half).with(0);
    kill(serving);
    let mut serving = bench.serve();
    let words = ["enqueue", "--job", "import", "--follow", "--quiet", "--format", "json"];
    let report = bench.run(&mut serving, &words, &records(120)).json(0);
    assert_eq!((&report["accepted"], &report["duplicates"]), (&json!(60), &json!(60)));
    assert_eq!(bench.accepted(), 120);
}
