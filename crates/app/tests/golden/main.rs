//! Everything that users and other systems rely on, compared with files: schemas, variables, command
//! lines, exit codes, metrics, header fields, the OpenAPI document, debug pages and what is kept in
//! Redis.
//!
//! The files pin names, types, values and shapes, never prose. When a change is meant:
//! `cargo run -p tidegate-app --example bless_golden`, and review the difference.

#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../serve/certificates.rs"]
mod certificates;
#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../serve/client.rs"]
mod client;
#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../serve/process.rs"]
mod process;
#[path = "../support/redis_wire.rs"]
mod redis_wire;
#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../serve/upstream.rs"]
mod upstream;

mod capture;

use std::fs;

use capture::Golden;

/// Compares the captured texts with the files.
#[track_caller]
fn compare(captured: Vec<Golden>) {
    assert!(!captured.is_empty());
    for Golden { file, text } in captured {
        let path = capture::folder().join(&file);
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if let Some((line, was, is)) = first_difference(&expected, &text) {
            panic!("{file}:{line} differs\n  was: {was}\n   is: {is}\n\nall of it:\n{text}");
        }
    }
}

/// The first line that differs: its number, how it was, how it is.
fn first_difference(expected: &str, text: &str) -> Option<(usize, String, String)> {
    if expected == text {
        return None;
    }
    let (mut old, mut new) = (expected.lines(), text.lines());
    for line in 1.. {
        let (was, is) = (old.next(), new.next());
        if was != is || was.is_none() {
            let shown = |line: Option<&str>| line.unwrap_or("(the end)").to_owned();
            return Some((line, shown(was), shown(is)));
        }
    }
    None
}

#[test]
fn schemas_are_as_they_were() {
    compare(capture::schemas::capture());
}

#[test]
fn variables_are_as_they_were() {
    compare(capture::variables::capture());
}

#[test]
fn command_lines_and_exit_codes_are_as_they_were() {
    compare(capture::commands::capture());
}

#[test]
fn metrics_are_as_they_were() {
    compare(capture::metrics::capture());
}

#[test]
fn answers_and_their_header_fields_are_as_they_were() {
    compare(capture::answers::capture());
}

#[test]
fn debug_pages_are_as_they_were() {
    compare(capture::debug_pages::capture());
}

#[test]
fn keys_and_values_in_redis_are_as_they_were() {
    compare(capture::redis_state::capture());
}
