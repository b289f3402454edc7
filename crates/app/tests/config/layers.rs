//! Which layer wins, and where a value comes from.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_app::config::{
    Config, Entry, Flag, Input, LogLevel, Origin, RulesFrom, Workers, resolve, variable_of,
};
use tidegate_rules::{Mode, Source};

use crate::resolved::{input, listen, loaded, of_file, set};

#[test]
fn without_anything_the_defaults_hold() {
    let loaded = loaded(&Input::default());
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.origins.values().all(|origin| *origin == Origin::Default));
    assert!(loaded.notes.is_empty() && loaded.warnings.is_empty());
    assert_eq!(listen(&loaded), ["0.0.0.0:8081", "0.0.0.0:8080", "127.0.0.1:6070"]);
    assert_eq!(loaded.config.workers, Workers::Auto);
    assert_eq!(loaded.config.rules.source(), RulesFrom::Paths(&[PathBuf::from("rules")]));
    assert_eq!(loaded.config.shutdown.grace, Duration::from_secs(15));
    assert!(loaded.config.debug.switches_are_on());
}

#[test]
fn an_empty_file_changes_nothing() {
    for file in ["", "# only a comment\n", "grpc:\nhttp: {}\n", "~"] {
        assert_eq!(of_file(file).config, Config::default(), "{file}");
    }
}

#[test]
fn each_layer_wins_over_those_before_it() {
    let file = "compat: envoy-ratelimit\nlog: {level: info}\n";
    let mut input = input("compat: envoy-ratelimit\n", &[]);
    let level = |input: &Input| {
        let loaded = loaded(input);
        (loaded.config.log.level, loaded.origins["log.level"].to_string())
    };
    assert_eq!(level(&Input::default()), (LogLevel::Info, "default".to_owned()));
    assert_eq!(level(&input), (LogLevel::Warn, "default of envoy-ratelimit".to_owned()));
    input.variables.push(("LOG_LEVEL".to_owned(), "ERROR".to_owned()));
    assert_eq!(level(&input), (LogLevel::Error, "LOG_LEVEL".to_owned()));
    input.file = Some(Source::new("tidegate.yaml", file));
    assert_eq!(level(&input), (LogLevel::Info, "tidegate.yaml:2".to_owned()));
    input.variables.push(("TIDEGATE_LOG_LEVEL".to_owned(), "debug".to_owned()));
    assert_eq!(level(&input), (LogLevel::Debug, "TIDEGATE_LOG_LEVEL".to_owned()));
    input.flags.push(Flag {
        name: "--log-level",
        path: Some("log.level"),
        text: "trace".to_owned(),
    });
    assert_eq!(level(&input), (LogLevel::Trace, "--log-level".to_owned()));
    input.flags.push(set("log.level=error"));
    assert_eq!(level(&input), (LogLevel::Error, "--set".to_owned()));
}

#[test]
fn every_field_has_one_variable_that_sets_it() {
    let mut config = Config::default();
    let mut variables = BTreeSet::new();
    for entry in config.entries() {
        let Entry::Field(field) = entry else { continue };
        assert!(
            variables.insert(variable_of(&field.path)),
            "{} is ambiguous",
            variable_of(&field.path)
        );
        if field.default().is_empty() {
            continue;
        }
        let loaded = loaded(&input("", &[(&variable_of(&field.path), field.default())]));
        assert_eq!(loaded.origins[&field.path], Origin::Variable(variable_of(&field.path)));
        assert!(loaded.warnings.is_empty());
        let text = format!("{}={}", field.path, field.default());
        let by_flag = Input { flags: vec![set(&text)], ..Input::default() };
        assert_eq!(resolve(&by_flag).unwrap().origins[&field.path], Origin::Flag("--set"));
    }
    assert!(variables.len() > 60);
    assert_eq!(variable_of("grpc.tls.client_ca"), "TIDEGATE_GRPC_TLS_CLIENT_CA");
}

