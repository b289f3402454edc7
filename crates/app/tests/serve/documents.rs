//! The gateway's document, the files that it names and the configuration change while it runs.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::gateway::{as_user, folder, held, metric, start};
use crate::process::{Folder, Serving, Start};
use crate::upstream::Upstream;

const NOT_USED: &str = "cannot use the gateway's document; the active version stays";

/// The SHA-256 of `letmein`.
const LETMEIN: &str = "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";

/// Waits until documents were put in place so often, at least.
fn wait_for_loads(serving: &mut Serving, loads: f64) {
    serving.until(|serving| {
        let now = metric(serving, "tidegate_gateway_loads_total")?;
        (now >= loads).then_some(())
    });
}

#[test]
fn a_changed_document_takes_effect_while_requests_and_counts_go_on() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let folder = folder(&old);
    let mut serving = start(&folder).serving();
    assert_eq!(as_user(&mut serving, "ada").status, 200);
    let first = held(&mut serving, &old);
    folder.write("gateway.yaml", &new.document(""));
    wait_for_loads(&mut serving, 2.0);
    assert_eq!(as_user(&mut serving, "ada").status, 200);
    assert!(new.next().starts_with("GET /x"), "the new server has it");
    assert_eq!(as_user(&mut serving, "ada").status, 429, "what was spent is spent");
    old.let_go();
    let answer = first.join().expect("answered");
    assert_eq!((answer.status, answer.body.as_str()), (200, "/hold"));
    serving.until(|serving| {
        let metrics = serving.get("debug", "/metrics").body;
        let served = "tidegate_gateway_requests_total{route=\"all\",outcome=\"served\"} 3";
        metrics.contains(served).then_some(())
    });
}

#[test]
fn a_bad_document_is_told_everywhere_and_changes_nothing() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).serving();
    assert_eq!(metric(&mut serving, "tidegate_gateway_loads_total"), Some(1.0));
    folder
        .write("gateway.yaml", &upstream.document("").replace("upstreams: api", "upstreams: apo"));
    let line = serving.wait_for(|line| line["message"] == NOT_USED);
    let problems = line["problems"].as_str().expect("words");
    assert!(problems.contains("gateway.yaml:3:14"), "{problems}");
    assert!(problems.contains("did you mean `api`?"), "{problems}");
    serving.until(|serving| (metric(serving, "tidegate_gateway_stale") == Some(1.0)).then_some(()));
    assert_eq!(metric(&mut serving, "tidegate_gateway_load_failures_total"), Some(1.0));
    assert_eq!(metric(&mut serving, "tidegate_gateway_loads_total"), Some(1.0));
    let shown = serving.get("debug", "/gateway").json();
    let document = &shown["document"];
    assert_eq!((&document["loads"], &document["load_failures"]), (&json!(1), &json!(1)));
    assert!(document["loaded_at_ms"].as_u64() > Some(1_600_000_000_000), "{document}");
    assert!(document["file"].as_str().is_some_and(|file| file.ends_with("gateway.yaml")));
    let problem = &document["last_failure"]["problems"][0];
    assert_eq!((&problem["line"], &problem["column"]), (&json!(3), &json!(14)));
    assert_eq!(shown["upstreams"][0]["hosts"][0]["healthy"], true);
    assert_eq!(serving.get("gateway", "/x").status, 200);

    fs::remove_file(folder.path("gateway.yaml")).expect("removed");
    let gone = |line: &serde_json::Value| {
        let problems = line["problems"].as_str().unwrap_or_default();
        line["message"] == NOT_USED && problems.contains("does not exist")
    };
    serving.wait_for(gone);
    assert_eq!(serving.get("gateway", "/x").status, 200);

    folder.write("gateway.yaml", &upstream.document(""));
    serving
        .wait_for(|line| line["message"] == "the active version of the gateway's document is back");
    serving.until(|serving| (metric(serving, "tidegate_gateway_stale") == Some(0.0)).then_some(()));
    assert!(serving.get("debug", "/gateway").json()["document"].get("last_failure").is_none());
}

