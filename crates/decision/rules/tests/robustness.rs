//! No input panics, overflows the stack or takes long.

mod support;

use proptest::prelude::*;
use support::{compiled, entries, try_compile};
use tidegate_rules::Timestamp;

/// The code of the first problem of a text.
fn refused(text: &str) -> &'static str {
    let report = try_compile(text).expect_err("the text is wrong");
    report.problems()[0].code
}

const TEN_MEGABYTES: usize = 10_000_000;

#[test]
fn endless_brackets_are_refused_as_too_deep() {
    assert_eq!(refused(&"[".repeat(TEN_MEGABYTES)), "too_deep");
    assert_eq!(refused(&format!("domain: {}", "{".repeat(TEN_MEGABYTES))), "too_deep");
}

#[test]
fn endless_flow_mappings_are_refused_as_too_deep() {
    assert_eq!(refused(&"a: {".repeat(TEN_MEGABYTES / 4)), "too_deep");
    assert_eq!(refused(&"{a: ".repeat(TEN_MEGABYTES / 4)), "too_deep");
}

#[test]
fn endless_block_nesting_is_refused_as_too_deep() {
    assert_eq!(refused(&"- ".repeat(TEN_MEGABYTES / 2)), "too_deep");
    assert_eq!(refused(&"? ".repeat(TEN_MEGABYTES / 2)), "too_deep");
    let lines: String = (0..1000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(refused(&lines), "too_deep");
}

#[test]
fn aliases_that_multiply_are_refused_as_too_large() {
    let mut laughs = String::from("domain: d\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..20 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    assert_eq!(refused(&laughs), "too_large");
}

#[test]
fn aliases_that_nest_are_refused_as_too_deep() {
    let mut nested = String::from("domain: d\na0: &a0 []\n");
    for level in 1..300 {
        nested += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    assert_eq!(refused(&nested), "too_deep");
}

#[test]
fn merge_keys_that_multiply_end() {
    let mut merged = String::from("domain: d\nmetadata:\n  m0: &m0 {a: 1}\n");
    for level in 1..20 {
        let aliases = vec![format!("*m{}", level - 1); 10].join(", ");
        merged += &format!("  m{level}: &m{level} {{<<: [{aliases}]}}\n");
    }
    assert_eq!(refused(&merged), "too_large");
}

#[test]
fn ten_megabytes_of_anything_else_end_soon_too() {
    for text in [
        "a".repeat(TEN_MEGABYTES),
        "\n".repeat(TEN_MEGABYTES),
        "- a\n".repeat(TEN_MEGABYTES / 20),
        "\"".to_owned() + &"x".repeat(TEN_MEGABYTES),
        "&a ".repeat(TEN_MEGABYTES / 30),
        "---\n".repeat(TEN_MEGABYTES / 10),
        "%".repeat(TEN_MEGABYTES),
        "\u{feff}".repeat(TEN_MEGABYTES / 30),
    ] {
        assert!(try_compile(&text).is_err());
    }
}

#[test]
fn many_faults_are_told_in_reasonable_time() {
    let wrong = "  - {wrong: 1}\n".repeat(100_000);
    let report = try_compile(&format!("domain: d\ndescriptors:\n{wrong}")).unwrap_err();
    assert_eq!(report.omitted(), 2 * 100_000 - 100);
}

#[test]
fn many_faults_on_one_long_line_are_told_in_reasonable_time() {
    let wrong = "{wrong: 1}, ".repeat(200_000);
    let report = try_compile(&format!("{{domain: d, descriptors: [{wrong}]}}")).unwrap_err();
    let last = &report.problems()[99];
    assert_eq!((last.line, last.snippet.width), (1, "wrong".len()));
    assert_eq!(report.omitted(), 2 * 200_000 - 100);
}

const RULES: &str = include_str!("../../../../examples/rules/quickstart.yaml");
const PLANS: &str = include_str!("../../../../examples/rules/plans.yaml");
const ADDRESSES: &str = include_str!("../../../../examples/rules/addresses.yaml");

/// Pieces that mean something to YAML or to us.
fn piece() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "domain",
        "descriptors",
        "key",
        "value",
        "rate_limit",
        "limits",
        "unit",
        "per",
        "plan",
        "plans",
        "cidr",
        "address",
        "metadata",
        "soft",
        "replaces",
        "name",
        "unlimited",
        "true",
        "null",
        "~",
        "*",
        "&a",
        "*a",
        "<<",
        "!!int",
        "!x",
        "10.0.0.0/8",
        "5m",
        "20%",
        "-1",
        "1.5",
        "99999999999999999999",
        "[",
        "]",
        "{",
        "}",
        ",",
        ": ",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "'",
        "\"",
        "|\n",
        ">\n",
        "#",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "?",
        "\t",
        "\0",
        "\u{feff}",
        "é",
        "\u{2028}",
        "\r",
    ]);
    prop_oneof![4 => words.prop_map(str::to_owned), 1 => "[ -~]{0,6}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_pieces_of_yaml_are_answered(pieces in prop::collection::vec(piece(), 0..60)) {
        let text = pieces.concat();
        if let Err(report) = try_compile(&text) {
            prop_assert!(!report.problems().is_empty());
            prop_assert!(!report.to_string().is_empty());
        }
    }

    #[test]
    fn random_characters_are_answered(text in any::<String>()) {
        if let Err(report) = try_compile(&text) {
            prop_assert!(!report.problems().is_empty());
        }
    }

    #[test]
    fn damaged_examples_are_answered(
        which in 0usize..3,
        damages in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, piece()), 1..6),
    ) {
        let mut chars: Vec<char> = [RULES, PLANS, ADDRESSES][which].chars().collect();
        for (at, removed, inserted) in damages {
            let start = at.index(chars.len() + 1);
            let end = (start + removed).min(chars.len());
            chars.splice(start..end, inserted.chars());
        }
        let text: String = chars.into_iter().collect();
        match try_compile(&text) {
            Ok(snapshot) => {
                let request = entries(&[("user", "1"), ("path", "/login")]);
                for domain in snapshot.domains() {
                    let found = domain.find(&request, Timestamp::EPOCH).is_some();
                    let explained = domain.explain(&request, Timestamp::EPOCH).to_string();
                    prop_assert_eq!(found, explained.contains(" applies"));
                }
            }
            Err(report) => prop_assert!(!report.to_string().is_empty()),
        }
    }

    #[test]
    fn any_request_is_answered(key in any::<String>(), value in any::<String>()) {
        let snapshot = compiled(ADDRESSES);
        let domain = snapshot.domain("edge").unwrap();
        let request = [("remote_address", value.as_str()), (key.as_str(), value.as_str())];
        prop_assert!(domain.find(&entries(&request[..1]), Timestamp::EPOCH).is_some());
        prop_assert!(domain.find(&entries(&request), Timestamp::EPOCH).is_none());
    }
}
