//! What docs/http-api.md shows is what the door answers.
//!
//! The first `yaml` block has the rules. In a `console` block each `$ curl` is
//! asked and its answer compared, as JSON; a line `…` stands for any answer.

use std::path::Path;
use std::sync::Arc;

use http::{Method, Request};
use serde_json::Value;
use tidegate_engine::{Engine, ManualClock, MemoryConfig, MemoryStore, Source};
use tidegate_http_api::{HttpApiParts, RulesStatus};

use crate::bench::{Bench, START, parts, request, rules, settings};

/// The permit that the page shows; every real one is another.
const SHOWN_PERMIT: &str = "5f0c1d9a3b7e42688a64c0de9f217b35";

/// The text between the first fence of this kind and its end.
fn block<'t>(text: &'t str, kind: &str) -> &'t str {
    text.split_once(&format!("```{kind}\n")).unwrap().1.split_once("```").unwrap().0
}

fn bench(rule_text: &str) -> Bench {
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let engine = Engine::new(store, ManualClock::at(START)).with_rules(rules(rule_text));
    let status = RulesStatus {
        loaded_at: Some(START),
        sources: Arc::new([Source::new("shop.yaml", rule_text)]),
        failure: None,
    };
    let parts = parts(settings());
    Bench::over(engine, HttpApiParts { rules: Arc::new(move || status.clone()), ..parts })
}

/// One command with what it should print.
struct Example<'t> {
    command: &'t str,
    printed: String,
}

fn examples(text: &str) -> Vec<Example<'_>> {
    let mut examples: Vec<Example<'_>> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            examples.push(Example { command, printed: String::new() });
        } else if inside {
            examples.last_mut().unwrap().printed += &format!("{line}\n");
        }
    }
    examples
}

/// The request of a command such as `curl --json '{}' localhost:8080/v1/check`.
fn asked(command: &str) -> Request<http_body_util::Full<bytes::Bytes>> {
    let path = command.rsplit_once("localhost:8080").unwrap().1.trim_end_matches('\'');
    match command.strip_prefix("curl --json '") {
        Some(rest) => request(Method::POST, path, rest.split_once("' ").unwrap().0),
        None => request(Method::GET, path, ""),
    }
}

#[tokio::test]
async fn the_documentation_shows_what_is_answered() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/http-api.md");
    let text = std::fs::read_to_string(docs).unwrap();
    let bench = bench(block(&text, "yaml"));
    let mut permit = SHOWN_PERMIT.to_owned();
    let examples = examples(&text);
    assert!(examples.len() > 12, "{} examples", examples.len());
    for Example { command, printed } in examples {
        let answer = bench.send(asked(&command.replace(SHOWN_PERMIT, &permit))).await;
        if printed == "…\n" {
            assert!(!answer.text.is_empty(), "$ {command}");
            continue;
        }
        let Ok(shown) = serde_json::from_str::<Value>(&printed) else {
            assert_eq!(answer.text, printed.trim_end(), "$ {command}");
            continue;
        };
        let mut said = answer.json();
        if let Some(token) = said.get("permit").and_then(Value::as_str) {
            permit = token.to_owned();
            said["permit"] = SHOWN_PERMIT.into();
        }
        assert_eq!(said, shown, "$ {command}\n{said:#}");
    }
}
