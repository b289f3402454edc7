//! The table of envoyproxy/ratelimit's variables: how each is parsed and what it does.

use self::Effect::{Nothing, Sets, Special};
use super::GoKind;
use super::GoKind::{
    Age, Bool, Duration, Float, Int, Level, Map, NotBool, Rate, Secret, Text, Word,
};

/// One environment variable of envoyproxy/ratelimit.
#[derive(Debug)]
pub struct Variable {
    /// The part of upstream that it belongs to.
    pub group: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Upstream's default; empty if there is none.
    pub default: &'static str,
    /// How its value is parsed.
    pub(in crate::config) kind: GoKind,
    /// What it does here.
    pub effect: Effect,
}

/// What a variable does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sets the field of this path.
    Sets(&'static str),
    /// A special effect, described here.
    Special(&'static str),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

const fn row(
    group: &'static str,
    name: &'static str,
    default: &'static str,
    kind: GoKind,
    effect: Effect,
) -> Variable {
    Variable { group, name, default, kind, effect }
}

const LISTENERS: &str = "Listeners";
const GRPC: &str = "gRPC server";
const LOGS: &str = "Logs";
const SOURCE: &str = "Source of rules";
const FILES: &str = "Files";
const XDS: &str = "xDS";
const STATISTICS: &str = "Statistics";
const LIMITER: &str = "Limiter";
const MODES: &str = "Modes";
const HEADERS: &str = "Header fields";
const HEALTH: &str = "Health";
const REDIS: &str = "Redis";
const PER_SECOND: &str = "Redis for limits per second";
const MEMCACHED: &str = "Memcached";
const TRACES: &str = "Traces";
const OTHERS: &str = "Others";

const NO_XDS: &str = "rules over xDS are not supported";
const BATCHED: &str = "calls are batched on few connections; see `store.redis.connections`";
const NO_WAIT: &str = "the service starts without Redis and connects as soon as Redis is available";
const NO_MEMCACHED: &str = "Memcached is not supported: set BACKEND_TYPE=redis and REDIS_URL";

/// Upstream's variables in the order of its documentation, then newer ones and those of OpenTelemetry.
#[rustfmt::skip]
pub static VARIABLES: &[Variable] = &[
    row(LISTENERS, "HOST", "0.0.0.0", Text, Special("`http.listen`, with PORT")),
    row(LISTENERS, "PORT", "8080", Int, Special("`http.listen`, with HOST")),
    row(LISTENERS, "DEBUG_HOST", "0.0.0.0", Text, Special("`debug.listen`, with DEBUG_PORT. Unlike upstream, only this machine can connect while it is not set. Switches need a token if other machines can connect")),
    row(LISTENERS, "DEBUG_PORT", "6070", Int, Special("`debug.listen`, with DEBUG_HOST")),
    row(LISTENERS, "GRPC_HOST", "0.0.0.0", Text, Special("`grpc.listen`, with GRPC_PORT")),
    row(LISTENERS, "GRPC_PORT", "8081", Int, Special("`grpc.listen`, with GRPC_HOST")),
    row(LISTENERS, "GRPC_UDS", "", Text, Special("`grpc.listen` as a Unix socket, instead of GRPC_HOST and GRPC_PORT")),

    row(GRPC, "GRPC_MAX_CONNECTION_AGE", "24h", Age, Sets("grpc.connection_age_max")),
    row(GRPC, "GRPC_MAX_CONNECTION_AGE_GRACE", "1h", Duration, Sets("grpc.connection_age_grace")),
    row(GRPC, "GRPC_SERVER_USE_TLS", "false", Bool, Special("enables the next four variables")),
    row(GRPC, "GRPC_SERVER_TLS_CERT", "", Text, Special("`grpc.tls.cert`, with GRPC_SERVER_USE_TLS")),
    row(GRPC, "GRPC_SERVER_TLS_KEY", "", Text, Special("`grpc.tls.key`, with GRPC_SERVER_USE_TLS")),
    row(GRPC, "GRPC_CLIENT_TLS_CACERT", "", Text, Special("`grpc.tls.client_ca`, with GRPC_SERVER_USE_TLS")),
    row(GRPC, "GRPC_CLIENT_TLS_SAN", "", Text, Special("`grpc.tls.client_san`, with GRPC_SERVER_USE_TLS")),

    row(LOGS, "LOG_LEVEL", "WARN", Level, Sets("log.level")),
    row(LOGS, "LOG_FORMAT", "text", Word, Sets("log.format")),

    row(SOURCE, "CONFIG_TYPE", "FILE", Text, Special("`FILE` is the only source; `GRPC_XDS_SOTW` is an error, because rules over xDS are not supported")),
    row(SOURCE, "FORCE_START_WITHOUT_INITIAL_CONFIG", "false", Bool, Special("`true` sets `rules.required` to `false`, the default under compat")),
    row(SOURCE, "MERGE_DOMAIN_CONFIG", "false", Bool, Sets("rules.merge_domains")),

    row(FILES, "RUNTIME_ROOT", "/srv/runtime_data/current", Text, Sets("rules.runtime.root")),
    row(FILES, "RUNTIME_SUBDIRECTORY", "", Text, Sets("rules.runtime.subdirectory")),
    row(FILES, "RUNTIME_APPDIRECTORY", "config", Text, Sets("rules.runtime.appdirectory")),
    row(FILES, "RUNTIME_IGNOREDOTFILES", "false", Bool, Sets("rules.runtime.ignore_dot_files")),
    row(FILES, "RUNTIME_WATCH_ROOT", "true", Bool, Sets("rules.runtime.watch_root")),

    row(XDS, "CONFIG_GRPC_XDS_NODE_ID", "default", Text, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_NODE_METADATA", "", Text, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", Text, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", Duration, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", Text, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", Bool, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", Text, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", Text, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", Text, Nothing(NO_XDS)),
    row(XDS, "CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", Text, Nothing(NO_XDS)),
    row(XDS, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", Duration, Nothing(NO_XDS)),
    row(XDS, "XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", Duration, Nothing(NO_XDS)),
    row(XDS, "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", Float, Nothing(NO_XDS)),
    row(XDS, "XDS_CLIENT_BACKOFF_JITTER", "true", Bool, Nothing(NO_XDS)),
    row(XDS, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "", Int, Nothing(NO_XDS)),

    row(STATISTICS, "USE_STATSD", "true", Bool, Special("`true`, the default, sends statistics to STATSD_HOST; `statsd.address`. `false` does not write them to standard output")),
    row(STATISTICS, "STATSD_HOST", "localhost", Text, Special("`statsd.address`, with STATSD_PORT. Here it can be a Unix socket too: `unix:PATH`")),
    row(STATISTICS, "STATSD_PORT", "8125", Int, Special("`statsd.address`, with STATSD_HOST")),
    row(STATISTICS, "STATSD_PROTOCOL", "tcp", Text, Special("`tcp` or `udp`: the protocol of `statsd.address`. DogStatsD is always sent by `udp`")),
    row(STATISTICS, "USE_DOG_STATSD", "false", Bool, Special("`true` sends DogStatsD instead; `statsd.format`")),
    row(STATISTICS, "USE_DOG_STATSD_MOGRIFIERS", "", Text, Special("`statsd.mogrifiers`: names of rewrites, each with DOG_STATSD_MOGRIFIER_NAME_PATTERN, DOG_STATSD_MOGRIFIER_NAME_NAME and DOG_STATSD_MOGRIFIER_NAME_TAGS")),
    row(STATISTICS, "USE_PROMETHEUS", "false", Bool, Special("`true` serves upstream's metrics at PROMETHEUS_ADDR, followed by ours")),
    row(STATISTICS, "PROMETHEUS_ADDR", ":9090", Text, Special("`debug.metrics_listen`, with USE_PROMETHEUS")),
    row(STATISTICS, "PROMETHEUS_PATH", "/metrics", Text, Special("`debug.metrics_path`, with USE_PROMETHEUS")),
    row(STATISTICS, "PROMETHEUS_MAPPER_YAML", "", Text, Special("`debug.upstream_metrics.mapping`, with USE_PROMETHEUS. A file with an error is refused")),
    row(STATISTICS, "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", Bool, Sets("debug.upstream_metrics.milliseconds")),
    row(STATISTICS, "EXTRA_TAGS", "", Map, Special("`statsd.tags`, also part of upstream's Prometheus names")),
    row(STATISTICS, "STATS_FLUSH_INTERVAL", "10s", Duration, Sets("statsd.flush_interval")),
    row(STATISTICS, "DISABLE_STATS", "false", Bool, Special("`true` sends no statistics, and does not serve PROMETHEUS_ADDR")),

    row(LIMITER, "BACKEND_TYPE", "redis", Text, Special("`redis` uses Redis if REDIS_URL is set; `memcache` is an error, because counters of one process would allow every replica the whole limit")),
    row(LIMITER, "EXPIRATION_JITTER_MAX_SECONDS", "300", Int, Special("`store.redis.upstream.expiration_jitter`")),
    row(LIMITER, "LOCAL_CACHE_SIZE_IN_BYTES", "0", Int, Nothing("keys over their limit are always cached, in bounded memory")),
    row(LIMITER, "NEAR_LIMIT_RATIO", "0.8", Float, Sets("limiter.near_limit_ratio")),
    row(LIMITER, "CACHE_KEY_PREFIX", "", Text, Sets("store.redis.upstream.key_prefix")),
    row(LIMITER, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false", NotBool, Sets("rules.charge_refused")),

    row(MODES, "SHADOW_MODE", "false", Bool, Sets("limiter.shadow")),
    row(MODES, "QUOTA_MODE", "false", Bool, Sets("limiter.quota")),
    row(MODES, "RESPONSE_DYNAMIC_METADATA", "false", Bool, Sets("limiter.dynamic_metadata")),

    row(HEADERS, "LIMIT_RESPONSE_HEADERS_ENABLED", "false", Bool, Sets("limiter.response_headers.enabled")),
    row(HEADERS, "LIMIT_LIMIT_HEADER", "RateLimit-Limit", Text, Sets("limiter.response_headers.limit")),
    row(HEADERS, "LIMIT_REMAINING_HEADER", "RateLimit-Remaining", Text, Sets("limiter.response_headers.remaining")),
    row(HEADERS, "LIMIT_RESET_HEADER", "RateLimit-Reset", Text, Sets("limiter.response_headers.reset")),

    row(HEALTH, "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false", Bool, Sets("health.needs_rules")),
    row(HEALTH, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false", Bool, Sets("health.needs_store")),

    row(REDIS, "REDIS_SOCKET_TYPE", "unix", Text, Special("`tcp` or `unix`: the kind of address in REDIS_URL")),
    row(REDIS, "REDIS_TYPE", "SINGLE", Text, Special("`SINGLE`, `SENTINEL` or `CLUSTER`: the kind of servers in REDIS_URL")),
    row(REDIS, "REDIS_URL", "/var/run/nutcracker/ratelimit.sock", Text, Special("`store.redis.url`; if it is not set, counters are kept in memory")),
    row(REDIS, "REDIS_POOL_SIZE", "10", Int, Nothing(BATCHED)),
    row(REDIS, "REDIS_AUTH", "", Secret, Special("`store.redis.password`; `USER:PASSWORD` sets `store.redis.user` too")),
    row(REDIS, "REDIS_SENTINEL_AUTH", "", Secret, Special("like REDIS_AUTH, for `store.redis.sentinel`")),
    row(REDIS, "REDIS_TLS", "false", Bool, Special("`true` connects with TLS")),
    row(REDIS, "REDIS_TLS_CLIENT_CERT", "", Text, Sets("store.redis.tls.cert")),
    row(REDIS, "REDIS_TLS_CLIENT_KEY", "", Text, Sets("store.redis.tls.key")),
    row(REDIS, "REDIS_TLS_CACERT", "", Text, Sets("store.redis.tls.ca")),
    row(REDIS, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", NotBool, Sets("store.redis.tls.verify_name")),
    row(REDIS, "REDIS_PIPELINE_WINDOW", "0", Duration, Nothing(BATCHED)),
    row(REDIS, "REDIS_PIPELINE_LIMIT", "0", Int, Nothing(BATCHED)),
    row(REDIS, "REDIS_CLUSTER_PIPELINE_PARALLELISM", "1", Int, Nothing(BATCHED)),
    row(REDIS, "REDIS_TIMEOUT", "10s", Duration, Special("`store.redis.deadline` and `store.redis.connect_timeout`")),
    row(REDIS, "REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, Nothing(BATCHED)),
    row(REDIS, "REDIS_STARTUP_INITIAL_INTERVAL", "1s", Duration, Nothing(NO_WAIT)),
    row(REDIS, "REDIS_STARTUP_MAX_INTERVAL", "30s", Duration, Nothing(NO_WAIT)),
    row(REDIS, "REDIS_STARTUP_MAX_ELAPSED_TIME", "0", Duration, Nothing(NO_WAIT)),

    row(PER_SECOND, "REDIS_PERSECOND", "false", Bool, Special("enables the variables that follow")),
    row(PER_SECOND, "REDIS_PERSECOND_SOCKET_TYPE", "unix", Text, Special("like REDIS_SOCKET_TYPE, for REDIS_PERSECOND_URL")),
    row(PER_SECOND, "REDIS_PERSECOND_TYPE", "SINGLE", Text, Special("like REDIS_TYPE, for REDIS_PERSECOND_URL")),
    row(PER_SECOND, "REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock", Text, Special("`store.redis.upstream.per_second_url`, with REDIS_PERSECOND")),
    row(PER_SECOND, "REDIS_PERSECOND_POOL_SIZE", "10", Int, Nothing(BATCHED)),
    row(PER_SECOND, "REDIS_PERSECOND_AUTH", "", Secret, Special("`store.redis.upstream.per_second_password`; `USER:PASSWORD` sets `per_second_user` too")),
    row(PER_SECOND, "REDIS_PERSECOND_SENTINEL_AUTH", "", Secret, Nothing("use `?sentinel_password=` in `store.redis.upstream.per_second_url`")),
    row(PER_SECOND, "REDIS_PERSECOND_TLS", "false", Bool, Special("`true` connects with TLS")),
    row(PER_SECOND, "REDIS_PERSECOND_PIPELINE_WINDOW", "0", Duration, Nothing(BATCHED)),
    row(PER_SECOND, "REDIS_PERSECOND_PIPELINE_LIMIT", "0", Int, Nothing(BATCHED)),
    row(PER_SECOND, "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", Int, Nothing(BATCHED)),
    row(PER_SECOND, "REDIS_PERSECOND_TIMEOUT", "10s", Duration, Nothing("REDIS_TIMEOUT applies to both")),
    row(PER_SECOND, "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, Nothing(BATCHED)),

    row(MEMCACHED, "MEMCACHE_HOST_PORT", "", Text, Nothing(NO_MEMCACHED)),
    row(MEMCACHED, "MEMCACHE_SRV", "", Text, Nothing(NO_MEMCACHED)),
    row(MEMCACHED, "MEMCACHE_SRV_REFRESH", "0", Duration, Nothing(NO_MEMCACHED)),
    row(MEMCACHED, "MEMCACHE_MAX_IDLE_CONNS", "2", Int, Nothing(NO_MEMCACHED)),
    row(MEMCACHED, "MEMCACHE_TLS", "false", Bool, Nothing(NO_MEMCACHED)),
    row(MEMCACHED, "MEMCACHE_TLS_CLIENT_CERT", "", Text, Nothing(NO_MEMCACHED)),
    row(MEMCACHED, "MEMCACHE_TLS_CLIENT_KEY", "", Text, Nothing(NO_MEMCACHED)),
    row(MEMCACHED, "MEMCACHE_TLS_CACERT", "", Text, Nothing(NO_MEMCACHED)),
    row(MEMCACHED, "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", Bool, Nothing(NO_MEMCACHED)),

    row(TRACES, "TRACING_ENABLED", "false", Bool, Sets("traces.enabled")),
    row(TRACES, "TRACING_EXPORTER_PROTOCOL", "http", Word, Sets("traces.protocol")),
    row(TRACES, "TRACING_SERVICE_NAME", "RateLimit", Text, Sets("traces.service_name")),
    row(TRACES, "TRACING_SERVICE_NAMESPACE", "", Text, Sets("traces.service_namespace")),
    row(TRACES, "TRACING_SERVICE_INSTANCE_ID", "", Text, Sets("traces.service_instance_id")),
    row(TRACES, "TRACING_SAMPLING_RATE", "1", Rate, Sets("traces.sampling_percent")),

    row(OTHERS, "OTEL_EXPORTER_OTLP_ENDPOINT", "", Text, Special("`traces.endpoint`; over HTTP, `/v1/traces` is added to its path")),
    row(OTHERS, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", Text, Special("`traces.endpoint` as it is; wins over OTEL_EXPORTER_OTLP_ENDPOINT")),
    row(OTHERS, "USE_CALENDAR_MONTH_RATE_LIMIT", "false", Bool, Sets("rules.calendar_months")),
];
