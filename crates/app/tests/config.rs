//! The configuration: layers, origins, what is refused, compat, schema and documents.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/config_cases.rs"]
mod config_cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use config_cases::{cases, documents, root, say};
use proptest::prelude::*;
use serde_json::Value;
use tidegate::config::{
    Compat, Config, Effect, Entry, ErrorCodes, Flag, Input, Loaded, LogFormat, LogLevel, Origin,
    RulesFrom, TraceProtocol, VARIABLES, Weight, Workers, resolve, schema, variable_of,
};
use tidegate_rules::Source;

/// A file and variables.
fn input(file: &str, variables: &[(&str, &str)]) -> Input {
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    Input {
        file: Some(Source::new("tidegate.yaml", file)),
        variables: variables.iter().map(own).collect(),
        flags: Vec::new(),
    }
}

fn set(text: &str) -> Flag {
    Flag { name: "--set", path: None, text: text.to_owned() }
}

fn loaded(input: &Input) -> Loaded {
    resolve(input).unwrap_or_else(|report| panic!("{report}"))
}

/// What comes of a file alone.
fn of_file(file: &str) -> Loaded {
    loaded(&input(file, &[]))
}

/// What comes of upstream's variables.
fn compat(variables: &[(&str, &str)]) -> Loaded {
    loaded(&input("compat: envoy-ratelimit\n", variables))
}

/// Everything that is wrong with upstream's variables.
fn compat_problems(variables: &[(&str, &str)]) -> String {
    resolve(&input("compat: envoy-ratelimit\n", variables)).unwrap_err().to_string()
}

fn listen(loaded: &Loaded) -> [String; 3] {
    let Config { grpc, http, debug, .. } = &loaded.config;
    [&grpc.listen, &http.listen, &debug.listen]
        .map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

fn notes(loaded: &Loaded) -> Vec<&str> {
    loaded.notes.iter().map(|note| note.message.as_str()).collect()
}

// Layers.

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
        assert!(variables.insert(field.variable()), "{} is ambiguous", field.variable());
        if field.default.is_empty() {
            continue;
        }
        let loaded = loaded(&input("", &[(&field.variable(), field.default)]));
        assert_eq!(loaded.origins[&field.path], Origin::Variable(field.variable()));
        assert!(loaded.warnings.is_empty());
        let text = format!("{}={}", field.path, field.default);
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

// What is refused.

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

// Compat.

#[test]
fn every_variable_of_upstream_is_known_exactly_once() {
    let data = root().join("crates/app/tests/data/upstream-variables.txt");
    let text = fs::read_to_string(data).unwrap();
    let expected: BTreeSet<&str> = text.lines().collect();
    assert_eq!(expected.len(), 114);
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for variable in VARIABLES {
        *times.entry(variable.name).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    let known: BTreeSet<&str> = times.keys().copied().collect();
    let missing: Vec<_> = expected.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let more: Vec<_> = known.difference(&expected).copied().collect();
    assert_eq!(more, ["OTEL_EXPORTER_OTLP_ENDPOINT", "USE_CALENDAR_MONTH_RATE_LIMIT"]);
}

#[test]
fn every_variable_that_sets_a_field_sets_one_that_exists() {
    let mut config = Config::default();
    let paths: BTreeSet<String> = config
        .entries()
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Field(field) => Some(field.path),
            Entry::Section { .. } => None,
        })
        .collect();
    for variable in VARIABLES {
        if let Effect::Sets(path) = variable.effect {
            assert!(paths.contains(path), "{} sets {path}", variable.name);
        }
    }
}

#[test]
fn every_variable_takes_the_default_of_upstream() {
    for variable in VARIABLES.iter().filter(|variable| !variable.default.is_empty()) {
        compat(&[(variable.name, variable.default)]);
    }
}

#[test]
fn every_variable_without_effect_is_said_with_the_reason() {
    let mut without = 0;
    for variable in VARIABLES {
        let Effect::None(why) = variable.effect else { continue };
        let value = if variable.default.is_empty() { "1" } else { variable.default };
        let value = if variable.name == "EXTRA_TAGS" { "a:b" } else { value };
        let loaded = compat(&[(variable.name, value)]);
        let note = format!("{} has no effect: {why}", variable.name);
        assert!(notes(&loaded).contains(&note.as_str()), "{note}");
        without += 1;
    }
    assert!(without > 30, "{without}");
}

