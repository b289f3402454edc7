//! Every rule file under `cases` leads to exactly the diagnostics beside it.
//!
//! After an intended change, `cargo run -p tidegate-rules --example bless_cases` rewrites them; review the difference.

#[path = "support/cases.rs"]
mod cases;

use std::fs;

use cases::{cases, say};

/// All differences of one kind at once.
fn check(kind: &str, accepted: bool) {
    let mut differences = Vec::new();
    let cases = cases(kind);
    assert!(!cases.is_empty());
    for case in &cases {
        let said = say(case);
        let expected = fs::read_to_string(&case.expected).unwrap_or_default();
        if said.accepted != accepted || said.text != expected {
            differences.push(format!("{}:\n{}", case.name, said.text));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn valid_files_are_accepted_with_the_expected_warnings() {
    check("valid", true);
}

#[test]
fn files_of_the_wrong_structure_are_refused_with_the_expected_messages() {
    check("invalid", false);
}

#[test]
fn files_that_contradict_themselves_are_refused_with_the_expected_messages() {
    check("semantic", false);
}

#[test]
fn every_problem_has_one_fault_in_its_file() {
    for kind in ["invalid", "semantic"] {
        for case in cases(kind) {
            let errors = say(&case).text.matches("error[").count();
            let several =
                case.name.starts_with("several") || case.name.starts_with("unknown_key_that");
            assert!(several || errors == 1, "{} has {errors} errors", case.name);
        }
    }
}