#[test]
fn a_document_in_a_mounted_volume_is_followed_when_its_link_is_swapped() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let folder = folder(&old);
    let volume = folder.path("volume");
    let put = |date: &str, text: &str| {
        fs::create_dir_all(volume.join(date)).expect("a directory");
        fs::write(volume.join(date).join("gateway.yaml"), text).expect("written");
        symlink(date, volume.join("..tmp")).expect("a link");
        fs::rename(volume.join("..tmp"), volume.join("..data")).expect("swapped");
    };
    put("..1", &old.document(""));
    symlink("..data/gateway.yaml", volume.join("gateway.yaml")).expect("a link");
    let mounted = ["--gateway", "volume/gateway.yaml", "--gateway-listen", "127.0.0.1:0"];
    let mut serving = Start::new(&folder).args(mounted).serving();
    assert_eq!(serving.get("gateway", "/x").status, 200);
    assert!(old.next().starts_with("GET /x"));
    put("..2", &new.document(""));
    wait_for_loads(&mut serving, 2.0);
    assert_eq!(serving.get("gateway", "/x").status, 200);
    assert!(new.next().starts_with("GET /x"));
}

#[test]
fn what_the_gate_has_let_in_counts_after_a_change_too() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let mut serving = start(&folder).args(["--set", "overload.capacity=1"]).serving();
    let first = held(&mut serving, &upstream);
    folder.write("gateway.yaml", &upstream.document("").replace("name: all", "name: other"));
    wait_for_loads(&mut serving, 2.0);
    let refused = serving.get("gateway", "/x");
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("queue_timeout")));
    upstream.let_go();
    assert_eq!(first.join().expect("answered").status, 200);
    serving.until(|serving| {
        (metric(serving, "tidegate_gate_in_flight_requests") == Some(0.0)).then_some(())
    });
    assert_eq!(serving.get("gateway", "/x").status, 200);
}

/// A document that limits by the names of keys in the file `keys`.
fn by_key(upstream: &Upstream) -> String {
    upstream
        .document("api_keys: {file: keys}\n")
        .replace("from: header, name: X-User", "from: api_key_name")
}

fn with_key(serving: &mut Serving) -> u16 {
    serving.ask("gateway", "GET", "/x", &[("x-api-key", "letmein")], "").status
}

#[test]
fn keys_of_callers_follow_their_file_and_a_wrong_one_is_told_and_changes_nothing() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    folder.write("gateway.yaml", &by_key(&upstream));
    folder.write("keys", &format!("{LETMEIN} ada gold\n"));
    let mut serving = start(&folder).serving();
    for status in [200, 200, 429] {
        assert_eq!(with_key(&mut serving), status);
    }
    folder.write("keys", "letmein bob gold\n");
    let line = serving.wait_for(|line| line["message"] == NOT_USED);
    assert!(line["problems"].as_str().expect("words").contains("keys: line 1"), "{line}");
    assert_eq!(with_key(&mut serving), 429, "the key is still ada's");
    serving.until(|serving| (metric(serving, "tidegate_gateway_stale") == Some(1.0)).then_some(()));
    folder.write("keys", &format!("{LETMEIN} bob gold\n"));
    serving.until(|serving| (metric(serving, "tidegate_gateway_stale") == Some(0.0)).then_some(()));
    for status in [200, 200, 429] {
        assert_eq!(with_key(&mut serving), status);
    }
}

#[test]
fn a_document_that_is_not_watched_is_read_again_when_somebody_asks() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let folder = folder(&old);
    let mut serving = start(&folder).args(["--set", "gateway.watch=false"]).serving();
    folder.write("gateway.yaml", &new.document(""));
    assert_eq!(serving.get("gateway", "/x").status, 200);
    assert!(old.next().starts_with("GET /x"));
    serving.signal("HUP");
    wait_for_loads(&mut serving, 2.0);
    assert_eq!(serving.get("gateway", "/x").status, 200);
    assert!(new.next().starts_with("GET /x"));
    folder.write("gateway.yaml", &old.document(""));
    assert_eq!(serving.ask("debug", "POST", "/reload", &[], "").status, 202);
    wait_for_loads(&mut serving, 3.0);
    assert_eq!(serving.get("gateway", "/x").status, 200);
    assert!(old.next().starts_with("GET /x"));
}

