//! What becomes of upstream's variables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_app::config::{
    Compat, Config, Effect, ErrorCodes, LogFormat, LogLevel, OnRedisError, RulesFrom, StatsdFormat,
    TraceProtocol, VARIABLES, Weight,
};

use crate::config_cases::root;
use crate::resolved::{compat, compat_problems, field_paths, input, listen, loaded, notes};

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
    let newer = [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "STATSD_PROTOCOL",
        "USE_CALENDAR_MONTH_RATE_LIMIT",
    ];
    assert_eq!(more, newer);
}

#[test]
fn every_variable_that_sets_a_field_sets_one_that_exists() {
    let paths = field_paths();
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
        let Effect::Nothing(why) = variable.effect else { continue };
        let value = if variable.default.is_empty() { "1" } else { variable.default };
        let loaded = compat(&[(variable.name, value)]);
        let note = format!("{} has no effect: {why}", variable.name);
        let said = loaded.notes.iter().find(|other| other.message == note);
        assert_eq!(said.map(|said| said.weight), Some(Weight::Warning), "{note}");
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
    let options = config.rule_options();
    assert!(options.compat && !options.merge_domains && !options.calendar_months);
    let RulesFrom::Runtime { root, runtime } = config.rules.source() else { panic!("{config:?}") };
    assert_eq!(root.to_str(), Some("/srv/runtime_data/current"));
    assert_eq!(runtime.appdirectory.to_str(), Some("config"));
    assert!(runtime.watch_root && !runtime.ignore_dot_files);
    assert_eq!(listen(&loaded), ["0.0.0.0:8081", "0.0.0.0:8080", "127.0.0.1:6070"]);
    assert!(notes(&loaded)[0].contains("only this machine can connect to the debug port"));
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
        "`PORT`: 70000 is not a port\n --> PORT:1:1",
        "`GRPC_HOST`: `rls` is not an IP address",
        "`DEBUG_PORT`: `x` is not a whole number",
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
fn a_store_that_is_not_supported_is_an_error_that_says_what_to_do() {
    let said = compat_problems(&[("BACKEND_TYPE", "memcache")]);
    assert!(said.contains("counters in Memcached are not supported"), "{said}");
    assert!(said.contains("hint: set BACKEND_TYPE=redis and REDIS_URL"), "{said}");
    assert!(compat(&[]).notes.iter().all(|note| note.weight == Weight::Note));
    assert!(compat_problems(&[("BACKEND_TYPE", "etcd")]).contains("is not a store of counters"));
}

#[test]
fn upstreams_timeout_is_the_deadline_of_calls_and_of_connecting() {
    let of = |variables: &[(&str, &str)]| {
        let redis = compat(variables).config.store.redis;
        [redis.deadline, redis.connect_timeout]
    };
    assert_eq!(of(&[]), [Duration::from_secs(10); 2]);
    assert_eq!(of(&[("REDIS_TIMEOUT", "300ms")]), [Duration::from_millis(300); 2]);
    assert_eq!(of(&[("REDIS_TIMEOUT", "0")]), [Duration::from_secs(3_600); 2], "without end");
}

#[test]
fn under_compat_errors_of_redis_are_upstreams() {
    assert_eq!(compat(&[]).config.store.redis.on_error, OnRedisError::Upstream);
    let chosen = compat(&[("TIDEGATE_STORE_REDIS_ON_ERROR", "local")]);
    assert_eq!(chosen.config.store.redis.on_error, OnRedisError::Local);
    assert_eq!(Config::default().store.redis.on_error, OnRedisError::Local);
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

/// The field as `config show` prints it.
fn address(variables: &[(&str, &str)]) -> String {
    let statsd = compat(variables).config.statsd;
    statsd.address.map_or_else(|| "off".to_owned(), |address| address.get().to_string())
}

#[test]
fn statistics_are_sent_where_upstream_sends_them() {
    assert_eq!(address(&[]), "tcp://localhost:8125");
    assert_eq!(address(&[("USE_STATSD", "false")]), "off");
    assert_eq!(address(&[("DISABLE_STATS", "true")]), "off");
    assert_eq!(address(&[("STATSD_HOST", "agent"), ("STATSD_PORT", "9")]), "tcp://agent:9");
    assert_eq!(address(&[("STATSD_HOST", "::1"), ("STATSD_PROTOCOL", "udp")]), "udp://[::1]:8125");
    assert_eq!(address(&[("STATSD_HOST", "unix:///run/s")]), "unix:/run/s");
    assert_eq!(address(&[("USE_DOG_STATSD", "true")]), "udp://localhost:8125");
    assert_eq!(address(&[("USE_PROMETHEUS", "true")]), "off");
    let off = compat(&[("USE_STATSD", "0"), ("STATSD_HOST", "agent")]);
    assert!(notes(&off).contains(&"STATSD_HOST has no effect: USE_STATSD is not true"));
    let said = compat_problems(&[("STATSD_PROTOCOL", "sctp"), ("EXTRA_TAGS", "a=b")]);
    assert!(said.contains("`sctp` is not a protocol of statsd"), "{said}");
    assert!(said.contains("`a=b` is not a list of pairs"), "{said}");
}

#[test]
fn mogrifiers_are_read_from_their_own_variables() {
    let dog = [("USE_DOG_STATSD", "true"), ("USE_DOG_STATSD_MOGRIFIERS", "HITS")];
    let said = compat_problems(&dog);
    assert!(said.contains("no PATTERN specified for mogrifier HITS"), "{said}");
    let parts = [
        ("DOG_STATSD_MOGRIFIER_HITS_PATTERN", r"^a\.(.{1,3})$"),
        ("DOG_STATSD_MOGRIFIER_HITS_NAME", "a"),
        ("DOG_STATSD_MOGRIFIER_HITS_TAGS", "b:$1,c:d"),
    ];
    let loaded = compat(&[&dog[..], &parts[..]].concat());
    assert_eq!(loaded.config.statsd.mogrifiers.len(), 1);
    assert_eq!(loaded.config.statsd.format, StatsdFormat::DogStatsd);
}

#[test]
fn the_endpoint_of_all_signals_is_a_base_url() {
    let endpoint =
        |variables: &[(&str, &str)]| compat(variables).config.traces.endpoint.as_str().to_owned();
    let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/x/");
    assert_eq!(endpoint(&[base]), "http://c:4318/x/v1/traces");
    assert_eq!(endpoint(&[base, ("TRACING_EXPORTER_PROTOCOL", "gRPC")]), "http://c:4318/x/");
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/own");
    assert_eq!(endpoint(&[base, own]), "http://c:4318/own");
}
