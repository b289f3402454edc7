//! The commands of operators, against a running forwarder.

use serde_json::json;
use tidegate_throttled_service::ServiceFault;

use crate::harness::{Bench, records, until};

#[test]
fn status_shows_types_and_fails_for_the_states_that_are_asked_for() {
    let bench = Bench::new(100);
    let mut serving = bench.serve();
    let text = bench.run(&mut serving, &["status"], "").with(0);
    assert!(text.contains("orders") && text.contains("idle"), "{text}");
    bench.run(&mut serving, &["pause", "orders"], "").with(0);
    bench.run(&mut serving, &["enqueue", "--quiet"], &records(5)).with(0);
    let list = bench.run(&mut serving, &["status", "--format", "json"], "").json(0);
    assert_eq!(list["types"][0]["mode"], json!("paused"));
    until("the records are counted", || {
        let ran = bench.run(&mut serving, &["status", "--fail-if", "stalled"], "");
        ran.code == 1
    });
    bench.run(&mut serving, &["status", "--fail-if", "dead"], "").with(0);
    bench.run(&mut serving, &["resume", "orders"], "").with(0);
    until("all were sent", || bench.accepted() == 5);
}

#[test]
fn a_drained_type_accepts_nothing_and_sends_what_it_has() {
    let bench = Bench::new(100);
    let mut serving = bench.serve();
    bench.run(&mut serving, &["enqueue", "--quiet"], &records(30)).with(0);
    bench.run(&mut serving, &["drain", "orders", "--wait"], "").with(0);
    assert_eq!(bench.accepted(), 30);
    let refused = bench.run(&mut serving, &["enqueue", "--full-max", "0", "--quiet"], &records(1));
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("draining"), "{refused:?}");
}

#[test]
fn limits_are_shown_changed_after_a_dry_run_and_kept() {
    let bench = Bench::new(100);
    let mut serving = bench.serve();
    let shown = bench.run(&mut serving, &["limit", "show"], "").with(0);
    assert!(shown.contains("100 operations per 1s"), "{shown}");
    let set = ["limit", "set", "shop", "--limit", "operations=50/1s"];
    let dry: Vec<&str> = set.iter().copied().chain(["--dry-run"]).collect();
    let said = bench.run(&mut serving, &dry, "").with(0);
    assert!(said.contains("would get: 50 operations per 1s"), "{said}");
    let shown = bench.run(&mut serving, &["limit", "show"], "").with(0);
    assert!(shown.contains("100 operations per 1s"), "{shown}");
    bench.run(&mut serving, &set, "").with(0);
    until("the forwarder follows", || {
        let shown = bench.run(&mut serving, &["limit", "show"], "").with(0);
        shown.contains("50 operations per 1s")
    });
    let unknown = bench.run(&mut serving, &["limit", "set", "shp", "--limit", "units=1/1s"], "");
    assert!(unknown.code == 2 && unknown.stderr.contains("it has: shop"), "{unknown:?}");
    let leases = bench.run(&mut serving, &["leases", "--format", "json"], "").json(0);
    assert_eq!(leases["leases"][0]["target"], json!("shop"));
}

#[test]
fn dead_letters_are_listed_shown_redriven_and_purged() {
    let bench = Bench::new(100);
    let mut serving = bench.serve();
    bench.service.set_fault(ServiceFault::Status(422));
    let lines = "{\"body\": \"bad\", \"headers\": {\"Authorization\": \"secret\"}}\n{\"body\": \"worse\"}\n";
    let report = bench.run(&mut serving, &["enqueue", "--job", "j", "--follow"], lines);
    assert_eq!(report.code, 1, "{report:?}");
    assert!(
        report.stdout.contains("dropped header fields with credentials: Authorization"),
        "{report:?}"
    );
    let list = bench.run(&mut serving, &["dead", "list", "orders", "--format", "json"], "").json(1);
    let letters = list["dead_letters"].as_array().expect("a list");
    assert_eq!(letters.len(), 2);
    let id = letters[0]["id"].as_str().expect("an id");
    let shown = bench.run(&mut serving, &["dead", "show", "orders", id], "").with(0);
    assert!(shown.contains("422") && shown.contains("bad"), "{shown}");
    let dry = bench.run(&mut serving, &["dead", "redrive", "orders"], "").with(0);
    assert!(dry.contains("would enqueue 2 dead letters") && dry.contains("--yes"), "{dry}");
    bench.service.set_fault(ServiceFault::None);
    bench.run(&mut serving, &["dead", "redrive", "orders", "--id", id, "--yes"], "").with(0);
    until("it was sent", || bench.accepted() == 1);
    bench.run(&mut serving, &["status", "--fail-if", "dead"], "").with(1);
    let dry = bench.run(&mut serving, &["dead", "purge", "orders"], "").with(0);
    assert!(dry.contains("would delete 1 dead letters"), "{dry}");
    bench.run(&mut serving, &["dead", "list", "orders"], "").with(1);
    bench.run(&mut serving, &["dead", "purge", "orders", "--yes"], "").with(0);
    bench.run(&mut serving, &["dead", "list", "orders"], "").with(0);
}

#[test]
fn a_plan_needs_no_server_and_fails_when_it_takes_too_long() {
    let bench = Bench::new(100);
    let plan = |more: &[&str]| {
        let words = ["plan", "--forward", "forward.yaml"];
        let words: Vec<&str> = words.iter().chain(more).copied().collect();
        let output = std::process::Command::new(crate::process::binary())
            .env_clear()
            .current_dir(bench.folder.path("."))
            .arg("forward")
            .args(words)
            .output()
            .expect("the binary starts");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, said) = plan(&["--records", "980", "--cost", "10"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        said,
        "980 records of orders, 9,800 units: 10.0 s\n98.0 records a second to shop, bound by the limit of 100 operations per 1s\n"
    );
    assert_eq!(plan(&["--records", "980", "--within", "5s"]).0, Some(1));
    bench.folder.write("records.ndjson", &records(98));
    let (_, said) = plan(&["--file", "records.ndjson", "--format", "json"]);
    let view: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&view["sends"], &view["bound_by"]), (&json!(98), &json!("100 operations per 1s")));
    assert!((view["seconds"].as_f64().expect("a number") - 1.0).abs() < 1e-6, "{view}");
}

#[test]
fn unusable_input_is_named_with_its_line() {
    let bench = Bench::new(100);
    let mut serving = bench.serve();
    let wrong = bench.run(&mut serving, &["enqueue", "--quiet"], "{\"body\": 1}\nnonsense\n");
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("line 2 of standard input: this is no JSON"), "{wrong:?}");
    let wrong = bench.run(&mut serving, &["enqueue", "--quiet"], "{\"body\": 1, \"colour\": 2}\n");
    assert!(wrong.code == 2 && wrong.stderr.contains("unknown field `colour`"), "{wrong:?}");
    let wrong = bench.run(&mut serving, &["enqueue", "--type", "invoices", "--quiet"], &records(1));
    assert!(wrong.code == 2 && wrong.stderr.contains("no record type `invoices`"), "{wrong:?}");
    let away = bench.run_at("127.0.0.1:1", &["status"], "");
    assert!(away.code == 2 && away.stderr.contains("cannot be reached"), "{away:?}");
}

#[test]
fn an_import_waits_while_the_queue_is_full() {
    let bench = Bench::with_type(200, "    queue: {records_max: 40}\n");
    let mut serving = bench.serve();
    let words = ["enqueue", "--batch", "20", "--job", "j", "--follow", "--quiet"];
    bench.run(&mut serving, &words, &records(100)).with(0);
    assert_eq!(bench.accepted(), 100);
}