#[test]
fn variables_of_upstream_mean_nothing_without_compat() {
    let loaded = loaded(&input("", &[("PORT", "nonsense"), ("REDIS_URL", "redis:6379")]));
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.notes.is_empty());
}

#[test]
fn compat_brings_the_defaults_of_upstream() {
    let loaded = compat(&[]);
    let config = &loaded.config;
    assert_eq!(config.compat, Compat::EnvoyRatelimit);
    assert_eq!((config.log.level, config.log.format), (LogLevel::Warn, LogFormat::Text));
    assert_eq!(config.grpc.connection_age_max, Some(Duration::from_secs(24 * 3_600)));
    assert_eq!(config.limiter.error_codes, ErrorCodes::Unknown);
    assert_eq!(config.traces.protocol, TraceProtocol::Http);
    assert_eq!(config.traces.endpoint.as_str(), "http://localhost:4318");
    assert_eq!(config.traces.service_name, "RateLimit");
    assert!(!config.rules.required);
    let options = config.rules.options();
    assert!(options.compat && !options.merge_domains && !options.calendar_months);
    let RulesFrom::Runtime { root, runtime } = config.rules.source() else { panic!("{config:?}") };
    assert_eq!(root.to_str(), Some("/srv/runtime_data/current"));
    assert_eq!(runtime.appdirectory.to_str(), Some("config"));
    assert!(runtime.watch_root && !runtime.ignore_dot_files);
    assert_eq!(listen(&loaded), ["0.0.0.0:8081", "0.0.0.0:8080", "127.0.0.1:6070"]);
    assert!(notes(&loaded)[0].contains("only this machine can reach the debug port"));
}

