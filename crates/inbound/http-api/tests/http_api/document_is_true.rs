//! Every field that the document has is served, and asked for as it says.
//!
//! That every field that is served is in the document is held for every
//! answer of these tests: see `bench`.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use tidegate_engine::{
    Engine, FailureMode, ManualClock, MemoryConfig, MemoryStore, Mode, Target, WhenFull,
};

use crate::bench::{Answer, Bench, RULES, START, asking, costing, engine, parts, rules, settings};
use crate::checks::down;
use crate::document::{self, DOCUMENT};
use crate::status::failed_parts;

/// Schemas of bodies that come in.
const ASKED: [&str; 7] =
    ["Question", "Request", "Descriptor", "Entry", "OwnLimit", "Release", "SliceExchange"];

#[derive(Default)]
struct Seen(BTreeSet<(String, String)>);

impl Seen {
    fn note(&mut self, method: &Method, path: &str, answer: &Answer) {
        if let Some(schema) = document::schema_for(method, path, answer) {
            document::note(schema, &answer.json(), &mut self.0);
        }
    }

    async fn post<S: tidegate_engine::CounterStore>(
        &mut self,
        bench: &Bench<S>,
        path: &str,
        body: &Value,
    ) -> Answer {
        let answer = bench.post(path, body).await;
        self.note(&Method::POST, path, &answer);
        answer
    }

    async fn get(&mut self, bench: &Bench, path: &str) {
        let answer = bench.get(path).await;
        self.note(&Method::GET, path, &answer);
    }
}

/// An engine whose store has no room for any key.
fn full(when_full: WhenFull) -> Bench {
    let config = MemoryConfig { budget_bytes: 64 * 1024, when_full, seed: Some(1) };
    let store = MemoryStore::new(config).unwrap();
    let engine = Engine::new(store, ManualClock::at(START)).with_rules(rules(RULES));
    Bench::over(engine, parts(settings()))
}

#[tokio::test]
async fn every_field_of_answers_that_the_document_has_is_served() {
    let mut seen = Seen::default();
    let bench = Bench::new();
    for asked in [
        asking("user", "ada"),
        costing(2, "user", "ada"),
        costing(9, "user", "ada"),
        asking("dark", "x"),
        costing(11, "soft", "x"),
        asking("queue", "x"),
        asking("queue", "x"),
        asking("job", "x"),
        json!({"domain": "nowhere", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}),
        json!({"requests": [asking("user", "bob")]}),
    ] {
        seen.post(&bench, "/v1/check", &asked).await;
        seen.post(&bench, "/v1/reset", &asked).await;
        seen.post(&bench, "/v1/check", &asked).await;
    }
    let mut own = asking("user", "ada");
    own["descriptors"][0]["limit"] = json!({"requests_per_unit": 0, "unit": "day"});
    seen.post(&bench, "/v1/check", &own).await;
    seen.post(&bench, "/v1/check", &json!({"domian": 1})).await;
    seen.post(&bench, "/v1/check", &json!("")).await;
    let answer = bench.post("/v1/chek", &json!(1)).await;
    document::note(&json!({"$ref": "#/components/schemas/Problem"}), &answer.json(), &mut seen.0);
    seen.post(&bench, "/v1/release", &json!({"permit": "x"})).await;
    let slice = |key: &str, members: Value| {
        let mut body = asking(key, "10.0.0.9");
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        body
    };
    let back = json!({"units": 9, "slice": "x", "unused": 1});
    seen.post(&bench, "/v1/slices", &slice("ip", back.clone())).await;
    seen.post(&bench, "/v1/slices", &slice("ip", back)).await;
    let mut none = slice("user", json!({"units": 1}));
    none["descriptors"][0]["limit"] = json!({"requests_per_unit": 0, "unit": "day"});
    seen.post(&bench, "/v1/slices", &none).await;
    for (key, value) in [("user", "ada"), ("ip", "10.0.0.1"), ("plan", "free"), ("x", "y")] {
        seen.post(&bench, "/v1/explain", &asking(key, value)).await;
    }
    for path in ["/v1/rules", "/livez", "/readyz"] {
        seen.get(&bench, path).await;
    }
    let failed = Bench::over(engine(), failed_parts());
    seen.get(&failed, "/v1/rules").await;
    let target = Target { domain: "api", path: "user", limit: None };
    let switch = Mode::Off;
    bench.engine.set_switch(target, switch).unwrap();
    bench.engine.switch_off(true);
    seen.post(&bench, "/v1/check", &asking("user", "ada")).await;
    seen.post(&bench, "/v1/reset", &asking("user", "ada")).await;
    let down = down(FailureMode::Refuse);
    seen.post(&down, "/v1/check", &asking("user", "ada")).await;
    seen.post(&down, "/v1/reset", &asking("user", "ada")).await;
    seen.post(&down, "/v1/slices", &slice("user", json!({"units": 1}))).await;
    let full = full(WhenFull::Approximate);
    for user in 0..2_000 {
        let answer = full.post("/v1/check", &asking("user", &user.to_string())).await;
        if answer.text.contains("basis") {
            seen.note(&Method::POST, "/v1/check", &answer);
            break;
        }
    }

    let mut missing = Vec::new();
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().unwrap() {
        let properties = schema.get("properties").and_then(Value::as_object);
        if ASKED.contains(&name.as_str()) {
            continue;
        }
        for property in properties.into_iter().flatten().map(|(property, _)| property) {
            if !seen.0.contains(&(name.clone(), property.clone())) {
                missing.push(format!("{name}.{property}"));
            }
        }
    }
    assert!(missing.is_empty(), "never served: {missing:?}");
}

#[tokio::test]
async fn what_the_document_accepts_is_what_the_door_accepts() {
    let bench = Bench::new();
    let schema = json!({"$ref": "#/components/schemas/Question"});
    let entry = json!({"key": "user", "value": "ada"});
    let with = |limit: Value| json!({"domain": "api", "descriptors": [{"entries": [entry], "limit": limit}]});
    for asked in [
        asking("user", "ada"),
        costing(0, "user", "ada"),
        costing(u64::MAX, "user", "ada"),
        json!({"requests": [asking("user", "ada"), asking("user", "bob")]}),
        with(Value::Null),
        with(json!({"requests_per_unit": 1, "unit": "year"})),
        with(json!({"requests_per_unit": 1, "per_ms": 1, "unit": null})),
        with(json!({"requests_per_unit": 1})),
        with(json!({"requests_per_unit": 1, "unit": "eon"})),
        with(json!({"requests_per_unit": -1, "unit": "day"})),
        with(json!({"unit": "day"})),
        with(json!([])),
        json!({}),
        json!([]),
        json!({"domain": "", "descriptors": [{"entries": [entry]}]}),
        json!({"domain": "api", "descriptors": []}),
        json!({"domain": "api", "descriptors": [{"entries": []}]}),
        json!({"domain": "api", "descriptors": [{"entries": [{"key": "user"}]}]}),
        json!({"domain": "api", "descriptors": [{"entries": [entry]}], "cost": 1.5}),
        json!({"domain": "api", "descriptors": [{"entries": [entry]}], "cost": null}),
        json!({"domain": "api", "descriptors": [{"entries": [entry]}], "costs": 1}),
        json!({"domain": "api", "requests": [asking("user", "ada")]}),
        json!({"requests": []}),
    ] {
        let accepted = bench.post("/v1/peek?status=200", &asked).await.status == 200;
        let documented = document::check(&schema, &asked);
        assert_eq!(accepted, documented.is_ok(), "{asked}: {documented:?}");
    }
}
