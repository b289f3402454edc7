//! Where the shared store is, from our own file and from upstream's variables.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tidegate_app::config::{Flag, Input, KeyLayout, LoadedConfig, Redis, resolve};
use tidegate_rules::Source;

fn input(file: &str, variables: &[(&str, &str)]) -> Input {
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    Input {
        file: Some(Source::new("tidegate.yaml", file)),
        variables: variables.iter().map(own).collect(),
        flags: Vec::new(),
    }
}

fn loaded(input: &Input) -> LoadedConfig {
    resolve(input).unwrap_or_else(|report| panic!("{report}"))
}

fn compat(variables: &[(&str, &str)]) -> Redis {
    loaded(&input("compat: envoy-ratelimit\n", variables)).config.store.redis
}

fn problems(input: &Input) -> String {
    resolve(input).unwrap_err().to_string()
}

fn url(redis: &Redis) -> &str {
    redis.url.as_ref().map_or("off", |url| url.reveal())
}

#[test]
fn a_url_is_all_it_takes() {
    assert_eq!(url(&loaded(&input("", &[])).config.store.redis), "off");
    let of_file = loaded(&input("store: {redis: {url: 'redis://one:6379'}}\n", &[]));
    assert_eq!(url(&of_file.config.store.redis), "redis://one:6379");
    let mut with_flag = input("", &[("TIDEGATE_STORE_REDIS_URL", "redis://two")]);
    assert_eq!(url(&loaded(&with_flag).config.store.redis), "redis://two");
    let text = "redis-cluster://a:1,b:2".to_owned();
    with_flag.flags.push(Flag { name: "--redis", path: Some("store.redis.url"), text });
    assert_eq!(url(&loaded(&with_flag).config.store.redis), "redis-cluster://a:1,b:2");
}

#[test]
fn upstreams_variables_become_one_url() {
    let tcp = ("REDIS_SOCKET_TYPE", "tcp");
    assert_eq!(url(&compat(&[tcp, ("REDIS_URL", "redis:6379")])), "redis://redis:6379");
    let socket = [("REDIS_SOCKET_TYPE", "unix"), ("REDIS_URL", "/run/redis.sock")];
    assert_eq!(url(&compat(&socket)), "redis+unix:///run/redis.sock");
    let tls = [tcp, ("REDIS_URL", "redis:6380"), ("REDIS_TLS", "true")];
    assert_eq!(url(&compat(&tls)), "rediss://redis:6380");
    let cluster = [("REDIS_TYPE", "cluster"), ("REDIS_URL", "a:1,b:2")];
    assert_eq!(url(&compat(&cluster)), "redis-cluster://a:1,b:2");
    let sentinel = [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", "mymaster,a:1,b:2")];
    assert_eq!(url(&compat(&sentinel)), "redis-sentinel://a:1,b:2/mymaster");
    assert_eq!(url(&compat(&[])), "off");
}

#[test]
fn upstreams_other_settings_of_redis_are_taken_over() {
    let redis = compat(&[
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:6379"),
        ("REDIS_AUTH", "ada:pass:word"),
        ("CACHE_KEY_PREFIX", "shop:"),
        ("EXPIRATION_JITTER_MAX_SECONDS", "7"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_SOCKET_TYPE", "tcp"),
        ("REDIS_PERSECOND_URL", "fast:6379"),
        ("REDIS_PERSECOND_AUTH", "secret"),
    ]);
    assert_eq!(redis.layout, KeyLayout::EnvoyRatelimit);
    assert_eq!(redis.user.as_deref(), Some("ada"));
    assert_eq!(redis.password.as_ref().unwrap().reveal(), "pass:word");
    let upstream = &redis.upstream;
    assert_eq!(upstream.key_prefix.as_deref(), Some("shop:"));
    assert_eq!(upstream.expiration_jitter.as_secs(), 7);
    assert_eq!(upstream.per_second_url.as_ref().unwrap().reveal(), "redis://fast:6379");
    assert_eq!(upstream.per_second_user, None);
    assert_eq!(upstream.per_second_password.as_ref().unwrap().reveal(), "secret");
    let unused = compat(&[("REDIS_PERSECOND_URL", "fast:6379")]);
    assert_eq!(unused.upstream.per_second_url, None);
}

#[test]
fn without_compat_keys_are_our_own() {
    let own = loaded(&input("store: {redis: {url: 'redis://one'}}\n", &[]));
    assert_eq!(own.config.store.redis.layout, KeyLayout::Tidegate);
}

#[test]
fn what_is_no_store_is_said_with_what_would_be_right() {
    let said = problems(&input("store: {redis: {url: 'http://one'}}\n", &[]));
    assert!(said.contains("http:// is no store") && said.contains("hint"), "{said}");
    let kind = ("REDIS_TYPE", "RING");
    let said = problems(&input("compat: envoy-ratelimit\n", &[kind, ("REDIS_URL", "a:1")]));
    assert!(said.contains("`RING` is not a kind of Redis"), "{said}");
    let tls = "store: {redis: {url: 'redis://one', tls: {ca: ca.pem}}}\n";
    assert!(problems(&input(tls, &[])).contains("write `rediss://` in the URL"));
    let twice = "store: {redis: {url: 'redis://one', password: a, password_file: b}}\n";
    assert!(problems(&input(twice, &[])).contains("exclude each other"));
}

#[test]
fn a_password_is_in_no_message_and_in_no_listing() {
    let secret = "hunter2";
    let inputs = [
        input("store: {redis: {url: 'nonsense://ada:hunter2@one'}}\n", &[]),
        input("store: {redis: {password: hunter2, colour: red}}\n", &[]),
        input("colour: red\n", &[("TIDEGATE_STORE_REDIS_PASSWORD", secret)]),
        input("", &[("TIDEGATE_STORE_REDIS_URL", "nonsense://ada:hunter2@one")]),
        input("compat: envoy-ratelimit\nx: 1\n", &[("REDIS_AUTH", "ada:hunter2")]),
    ];
    for input in inputs {
        let report = resolve(&input).unwrap_err();
        assert!(!format!("{report}{report:?}").contains(secret), "{report}");
    }
    let file = "store: {redis: {url: 'redis://ada:hunter2@one:1/2?password=hunter2'}}\n";
    let loaded = loaded(&input(file, &[]));
    assert!(!format!("{loaded:?}").contains(secret));
    let shown = loaded.config.store.redis.url.unwrap().redacted();
    assert_eq!(shown, "redis://***@one:1/2?***");
}
