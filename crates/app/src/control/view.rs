//! Entries and differences in a line each.

use std::io::{self, Write};

use serde_json::Value;

use crate::output::{Clean, Output, StyledText, style};

/// Where an entry is: `row api/clients acme`.
pub(super) fn location(entry: &Value) -> String {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    match text("collection") {
        "" => format!("{} {}", text("kind"), text("name")),
        collection => format!("{} {collection} {}", text("kind"), text("name")),
    }
}

/// What an entry says, in a few words.
pub(super) fn effect(entry: &Value) -> String {
    let body = &entry["body"];
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    let mut effect = match entry["kind"].as_str().unwrap_or_default() {
        "row" => text("terms"),
        "client" => format!("plan {}", text("plan")),
        "document" => format!("{} lines", text("text").lines().count()),
        "switch" => text("mode"),
        "key" => format!("{} plan {}", text("owner"), text("plan")),
        _ => body.to_string(),
    };
    if let Some(until) = entry["until"].as_str() {
        effect.push_str(&format!(" until {until}"));
    }
    effect
}

/// Writes what differs between two states of an entry.
pub(super) fn write_difference(out: &mut Output, before: &Value, after: &Value) -> io::Result<()> {
    let (mark, colour, text) = match (before.is_null(), after.is_null()) {
        (true, _) => ("+", style::GOOD, format!("{}: {}", location(after), effect(after))),
        (_, true) => ("-", style::BAD, format!("{}: {}", location(before), effect(before))),
        _ => {
            let text = format!("{}: {} → {}", location(after), effect(before), effect(after));
            ("~", style::WARNING, text)
        }
    };
    writeln!(out, "{} {}", StyledText(colour, mark), Clean(text))
}