#[test]
fn fields_that_take_a_restart_are_named_when_they_change() {
    let upstream = Upstream::start();
    let folder: Folder = folder(&upstream);
    let configuration = |capacity: u32, more: &str| {
        format!("overload: {{capacity: {capacity}}}\ngateway:\n  file: gateway.yaml\n{more}")
    };
    folder.write("tidegate.yaml", &configuration(8, ""));
    let mut serving = Start::new(&folder).args(["--gateway-listen", "127.0.0.1:0"]).serving();
    let restart = "changed in the configuration: it takes a restart";
    let more =
        "  streams_max: 7\n  tls: {cert: tls.crt, key: tls.key}\n  listen: ['127.0.0.1:1']\n";
    folder.write("tidegate.yaml", &configuration(9, more));
    let expected =
        ["gateway.tls.cert", "gateway.tls.key", "gateway.streams_max", "overload.capacity"];
    for field in expected {
        serving.wait_for(|line| line["message"] == restart && line["field"] == field);
    }
    // A flag says where it listens, whatever the file says.
    let named: Vec<_> = serving.seen.iter().filter(|line| line["message"] == restart).collect();
    assert_eq!(named.len(), expected.len(), "{named:?}");
    assert_eq!(serving.get("gateway", "/x").status, 200);

    folder.write("tidegate.yaml", "gateway: {strems_max: 7}\n");
    let line =
        serving.wait_for(|line| line["message"] == "the changed configuration would not start");
    assert!(line["problems"].as_str().expect("words").contains("streams_max"), "{line}");
    assert_eq!(serving.get("gateway", "/x").status, 200);
}

#[test]
fn a_document_is_put_in_place_once_at_the_start() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    folder.write("gateway.yaml", &by_key(&upstream));
    folder.write("keys", &format!("{LETMEIN} ada gold\n"));
    let mut serving = start(&folder).serving();
    let in_use = |line: &serde_json::Value| line["message"] == "activated the gateway's document";
    serving.wait_for(in_use);
    assert_eq!(with_key(&mut serving), 200);
    // A reload of unchanged files activates nothing.
    let looks = serving.ask("debug", "POST", "/reload", &[], "");
    assert_eq!(looks.status, 202);
    assert_eq!(metric(&mut serving, "tidegate_gateway_loads_total"), Some(1.0));
    assert_eq!(serving.seen.iter().filter(|line| in_use(line)).count(), 1);
}

#[test]
fn a_secret_that_takes_a_restart_is_named_by_its_field_and_never_shown() {
    let folder = Folder::with_rules("domain: api\ndescriptors: []\n");
    let authority = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        folder.write("ca.pem", &made.cert.pem());
    };
    authority("first");
    let configuration = |password: &str| {
        let redis =
            format!("url: 'rediss://127.0.0.1:1', password: {password}, tls: {{ca: ca.pem}}");
        format!("store: {{redis: {{{redis}}}}}\n")
    };
    folder.write("tidegate.yaml", &configuration("first-secret-of-all"));
    let mut serving = Start::new(&folder).serving();
    authority("second");
    let file = "the file that it names has changed: it takes a restart";
    serving.wait_for(|line| line["message"] == file && line["field"] == "store.redis.tls.ca");
    folder.write("tidegate.yaml", &configuration("third-secret-of-all"));
    let field = "changed in the configuration: it takes a restart";
    serving.wait_for(|line| line["message"] == field && line["field"] == "store.redis.password");
    let shown = serving.seen.iter().any(|line| line.to_string().contains("secret-of-all"));
    assert!(!shown, "{:?}", serving.seen);
}

#[test]
fn a_gateway_that_limits_no_request_is_warned_of_at_the_start_and_after_a_change() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let right = upstream.document("");
    folder.write("gateway.yaml", &right.replace("key: user", "key: usre"));
    let mut serving = start(&folder).serving();
    let message = "no rule matches the descriptor `usre`: it limits no request";
    let line = serving.wait_for(|line| line["message"] == message);
    assert_eq!((&line["level"], &line["hint"]), (&json!("WARN"), &json!("did you mean `user`?")));
    folder.write("gateway.yaml", &right.replace("key: user", "key: usser"));
    let message = "no rule matches the descriptor `usser`: it limits no request";
    serving.wait_for(|line| line["message"] == message);
}
