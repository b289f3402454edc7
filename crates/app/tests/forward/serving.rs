//! `forward serve`: records in, requests out.

use serde_json::{Value, json};

use crate::harness::{Bench, bare, records, until};
use crate::process::{Folder, Start};

#[test]
fn records_are_stored_sent_at_the_limit_and_counted_by_their_job() {
    let bench = Bench::new(100);
    let mut serving = bench.serve();
    let words = ["enqueue", "--type", "orders", "--job", "import", "--follow", "--format", "json"];
    let report = bench.run(&mut serving, &words, &records(150)).json(0);
    assert_eq!((&report["accepted"], &report["duplicates"]), (&json!(150), &json!(0)));
    assert_eq!(report["job"]["delivered"], json!(150));
    let summary = bench.log().summary(tidegate_forwarder::Dimension::Operations);
    assert_eq!((summary.accepted, summary.throttled, summary.duplicates), (150, 0, 0));
    assert!(summary.busiest_second <= 100, "{summary:?}");

    // The same import again stores nothing twice.
    let again = bench.run(&mut serving, &words, &records(150)).json(0);
    assert_eq!((&again["accepted"], &again["duplicates"]), (&json!(0), &json!(150)));
    serving.signal("TERM");
    let (status, _) = serving.ended();
    assert!(status.success());
    assert_eq!(bench.accepted(), 150);
}

#[test]
fn a_stopped_forwarder_keeps_what_it_has_not_sent() {
    let bench = Bench::new(20);
    let mut serving = bench.serve();
    bench.run(&mut serving, &["enqueue", "--job", "slow", "--quiet"], &records(60)).with(0);
    until("some were sent", || bench.accepted() > 2);
    serving.signal("TERM");
    assert!(serving.ended().0.success());
    let sent = bench.accepted();
    assert!(sent < 60, "{sent}");
    let mut serving = bench.serve();
    let job = bench.run(&mut serving, &["job", "slow", "--wait", "--format", "json"], "").json(0);
    assert_eq!(job["delivered"], json!(60));
    assert_eq!(bench.accepted(), 60);
}

#[test]
fn tokens_and_tenants_guard_the_api() {
    let bench = Bench::new(100);
    let hash = |text: &str| -> String {
        tidegate_access::sha256(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let document = std::fs::read_to_string(bench.folder.path("forward.yaml")).expect("written");
    let tenants = "tenants: [{token: acme, tenant: acme}]\n";
    bench.folder.write("forward.yaml", &format!("{document}{tenants}"));
    let (operator, acme) = ("the-token-of-the-operator", "the-token-of-the-tenant-acme");
    bench.folder.write(
        "tidegate.yaml",
        &format!(
            "data_dir: data\nforward:\n  tokens: ['{} operator read+check+change', '{} acme check']\n",
            hash(operator),
            hash(acme)
        ),
    );
    bench.folder.write("operator", operator);
    bench.folder.write("acme", acme);
    let mut serving = bench.start("serve").serving();
    let run = |serving: &mut _, token: &str, words: &[&str], stdin: &str| {
        let words: Vec<&str> = words.iter().copied().chain(["--token-file", token]).collect();
        bench.run(serving, &words, stdin)
    };
    let none = bench.run(&mut serving, &["status"], "");
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.stderr.contains("--token-file"), "{none:?}");
    run(&mut serving, "acme", &["enqueue", "--job", "mine", "--quiet"], &records(3)).with(0);
    run(&mut serving, "operator", &["enqueue", "--job", "theirs", "--quiet"], &records(3)).with(0);
    assert_eq!(run(&mut serving, "acme", &["job", "mine", "--wait"], "").code, 0);
    assert_eq!(run(&mut serving, "acme", &["job", "theirs"], "").code, 2);
    assert_eq!(run(&mut serving, "acme", &["pause", "orders"], "").code, 2);
    assert_eq!(run(&mut serving, "operator", &["job", "theirs", "--wait"], "").code, 0);
    assert_eq!(run(&mut serving, "operator", &["pause", "orders"], "").code, 0);
}

#[test]
fn the_api_describes_itself_and_shows_metrics() {
    let bench = Bench::new(100);
    let mut serving = bench.serve();
    let document = serving.get("forward", "/v1/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let metrics = serving.get("forward", "/metrics");
    assert!(metrics.body.contains("tidegate_forward_waiting{type=\"orders\"}"), "{}", metrics.body);
    assert_eq!(serving.get("forward", "/livez").status, 200);
    let targets = serving.get("forward", "/v1/targets").json();
    assert_eq!(targets["targets"][0]["target"], "shop");
}

#[test]
fn starts_that_cannot_work_say_why() {
    let bench = Bench::new(100);
    let failing = |start: Start<'_>| {
        let (status, said) = start.failing();
        (status.code(), said)
    };
    let (code, said) = failing(bench.start("serve"));
    assert_eq!(code, Some(2));
    assert!(said.contains("there is no place for records") && said.contains("data_dir"), "{said}");
    let (code, said) = failing(bench.start("work").args(["--set", "data_dir=data"]));
    assert_eq!(code, Some(2));
    assert!(said.contains("belongs to one process"), "{said}");
    let (code, said) = failing(bare(&bench.folder, "serve"));
    assert_eq!(code, Some(2));
    assert!(said.contains("--forward forward.yaml"), "{said}");
    let unknown = ["--type", "invoices", "--set", "data_dir=data"];
    let (_, said) = failing(bench.start("serve").args(unknown));
    assert!(said.contains("no record type `invoices`") && said.contains("orders"), "{said}");
    let open = ["--set", "data_dir=data", "--set", "forward.listen=0.0.0.0:8090"];
    let (code, said) =
        failing(bare(&bench.folder, "serve").args(["--forward", "forward.yaml"]).args(open));
    assert_eq!(code, Some(1));
    assert!(said.contains("without a token"), "{said}");
    // A data directory has one owner.
    let _serving = bench.serve();
    let (code, said) = failing(bench.start("serve").args(["--set", "data_dir=data"]));
    assert_eq!(code, Some(2));
    assert!(said.contains("the data directory data cannot be used"), "{said}");
}

#[test]
fn problems_of_the_document_are_shown_with_their_places() {
    let folder = Folder::with_rules("");
    folder.write("forward.yaml", "targets: [{name: a, limits: [{units: 1, per: 1s}]}]\ntypes: [{name: b, target: c, command: {program: cat}}]\n");
    let (status, said) = bare(&folder, "serve").args(["--forward", "forward.yaml"]).failing();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("there is no target `c`") && said.contains("forward.yaml:2"), "{said}");
}

