//! Where two answers differ.

use serde_json::Value;

/// The clock may tick between the two answers.
const TICKS_MAX: i64 = 2;

/// The members of upstream's dynamic metadata that Tidegate does not have; see the list of differences.
const QUOTA_MEMBERS: [&str; 2] = ["quotaModeEnabled", "quotaModeViolations"];

/// The places where two answers differ, with both values.
pub(crate) fn differences(upstream: &Value, tidegate: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", upstream, tidegate, &mut found);
    found
}

// The depth of the recursion is bounded by that of an answer.
fn compare(path: &str, upstream: &Value, tidegate: &Value, found: &mut Vec<String>) {
    match (upstream, tidegate) {
        (Value::Object(one), Value::Object(other)) => {
            if let (Some(key), true) = (one.get("key"), one.get("key") == other.get("key"))
                && key.as_str().is_some_and(|key| key.ends_with("-Reset"))
                && is_close(one.get("value"), other.get("value"))
            {
                return;
            }
            let skipped =
                |name: &str| path.ends_with("dynamicMetadata") && QUOTA_MEMBERS.contains(&name);
            let names = one.keys().filter(|name| !skipped(name)).chain(other.keys());
            let mut names: Vec<&String> = names.collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let (one, other) = (one.get(name), other.get(name));
                if name == "durationUntilReset" && is_close(one, other) {
                    continue;
                }
                let missing = Value::Null;
                let (one, other) = (one.unwrap_or(&missing), other.unwrap_or(&missing));
                compare(&format!("{path}/{name}"), one, other, found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}/{index}"), one, other, found);
            }
        }
        // The text of a message is not stable in Go: it has one space or two, at random.
        (Value::String(one), Value::String(other))
            if path.ends_with("/limit") && one.replace("  ", " ") == other.replace("  ", " ") => {}
        _ if upstream == tidegate => {}
        _ => found.push(format!("{path}: upstream {upstream}, tidegate {tidegate}")),
    }
}

/// Whether both are seconds and almost the same.
fn is_close(one: Option<&Value>, other: Option<&Value>) -> bool {
    let seconds = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.trim_end_matches('s').parse().ok(),
        Some(value) => value.as_i64(),
        None => None,
    };
    match (seconds(one), seconds(other)) {
        (Some(one), Some(other)) => i64::abs(one - other) <= TICKS_MAX,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tick_is_no_difference_and_anything_else_is() {
        let answer = json!({"statuses": [{"code": 1, "durationUntilReset": 60}]});
        let later = json!({"statuses": [{"code": 1, "durationUntilReset": 59}]});
        assert!(differences(&answer, &later).is_empty());
        let other = json!({"statuses": [{"code": 2, "durationUntilReset": 10}]});
        assert_eq!(differences(&answer, &other).len(), 2);
        assert_eq!(differences(&answer, &json!({"statuses": []})).len(), 1);
    }
}