#[test]
fn a_list_replaces_a_list() {
    let file = "grpc: {listen: ['127.0.0.1:1', '127.0.0.1:2']}\n";
    let one = [("TIDEGATE_GRPC_LISTEN", " 127.0.0.1:3 , unix:/run/t.sock,")];
    assert_eq!(listen(&of_file(file))[0], "127.0.0.1:1 127.0.0.1:2");
    assert_eq!(listen(&loaded(&input(file, &one)))[0], "127.0.0.1:3 unix:/run/t.sock");
    let none = Input { flags: vec![set("grpc.listen=[]")], ..input(file, &one) };
    assert_eq!(listen(&loaded(&none))[0], "");
    assert_eq!(listen(&of_file("grpc: {listen: '127.0.0.1:4'}"))[0], "127.0.0.1:4");
}

#[test]
fn a_variable_that_is_set_to_nothing_is_not_set() {
    let loaded = loaded(&input("workers: 3\n", &[("TIDEGATE_WORKERS", "")]));
    assert_eq!(loaded.config.workers, Workers::Count(3));
}

#[test]
fn rules_have_the_variable_that_other_commands_know_too() {
    let loaded = loaded(&input("", &[("TIDEGATE_RULES", "a.yaml,b")]));
    let paths = [PathBuf::from("a.yaml"), PathBuf::from("b")];
    assert_eq!(loaded.config.rules.source(), RulesFrom::Paths(&paths));
}

#[test]
fn a_variable_that_sets_nothing_is_a_warning_with_what_was_meant() {
    let loaded = loaded(&input("", &[("TIDEGATE_GRPC_LISTN", "x"), ("PATH", "y")]));
    let [warning] = loaded.warnings.as_slice() else { panic!("{:?}", loaded.warnings) };
    assert_eq!((warning.code, warning.file.as_str()), ("unknown_variable", "TIDEGATE_GRPC_LISTN"));
    assert_eq!(warning.hint.as_deref(), Some("did you mean `TIDEGATE_GRPC_LISTEN`?"));
}

#[test]
fn the_old_word_for_shadow_is_read_with_a_warning() {
    let file = "switches: {worker: dark, gate: shadow}\n";
    let loaded = loaded(&input(file, &[("TIDEGATE_SWITCHES_RATE", "dark")]));
    let switches = &loaded.config.switches;
    for mode in [switches.rate, switches.worker, switches.fleet, switches.gate] {
        assert_eq!(mode.0, Mode::Shadow);
    }
    let warned: BTreeSet<_> =
        loaded.warnings.iter().map(|warning| (warning.code, warning.file.as_str())).collect();
    let expected = [("old_word", "TIDEGATE_SWITCHES_RATE"), ("old_word", "tidegate.yaml")];
    assert_eq!(warned, BTreeSet::from(expected));
    assert_eq!(loaded.warnings[0].hint.as_deref(), Some("write `shadow`"));
}

#[test]
fn variables_that_kubernetes_sets_for_services_are_not_taken_for_ours() {
    let loaded = loaded(&input(
        "",
        &[
            ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
            ("TIDEGATE_SERVICE_PORT_GRPC", "8081"),
            ("TIDEGATE_PORT", "tcp://10.0.0.1:8081"),
            ("TIDEGATE_PORT_8081_TCP_ADDR", "10.0.0.1"),
            ("TIDEGATE_DEBUG_SERVICE_PORT", "6070"),
            ("TIDEGATE_CONFIG", "tidegate.yaml"),
        ],
    ));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn anchors_and_merges_work_as_in_rule_files() {
    let file =
        "grpc:\n  tls: &tls {cert: a.pem, key: b.pem}\nhttp:\n  tls: {<<: *tls, key: c.pem}\n";
    let config = of_file(file).config;
    assert_eq!(config.grpc.tls.pair(), Some((&"a.pem".into(), &"b.pem".into())));
    assert_eq!(config.http.tls.pair(), Some((&"a.pem".into(), &"c.pem".into())));
}

#[test]
fn traces_over_http_go_to_the_port_for_http_unless_told() {
    let endpoint = |file| of_file(file).config.traces.endpoint.as_str().to_owned();
    assert_eq!(endpoint(""), "http://localhost:4317");
    assert_eq!(endpoint("traces: {protocol: http}"), "http://localhost:4318");
    assert_eq!(endpoint("traces: {protocol: http, endpoint: 'http://c:1'}"), "http://c:1");
}