#[test]
fn a_command_processes_records_too() {
    let bench = Bench::new(100);
    let path = bench.folder.path("seen");
    let document = format!(
        "targets: [{{name: local, limits: [{{operations: 100, per: 1s}}]}}]\n\
         types: [{{name: lines, target: local, command: {{program: /bin/sh, arguments: ['-c', 'cat >> {}']}}}}]\n",
        path.display()
    );
    bench.folder.write("forward.yaml", &document);
    let mut serving = bench.serve();
    bench
        .run(&mut serving, &["enqueue", "--job", "j", "--bodies", "--follow"], "one\ntwo\n")
        .with(0);
    let seen = std::fs::read_to_string(path).expect("the command ran");
    let bodies: Vec<Value> = seen
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["body"].clone())
        .collect();
    assert_eq!(bodies.len(), 2);
    assert!(bodies.contains(&json!("one")) && bodies.contains(&json!("two")), "{bodies:?}");
}

#[test]
fn config_check_reads_the_document_and_the_files_that_it_names() {
    let bench = Bench::with_type(100, "    retry: {attempts_max: 3}\n");
    let check = |more: &[&str]| {
        let output = std::process::Command::new(crate::process::binary())
            .env_clear()
            .current_dir(bench.folder.path("."))
            .args(["config", "check", "--forward", "forward.yaml"])
            .args(more)
            .output()
            .expect("the binary starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("text"))
    };
    let (code, said) = check(&["--set", "data_dir=data"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("forwarder: 1 record type to 1 target"), "{said}");
    let (code, said) = check(&["--deny-warnings"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("neither `data_dir` nor `forward.queue`"), "{said}");
    let document = std::fs::read_to_string(bench.folder.path("forward.yaml")).expect("written");
    let secret = "http: {headers: [{name: Authorization, value_file: gone}], url";
    bench.folder.write("forward.yaml", &document.replace("http: {url", secret));
    let (code, said) = check(&["--set", "data_dir=data"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("cannot read gone"), "{said}");
}

#[test]
fn tokens_are_read_again_on_sighup() {
    let bench = Bench::new(100);
    let configuration = |token: &str| {
        let hash = tidegate_access::sha256(token.as_bytes());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("data_dir: data\nforward:\n  tokens: ['{hash} operator read+check+change']\n")
    };
    let (old, new) = ("the-token-of-yesterday", "the-token-of-today");
    bench.folder.write("tidegate.yaml", &configuration(old));
    bench.folder.write("token", old);
    let mut serving = bench.start("serve").serving();
    let status = ["status", "--token-file", "token"];
    bench.run(&mut serving, &status, "").with(0);
    bench.folder.write("tidegate.yaml", &configuration(new));
    serving.signal("HUP");
    until("the old token is refused", || bench.run(&mut serving, &status, "").code == 2);
    bench.folder.write("token", new);
    bench.run(&mut serving, &status, "").with(0);
}
