//! Refused configurations with their messages; no input causes a panic.

use std::fs;

use proptest::prelude::*;
use tidegate_app::config::{Config, Entry, Input, VARIABLES, resolve, variable_of};

use crate::config_cases::{cases, say};
use crate::resolved::{input, loaded, of_file, set};

#[test]
fn every_broken_file_leads_to_the_expected_messages() {
    let mut differences = Vec::new();
    let cases = cases();
    assert!(cases.len() > 30);
    for case in &cases {
        let said = say(case).unwrap_or_else(|| panic!("{} is accepted", case.name));
        let errors = said.matches("error[").count();
        assert!(errors == 1 || case.name.starts_with("several"), "{}:\n{said}", case.name);
        if said != fs::read_to_string(&case.expected).unwrap_or_default() {
            differences.push(format!("{}:\n{said}", case.name));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_bad_variable_and_a_bad_flag_are_told_like_a_bad_file() {
    let input = Input {
        flags: vec![set("shutdown.grace=5"), set("grpc.lisen=a"), set("workers")],
        ..input("workers: none\n", &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:1, 80")])
    };
    let said = resolve(&input).unwrap_err().to_string();
    for part in [
        " --> tidegate.yaml:1:10\n",
        " --> TIDEGATE_HTTP_LISTEN:1:14\n  |\n1 | 127.0.0.1:1, 80\n  |              ^^\n",
        " --> --set:1:16\n  |\n1 | shutdown.grace=5\n  |                ^\n",
        "there is no field `grpc.lisen`",
        "did you mean `grpc.listen`?",
        "there is no `=`",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert_eq!(said.matches("error[").count(), 5, "{said}");
}

#[test]
fn a_secret_is_not_in_any_message() {
    let secret = "hunter2";
    let flag = set("debug.token=hunter2");
    for input in [
        input("debug: {token: hunter2}\n", &[]),
        input("debug:\n  \"token\": hunter2\n", &[]),
        input("debug: {token: hunter2, colour: red}\n", &[]),
        input("debug: {token: hunter2\n", &[]),
        input("", &[("TIDEGATE_DEBUG_TOKEN", secret)]),
        Input { flags: vec![flag], ..Input::default() },
    ] {
        let report = resolve(&input).unwrap_err();
        assert!(!format!("{report}{report:?}").contains(secret), "{report}");
    }
    let loaded = of_file("debug: {token: a-long-enough-secret}\n");
    assert!(!format!("{loaded:?}").contains("secret"));
}

#[test]
fn the_debug_port_is_opened_only_with_a_token_or_without_switches() {
    let file = |more: &str| format!("debug: {{listen: '0.0.0.0:6070'{more}}}\n");
    let refused = resolve(&input(&file(""), &[])).unwrap_err();
    assert_eq!(refused.problems()[0].code, "open_debug");
    let token = of_file(&file(", token_file: /run/token"));
    assert!(token.config.debug.switches_are_on());
    assert!(!of_file(&file(", switches: off")).config.debug.switches_are_on());
    let by_variable = [("TIDEGATE_DEBUG_TOKEN", "long enough for this")];
    assert!(loaded(&input(&file(""), &by_variable)).config.debug.switches_are_on());
    assert!(of_file("debug: {listen: 'unix:/run/d.sock'}").config.debug.switches_are_on());
}

#[test]
fn a_file_beyond_all_bounds_is_refused_unread() {
    let report = resolve(&input(&"#".repeat(1024 * 1024 + 1), &[])).unwrap_err();
    assert_eq!(report.problems()[0].code, "too_large");
}

proptest! {
    #[test]
    fn no_file_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let text = String::from_utf8_lossy(&bytes);
        let result = resolve(&input(&text, &[]));
        prop_assert!(result.map_or_else(|report| !report.problems().is_empty(), |_| true));
    }

    #[test]
    fn no_value_of_any_field_makes_it_panic(at in any::<prop::sample::Index>(), value in "\\PC{0,40}") {
        let mut config = Config::default();
        let paths: Vec<String> = config.entries().into_iter().filter_map(|entry| match entry {
            Entry::Field(field) => Some(field.path),
            Entry::Section { .. } => None,
        }).collect();
        let path = at.get(&paths);
        let variable = variable_of(path);
        let keys: Vec<&str> = path.split('.').collect();
        let nested = keys.iter().rev().fold(value.clone(), |inner, key| format!("{{{key}: {inner}}}"));
        let by_file = resolve(&input(&nested, &[]));
        let by_variable = resolve(&input("", &[(&variable, &value)]));
        for result in [by_file, by_variable] {
            prop_assert!(result.map_or_else(|report| !report.to_string().is_empty(), |_| true));
        }
    }

    #[test]
    fn no_value_of_upstreams_variables_makes_it_panic(
        at in any::<prop::sample::Index>(), value in "\\PC{0,40}",
    ) {
        let name = at.get(VARIABLES).name;
        let switches = [("USE_PROMETHEUS", "1"), ("GRPC_SERVER_USE_TLS", "1"), (name, &*value)];
        for count in 1..=switches.len() {
            let result = resolve(&input("compat: envoy-ratelimit", &switches[switches.len() - count..]));
            prop_assert!(result.map_or_else(|report| !report.to_string().is_empty(), |_| true));
        }
    }
}

#[test]
fn a_secret_is_hidden_wherever_it_is_written() {
    for file in [
        "debug:\n  token: hunter2\n",
        "debug:\n  token:\n    hunter2\n",
        "debug:\n  token: |\n    hunter2\n",
        "debug:\n  token: >-\n\n    hunter2\n",
        "debug: {token:\n hunter2}\n",
        "debug:\n  token: \"\n  hunter2\"\n",
    ] {
        let problems = resolve(&input(file, &[])).unwrap_err().to_string();
        assert!(!problems.contains("hunter2"), "{file}\n{problems}");
    }
}
