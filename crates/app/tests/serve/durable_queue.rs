//! `when_over: queue` with a data directory: a stored request and its result survive the process.

use serde_json::json;

use crate::gateway::{as_user, start};
use crate::process::{Answer, Folder, Serving};
use crate::upstream::Upstream;

/// The second request within an hour is kept.
const RULES: &str = "
domain: gateway
descriptors:
  - key: user
    limits: [{name: calls, algorithm: token_bucket, requests_per_unit: 1, unit: hour, burst: 1, when_over: queue}]
";

/// Where the answer says that the state of the request is.
fn location(answer: &Answer) -> String {
    let mut fields = answer.head.lines().filter_map(|line| line.split_once(": "));
    let field = fields.find(|(name, _)| name.eq_ignore_ascii_case("location"));
    field.expect("a location").1.to_owned()
}

fn until_done(serving: &mut Serving, place: &str) {
    serving.until(|serving| {
        let state = serving.get("gateway", place).json();
        (state["state"] == "done").then_some(())
    });
}

#[test]
fn a_stored_request_and_its_result_outlive_killed_processes() {
    let upstream = Upstream::start();
    let folder = Folder::with_rules(RULES);
    folder.write("gateway.yaml", &upstream.document("queue: {wait_max: 2h}\n"));
    let serve = || start(&folder).args(["--set", "data_dir=data"]).serving();

    let mut serving = serve();
    assert_eq!(as_user(&mut serving, "ada").status, 200);
    upstream.next();
    let kept = as_user(&mut serving, "ada");
    assert_eq!(kept.status, 202, "{kept:?}");
    let place = location(&kept);
    assert_eq!(serving.get("gateway", &place).json()["state"], json!("waiting"));
    serving.signal("KILL");
    assert!(!serving.ended().0.success());

    // Counters end with the process, so that the next one admits the request.
    let mut serving = serve();
    until_done(&mut serving, &place);
    assert!(upstream.next().contains("x-user: ada"));
    serving.signal("KILL");
    assert!(!serving.ended().0.success());

    let mut serving = serve();
    let state = serving.get("gateway", &place).json();
    assert_eq!((&state["state"], &state["status"]), (&json!("done"), &json!(200)));
    let response = state["response"].as_str().expect("a link to the response");
    assert_eq!(serving.get("gateway", response).body, "/x");

    // A data directory has one owner.
    let (status, said) = start(&folder).args(["--set", "data_dir=data"]).failing();
    assert_eq!(status.code(), Some(2));
    assert!(said.contains("the data directory data cannot be used"), "{said}");
}
