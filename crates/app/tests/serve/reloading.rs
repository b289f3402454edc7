//! Rules that change while the service runs.

use crate::process::{Folder, RULES, Serving, Start};

/// Waits until the active rules are those with this text in them.
fn wait_for_rules(serving: &mut Serving, text: &str) {
    serving.until(|serving| serving.get("http", "/v1/rules").body.contains(text).then_some(()));
}

#[test]
fn changed_rules_take_effect_and_counts_go_on() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    assert_eq!(serving.check("ada").status, 200);
    assert_eq!(serving.check("ada").status, 200);
    assert_eq!(serving.check("ada").status, 429);
    folder.write("rules.yaml", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 3"));
    wait_for_rules(&mut serving, "requests_per_unit: 3");
    assert_eq!(serving.check("ada").status, 200);
    assert_eq!(serving.check("ada").status, 429);
}

#[test]
fn a_bad_change_is_told_everywhere_and_changes_nothing() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).serving();
    folder.write("rules.yaml", &RULES.replace("rate_limit", "rate_limt"));
    wait_for_rules(&mut serving, "last_failure");
    let rules = serving.get("http", "/v1/rules").json();
    assert!(rules["last_failure"]["message"].as_str().expect("words").contains("rate_limit"));
    assert_eq!(rules["rules"], 1);
    let line = serving.wait_for(|line| line["level"] == "ERROR");
    assert!(line["problems"].as_str().expect("words").contains("did you mean `rate_limit`?"));
    let metrics = serving.get("debug", "/metrics").body;
    let failures =
        metrics.lines().find(|line| line.starts_with("tidegate_rules_") && line.contains("fail"));
    assert!(failures.is_some_and(|line| line.ends_with(" 1")), "{metrics}");
    for status in [200, 200, 429] {
        assert_eq!(serving.check("ada").status, status);
    }
    folder.write("rules.yaml", RULES);
    serving.until(|serving| {
        (!serving.get("http", "/v1/rules").body.contains("last_failure")).then_some(())
    });
}

#[test]
fn a_hang_up_reads_the_rules_again_where_they_are_not_watched() {
    let folder = Folder::with_rules(RULES);
    let mut serving = Start::new(&folder).args(["--set", "rules.watch=false"]).serving();
    folder.write("rules.yaml", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 9"));
    serving.signal("HUP");
    wait_for_rules(&mut serving, "requests_per_unit: 9");
}
