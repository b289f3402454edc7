//! `/api/fleet`: the nodes of the fleet, and their sums.
//!
//! Each node describes itself in a kibibyte of JSON, with the members that `/api/state` has; where the descriptions are
//! kept belongs to the program. Without such a place, the fleet is this node.

use std::collections::BTreeMap;
use std::pin::Pin;

use serde_json::{Map, Value, json};
use tidegate_engine::{Clock, CounterStore};

use super::answer::{self, Answer};
use super::service::Inner;
use super::state_page::{self, RATES};

/// The longest description of a node, in bytes.
const NODE_BYTES_MAX: usize = 1_024;
/// The longest text of a description, in bytes.
const TEXT_BYTES_MAX: usize = 200;

/// The descriptions of all nodes, or why they cannot be read.
type NodesResult = Result<Vec<String>, String>;

/// Reads the descriptions of all nodes, as [`DebugDoor::node_state`](crate::DebugDoor::node_state) made them.
pub type NodesReader =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = NodesResult> + Send>> + Send + Sync>;

/// The page.
pub(super) async fn page<S: CounterStore, C: Clock>(door: &Inner<S, C>) -> Answer {
    let own = node_state(door);
    let read = match &door.parts.nodes {
        Some(read) => Some(read().await),
        None => None,
    };
    let (nodes, problem) = match read {
        Some(Ok(nodes)) => (nodes.iter().filter_map(|node| parse(node)).collect(), None),
        Some(Err(problem)) => (vec![own], Some(problem)),
        None => (vec![own], None),
    };
    answer::json(&fleet(nodes, problem.as_deref()))
}

/// The description of a node; none if it is not one.
fn parse(text: &str) -> Option<Value> {
    let node: Value = serde_json::from_str(text).ok()?;
    node["name"].is_string().then_some(node)
}

/// Nodes by name, with the sums of their rates and the nodes of each version of the rules.
fn fleet(mut nodes: Vec<Value>, problem: Option<&str>) -> Value {
    nodes.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let sum =
        |name: &str| nodes.iter().filter_map(|node| node["rates"][name].as_f64()).sum::<f64>();
    let rates: Map<String, Value> =
        RATES.iter().map(|name| ((*name).to_owned(), json!(sum(name)))).collect();
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &nodes {
        *versions.entry(node["rules"]["version"].as_str().unwrap_or_default()).or_default() += 1;
    }
    // The version that most nodes have; the others stand out.
    let usual = versions.iter().max_by_key(|(_, count)| **count).map(|(version, _)| *version);
    json!({
        "rates": rates,
        "rules_versions": versions,
        "rules_version": usual,
        "problem": problem,
        "nodes": nodes,
    })
}

/// This node for the others.
pub(super) fn node_state<S: CounterStore, C: Clock>(door: &Inner<S, C>) -> Value {
    let state = state_page::read(door);
    let mut node = json!({ "name": short(&door.parts.settings.node_name) });
    for name in ["version", "started_ms", "uptime_s", "off", "limits_switched", "rates", "control"]
    {
        node[name] = state[name].clone();
    }
    let of = |whole: &Value, names: &[&str]| -> Value {
        names
            .iter()
            .map(|name| ((*name).to_owned(), whole[*name].clone()))
            .collect::<Map<_, _>>()
            .into()
    };
    node["rules"] = of(&state["rules"], &["version", "limits", "stale"]);
    node["store"] = of(&state["store"], &["kind", "unavailable"]);
    if let Some(reason) = state["store"]["unavailable"].as_str() {
        node["store"]["unavailable"] = json!(short(reason));
    }
    let overload = &state["overload"];
    if !overload.is_null() {
        node["overload"] = json!({
            "gate": of(&overload["gate"], &["in_flight", "limit", "queued"]),
            "worker": of(&overload["worker"], &["utilization", "shed_level"]),
            "fleet": of(&overload["fleet"], &["grant", "fallback"]),
        });
    }
    let none = Vec::new();
    let limiters = state["limiters"].as_array().unwrap_or(&none).iter();
    let switched = limiters.filter(|limiter| limiter["mode"] != limiter["configured"]);
    node["limiters"] =
        switched.map(|limiter| of(limiter, &["name", "mode", "configured"])).collect();
    if node.to_string().len() > NODE_BYTES_MAX {
        // The switches of all limiters at once; their number is left.
        node["limiters"] = json!([]);
    }
    node
}

fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, version: &str, admitted: f64) -> Value {
        json!({ "name": name, "rules": { "version": version }, "rates": { "admitted": admitted } })
    }

    #[test]
    fn nodes_are_summed_and_other_versions_of_the_rules_stand_out() {
        let nodes = vec![node("c", "new", 1.5), node("a", "old", 2.0), node("b", "old", 3.0)];
        let fleet = fleet(nodes, None);
        let names: Vec<_> =
            fleet["nodes"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(
            (&fleet["rates"]["admitted"], &fleet["rates"]["shed"]),
            (&json!(6.5), &json!(0.0))
        );
        assert_eq!(fleet["rules_version"], "old");
        assert_eq!(fleet["rules_versions"], json!({ "new": 1, "old": 2 }));
    }

    #[test]
    fn what_is_no_description_of_a_node_is_left_out() {
        for text in ["", "{", "[]", "{\"name\": 7}", "7"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(parse("{\"name\": \"a\"}").is_some());
        let empty = fleet(Vec::new(), Some("no answer"));
        assert_eq!((&empty["nodes"], &empty["problem"]), (&json!([]), &json!("no answer")));
    }
}