#[test]
fn hosts_and_ports_of_upstream_become_listeners() {
    let loaded = compat(&[
        ("HOST", "127.0.0.1"),
        ("GRPC_PORT", "9081"),
        ("DEBUG_HOST", "localhost"),
        ("DEBUG_PORT", "7070"),
    ]);
    assert_eq!(listen(&loaded), ["0.0.0.0:9081", "127.0.0.1:8080", "127.0.0.1:7070"]);
    assert_eq!(loaded.origins["http.listen"].to_string(), "HOST");
    let socket = compat(&[("GRPC_UDS", "/run/rls.sock"), ("GRPC_PORT", "9081"), ("HOST", "::1")]);
    assert_eq!(listen(&socket)[..2], ["unix:/run/rls.sock", "[::1]:8080"]);
    let said = compat_problems(&[("PORT", "70000"), ("GRPC_HOST", "rls"), ("DEBUG_PORT", "x")]);
    for part in [
        "`PORT`: 70000 is no port\n --> PORT:1:1",
        "`GRPC_HOST`: `rls` is no IP address",
        "`DEBUG_PORT`: `x` is no whole number",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert_eq!(said.matches("error[").count(), 3, "{said}");
}

#[test]
fn an_open_debug_host_serves_pages_and_no_switches() {
    let loaded = compat(&[("DEBUG_HOST", "0.0.0.0")]);
    assert_eq!(listen(&loaded)[2], "0.0.0.0:6070");
    assert!(!loaded.config.debug.switches_are_on());
    assert!(notes(&loaded)[0].contains("its switches are off"), "{:?}", loaded.notes);
    let token = ("TIDEGATE_DEBUG_TOKEN", "long enough for this");
    let with_token = compat(&[("DEBUG_HOST", "0.0.0.0"), token]);
    assert!(with_token.config.debug.switches_are_on() && with_token.notes.is_empty());
}

#[test]
fn our_own_layers_win_over_upstreams_variables() {
    let file = "compat: envoy-ratelimit\nhttp: {listen: '127.0.0.1:1'}\nrules: {paths: [r]}\n";
    let loaded = loaded(&input(file, &[("PORT", "2"), ("RUNTIME_ROOT", "/data")]));
    assert_eq!(listen(&loaded)[1], "127.0.0.1:1");
    assert_eq!(loaded.config.rules.source(), RulesFrom::Paths(&[PathBuf::from("r")]));
    assert!(notes(&loaded).contains(&"RUNTIME_ROOT has no effect: `rules.paths` is set"));
}

#[test]
fn upstreams_switches_reach_their_fields() {
    let loaded = compat(&[
        ("SHADOW_MODE", "T"),
        ("QUOTA_MODE", "1"),
        ("NEAR_LIMIT_RATIO", "0.75"),
        ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true"),
        ("MERGE_DOMAIN_CONFIG", "TRUE"),
        ("USE_CALENDAR_MONTH_RATE_LIMIT", "true"),
        ("GRPC_MAX_CONNECTION_AGE", "1h30m"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
        ("TRACING_SAMPLING_RATE", "0.05"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
    ]);
    let Config { limiter, rules, grpc, traces, health, .. } = &loaded.config;
    assert!(limiter.shadow && limiter.quota && health.needs_rules);
    assert_eq!(limiter.near_limit_ratio.millionths(), 750_000);
    assert!(!rules.charge_refused && rules.merge_domains && rules.calendar_months);
    assert_eq!(grpc.connection_age_max, Some(Duration::from_secs(5_400)));
    assert_eq!(limiter.response_headers.reset.as_str(), "X-Reset");
    assert_eq!(traces.sampling_percent.millionths(), 50_000);
    assert_eq!(rules.runtime.subdirectory, Some("ratelimit".into()));
    let for_ever = compat(&[("GRPC_MAX_CONNECTION_AGE", "0")]);
    assert_eq!(for_ever.config.grpc.connection_age_max, None);
}

#[test]
fn upstreams_tls_needs_its_switch_and_both_files() {
    let files = [("GRPC_SERVER_TLS_CERT", "c.pem"), ("GRPC_SERVER_TLS_KEY", "k.pem")];
    let off = compat(&files);
    assert_eq!(off.config.grpc.tls.pair(), None);
    let note = "GRPC_SERVER_TLS_CERT has no effect: GRPC_SERVER_USE_TLS is not true";
    assert!(notes(&off).contains(&note));
    let on = compat(&[files[0], files[1], ("GRPC_SERVER_USE_TLS", "true")]);
    assert_eq!(on.config.grpc.tls.pair(), Some((&"c.pem".into(), &"k.pem".into())));
    let said = compat_problems(&[files[0], ("GRPC_SERVER_USE_TLS", "true")]);
    assert!(said.contains("TLS is on, but GRPC_SERVER_TLS_KEY is not set"), "{said}");
}

#[test]
fn a_store_that_is_not_there_is_a_loud_warning() {
    let loaded = compat(&[("BACKEND_TYPE", "memcache")]);
    let loud: Vec<_> = loaded.notes.iter().filter(|note| note.weight == Weight::Warning).collect();
    assert_eq!(loud.len(), 1, "{loud:?}");
    assert!(loud[0].message.contains("every process limits for itself"), "{loud:?}");
    assert!(compat(&[]).notes.iter().all(|note| note.weight == Weight::Note));
    assert!(compat_problems(&[("BACKEND_TYPE", "etcd")]).contains("is no store of counters"));
}

#[test]
fn rules_over_xds_are_an_error_that_says_what_to_do() {
    let said = compat_problems(&[("CONFIG_TYPE", "GRPC_XDS_SOTW")]);
    assert!(said.contains("rules over xDS are not supported"), "{said}");
    assert!(said.contains("hint: write the rules to files"), "{said}");
    compat(&[("CONFIG_TYPE", "FILE")]);
}

#[test]
fn upstreams_prometheus_is_a_further_listener() {
    let on = compat(&[("USE_PROMETHEUS", "true"), ("PROMETHEUS_PATH", "/m")]);
    assert_eq!(on.config.debug.metrics_listen[0].to_string(), "0.0.0.0:9090");
    assert_eq!(on.config.debug.metrics_path.as_str(), "/m");
    let off = compat(&[("PROMETHEUS_ADDR", ":9102")]);
    assert!(off.config.debug.metrics_listen.is_empty());
    assert!(notes(&off).contains(&"PROMETHEUS_ADDR has no effect: USE_PROMETHEUS is not true"));
}

#[test]
fn bad_values_of_upstream_are_errors_that_name_the_variable() {
    for (name, value) in [
        ("SHADOW_MODE", "yes"),
        ("REDIS_TLS", "on"),
        ("REDIS_TIMEOUT", "10"),
        ("STATS_FLUSH_INTERVAL", "ten seconds"),
        ("REDIS_POOL_SIZE", "many"),
        ("NEAR_LIMIT_RATIO", "1.5"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("LIMIT_LIMIT_HEADER", "a b"),
        ("TRACING_SAMPLING_RATE", "2"),
        ("EXTRA_TAGS", "nothing"),
        ("PORT", "tcp://10.0.0.1:80"),
    ] {
        let said = compat_problems(&[(name, value)]);
        assert!(said.contains(&format!(" --> {name}:1:1\n")), "{said}");
        assert_eq!(said.matches("error[").count(), 1, "{said}");
    }
}

// Schema and documents.

fn json(yaml: &str) -> Option<Value> {
    serde_saphyr::from_str(yaml).ok()
}

#[test]
fn the_schema_is_a_valid_one_and_lists_exactly_the_fields() {
    let schema = schema();
    assert!(jsonschema::meta::is_valid(&schema));
    let mut listed = BTreeSet::new();
    let mut open = vec![(String::new(), &schema)];
    while let Some((path, part)) = open.pop() {
        match part["properties"].as_object() {
            Some(properties) => {
                assert_eq!(part["additionalProperties"], false, "{path}");
                for (name, below) in properties {
                    let dot = if path.is_empty() { "" } else { "." };
                    open.push((format!("{path}{dot}{name}"), below));
                }
            }
            None => assert!(listed.insert(path)),
        }
        assert!(part["description"].as_str().unwrap().len() > 8);
    }
    let mut config = Config::default();
    let known: BTreeSet<String> = config
        .entries()
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Field(field) => Some(field.path),
            Entry::Section { .. } => None,
        })
        .collect();
    assert_eq!(listed, known);
}

#[test]
fn the_schema_accepts_what_is_right_and_refuses_what_is_wrong() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let example = tidegate::config::example();
    let accepted = |text: &str| validator.is_valid(&json(text).unwrap());
    assert!(accepted(&example));
    assert!(accepted(&uncommented(&example)), "{}", uncommented(&example));
    assert!(accepted("limiter: {near_limit_ratio: 80%}\ndebug: {switches: off}\nworkers: 3\n"));
    // What only the reader knows: several fields together, bounds with units, the
    // inside of addresses.
    let beyond = [
        "addresses_that_collide",
        "address_taken_by_a_default",
        "certificate_without_key",
        "client_name_without_authority",
        "debug_open_without_token",
        "debug_switches_open_without_token",
        "duplicate_header_field",
        "duration_beyond_all_bounds",
        "nothing_to_serve",
        "rules_from_two_places",
        "rules_from_nowhere",
        "token_hidden",
        "tokens_from_two_places",
    ];
    let mut refused = 0;
    for case in cases() {
        let Some(value) = json(&case.text) else { continue };
        let expected = beyond.contains(&case.name.as_str());
        assert_eq!(validator.is_valid(&value), expected, "{}", case.name);
        refused += usize::from(!expected);
    }
    assert!(refused > 15, "{refused}");
}

/// The example with every field in force.
fn uncommented(example: &str) -> String {
    let body = example.split_once("\n\n").unwrap().1;
    let line = |line: &str| match line.trim_start().strip_prefix("# ") {
        Some(field) => format!("{}{field}\n", &line[..line.len() - field.len() - 2]),
        None => format!("{line}\n"),
    };
    body.lines().map(line).collect()
}

#[test]
fn the_example_changes_nothing_and_shows_every_field() {
    let example = tidegate::config::example();
    assert_eq!(of_file(&example).config, Config::default());
    let loaded = of_file(&uncommented(&example));
    assert_eq!(loaded.config, Config::default());
    let from_file = |origin: &Origin| matches!(origin, Origin::File { .. });
    assert!(loaded.origins.values().all(from_file), "{:?}", loaded.origins);
}

#[test]
fn the_documents_are_what_the_declaration_says() {
    for (path, text) in documents() {
        let written = fs::read_to_string(root().join(path)).unwrap();
        let bless = "cargo run -p tidegate --example bless_config";
        assert!(written == text, "{path} is out of date: `{bless}`");
    }
}

// Hostile input.

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
