//! `tidegate keys new` makes keys that a gateway knows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::run_with;

/// The value of a line of the output.
fn value<'o>(output: &'o str, name: &str) -> &'o str {
    let line = output.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap().trim()
}

#[test]
fn a_new_key_is_printed_with_its_hash_and_line() {
    let ran = run_with(&["keys", "new", "acme", "pro"], "");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let (key, hash) = (value(&ran.stdout, "key"), value(&ran.stdout, "hash"));
    assert!(key.starts_with("tgk_") && key.len() == 47, "{key}");
    assert_eq!(hash.len(), 64);
    assert_eq!(value(&ran.stdout, "line"), format!("{hash} acme pro"));
    let other = run_with(&["keys", "new", "acme", "pro"], "");
    assert_ne!(value(&other.stdout, "key"), key);
}

#[test]
fn a_name_that_cannot_stand_in_the_file_is_rejected() {
    let ran = run_with(&["keys", "new", "two words", "pro"], "");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("`two words` is not one word"), "{}", ran.stderr);
}
