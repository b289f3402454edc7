//! Every variable of envoyproxy/ratelimit, once: how it is read and what it does.

use super::GoKind;
use super::GoKind::{
    Age, Bool, Duration, Float, Int, Level, Map, NotBool, Rate, Secret, Text, Word,
};

/// One environment variable of envoyproxy/ratelimit.
#[derive(Debug)]
pub struct Variable {
    /// Which part of upstream it belongs to.
    pub group: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Upstream's default; empty when there is none.
    pub default: &'static str,
    /// How its value is read.
    pub(in crate::config) kind: GoKind,
    /// What it does here.
    pub effect: Effect,
}

/// What a variable does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sets the field of this path.
    Sets(&'static str),
    /// Something of its own.
    Special(&'static str),
    /// Nothing, for this reason.
    None(&'static str),
}

const fn sets(
    group: &'static str,
    name: &'static str,
    default: &'static str,
    kind: GoKind,
    path: &'static str,
) -> Variable {
    Variable { group, name, default, kind, effect: Effect::Sets(path) }
}

const fn special(
    group: &'static str,
    name: &'static str,
    default: &'static str,
    kind: GoKind,
    about: &'static str,
) -> Variable {
    Variable { group, name, default, kind, effect: Effect::Special(about) }
}

const fn none(
    group: &'static str,
    name: &'static str,
    default: &'static str,
    kind: GoKind,
    why: &'static str,
) -> Variable {
    Variable { group, name, default, kind, effect: Effect::None(why) }
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
const BESIDE: &str = "Beside these";

const NO_XDS: &str = "it has a meaning only for rules over xDS, which are not supported";
const NO_STATSD: &str = "nothing is sent to statsd; metrics are served at `/metrics`";
const ONE_CALL: &str =
    "what waits for Redis goes out together, on few connections; see `store.redis.connections`";
const AT_ONCE: &str = "the service starts without Redis, and finds it when it comes";
const NO_MEMCACHED: &str =
    "this version keeps counters in its own memory and does not use Memcached";

/// Upstream's variables in the order of its documentation, then those that are
/// newer or not its own.
#[rustfmt::skip]
pub static VARIABLES: &[Variable] = &[
    special(LISTENERS, "HOST", "0.0.0.0", Text, "with PORT it is `http.listen`"),
    special(LISTENERS, "PORT", "8080", Int, "with HOST it is `http.listen`"),
    special(LISTENERS, "DEBUG_HOST", "0.0.0.0", Text, "with DEBUG_PORT it is `debug.listen`; while it is not set, only this machine can reach the port, unlike upstream; switches beyond this machine need a token"),
    special(LISTENERS, "DEBUG_PORT", "6070", Int, "with DEBUG_HOST it is `debug.listen`"),
    special(LISTENERS, "GRPC_HOST", "0.0.0.0", Text, "with GRPC_PORT it is `grpc.listen`"),
    special(LISTENERS, "GRPC_PORT", "8081", Int, "with GRPC_HOST it is `grpc.listen`"),
    special(LISTENERS, "GRPC_UDS", "", Text, "`grpc.listen`, as a Unix socket instead of GRPC_HOST and GRPC_PORT"),

    sets(GRPC, "GRPC_MAX_CONNECTION_AGE", "24h", Age, "grpc.connection_age_max"),
    sets(GRPC, "GRPC_MAX_CONNECTION_AGE_GRACE", "1h", Duration, "grpc.connection_age_grace"),
    special(GRPC, "GRPC_SERVER_USE_TLS", "false", Bool, "turns on the four variables that follow"),
    special(GRPC, "GRPC_SERVER_TLS_CERT", "", Text, "`grpc.tls.cert`, with GRPC_SERVER_USE_TLS"),
    special(GRPC, "GRPC_SERVER_TLS_KEY", "", Text, "`grpc.tls.key`, with GRPC_SERVER_USE_TLS"),
    special(GRPC, "GRPC_CLIENT_TLS_CACERT", "", Text, "`grpc.tls.client_ca`, with GRPC_SERVER_USE_TLS"),
    special(GRPC, "GRPC_CLIENT_TLS_SAN", "", Text, "`grpc.tls.client_san`, with GRPC_SERVER_USE_TLS"),

    sets(LOGS, "LOG_LEVEL", "WARN", Level, "log.level"),
    sets(LOGS, "LOG_FORMAT", "text", Word, "log.format"),

    special(SOURCE, "CONFIG_TYPE", "FILE", Text, "`FILE` is what is done; `GRPC_XDS_SOTW` is an error: rules over xDS are not supported"),
    special(SOURCE, "FORCE_START_WITHOUT_INITIAL_CONFIG", "false", Bool, "`true` sets `rules.required` to `false`, which is the default under compat"),
    sets(SOURCE, "MERGE_DOMAIN_CONFIG", "false", Bool, "rules.merge_domains"),

    sets(FILES, "RUNTIME_ROOT", "/srv/runtime_data/current", Text, "rules.runtime.root"),
    sets(FILES, "RUNTIME_SUBDIRECTORY", "", Text, "rules.runtime.subdirectory"),
    sets(FILES, "RUNTIME_APPDIRECTORY", "config", Text, "rules.runtime.appdirectory"),
    sets(FILES, "RUNTIME_IGNOREDOTFILES", "false", Bool, "rules.runtime.ignore_dot_files"),
    sets(FILES, "RUNTIME_WATCH_ROOT", "true", Bool, "rules.runtime.watch_root"),

    none(XDS, "CONFIG_GRPC_XDS_NODE_ID", "default", Text, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_NODE_METADATA", "", Text, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", Text, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", Duration, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", Text, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", Bool, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", Text, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", Text, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", Text, NO_XDS),
    none(XDS, "CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", Text, NO_XDS),
    none(XDS, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", Duration, NO_XDS),
    none(XDS, "XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", Duration, NO_XDS),
    none(XDS, "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", Float, NO_XDS),
    none(XDS, "XDS_CLIENT_BACKOFF_JITTER", "true", Bool, NO_XDS),
    none(XDS, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "", Int, NO_XDS),

    none(STATISTICS, "USE_STATSD", "true", Bool, NO_STATSD),
    none(STATISTICS, "STATSD_HOST", "localhost", Text, NO_STATSD),
    none(STATISTICS, "STATSD_PORT", "8125", Int, NO_STATSD),
    none(STATISTICS, "USE_DOG_STATSD", "false", Bool, NO_STATSD),
    none(STATISTICS, "USE_DOG_STATSD_MOGRIFIERS", "", Text, NO_STATSD),
    special(STATISTICS, "USE_PROMETHEUS", "false", Bool, "`true` serves the metrics at PROMETHEUS_ADDR too, beside the debug port"),
    special(STATISTICS, "PROMETHEUS_ADDR", ":9090", Text, "`debug.metrics_listen`, with USE_PROMETHEUS"),
    special(STATISTICS, "PROMETHEUS_PATH", "/metrics", Text, "`debug.metrics_path`, with USE_PROMETHEUS"),
    none(STATISTICS, "PROMETHEUS_MAPPER_YAML", "", Text, "metrics have labels of their own and need no mapping"),
    none(STATISTICS, "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", Bool, "times are in seconds, as Prometheus asks for"),
    none(STATISTICS, "EXTRA_TAGS", "", Map, "add labels where metrics are collected"),
    none(STATISTICS, "STATS_FLUSH_INTERVAL", "10s", Duration, NO_STATSD),
    none(STATISTICS, "DISABLE_STATS", "false", Bool, "metrics cost nothing while nobody asks for them"),

    special(LIMITER, "BACKEND_TYPE", "redis", Text, "`redis` is used when REDIS_URL is set; `memcache` leads to a warning, and counters are kept in memory"),
    special(LIMITER, "EXPIRATION_JITTER_MAX_SECONDS", "300", Int, "`store.redis.upstream.expiration_jitter`"),
    none(LIMITER, "LOCAL_CACHE_SIZE_IN_BYTES", "0", Int, "keys that are over their limit are always remembered, in bounded memory"),
    sets(LIMITER, "NEAR_LIMIT_RATIO", "0.8", Float, "limiter.near_limit_ratio"),
    sets(LIMITER, "CACHE_KEY_PREFIX", "", Text, "store.redis.upstream.key_prefix"),
    sets(LIMITER, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false", NotBool, "rules.charge_refused"),

    sets(MODES, "SHADOW_MODE", "false", Bool, "limiter.shadow"),
    sets(MODES, "QUOTA_MODE", "false", Bool, "limiter.quota"),
    sets(MODES, "RESPONSE_DYNAMIC_METADATA", "false", Bool, "limiter.dynamic_metadata"),

    sets(HEADERS, "LIMIT_RESPONSE_HEADERS_ENABLED", "false", Bool, "limiter.response_headers.enabled"),
    sets(HEADERS, "LIMIT_LIMIT_HEADER", "RateLimit-Limit", Text, "limiter.response_headers.limit"),
    sets(HEADERS, "LIMIT_REMAINING_HEADER", "RateLimit-Remaining", Text, "limiter.response_headers.remaining"),
    sets(HEADERS, "LIMIT_RESET_HEADER", "RateLimit-Reset", Text, "limiter.response_headers.reset"),

    sets(HEALTH, "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false", Bool, "health.needs_rules"),
    sets(HEALTH, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false", Bool, "health.needs_store"),

    special(REDIS, "REDIS_SOCKET_TYPE", "unix", Text, "`tcp` or `unix`: how REDIS_URL is read"),
    special(REDIS, "REDIS_TYPE", "SINGLE", Text, "`SINGLE`, `SENTINEL` or `CLUSTER`: how REDIS_URL is read"),
    special(REDIS, "REDIS_URL", "/var/run/nutcracker/ratelimit.sock", Text, "`store.redis.url`; while it is not set, counters are kept in memory"),
    none(REDIS, "REDIS_POOL_SIZE", "10", Int, ONE_CALL),
    special(REDIS, "REDIS_AUTH", "", Secret, "`store.redis.password`, or with `USER:` before it also `store.redis.user`"),
    special(REDIS, "REDIS_SENTINEL_AUTH", "", Secret, "the same for `store.redis.sentinel`"),
    special(REDIS, "REDIS_TLS", "false", Bool, "`true` makes the URL one with TLS"),
    sets(REDIS, "REDIS_TLS_CLIENT_CERT", "", Text, "store.redis.tls.cert"),
    sets(REDIS, "REDIS_TLS_CLIENT_KEY", "", Text, "store.redis.tls.key"),
    sets(REDIS, "REDIS_TLS_CACERT", "", Text, "store.redis.tls.ca"),
    sets(REDIS, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", NotBool, "store.redis.tls.verify_name"),
    none(REDIS, "REDIS_PIPELINE_WINDOW", "0", Duration, ONE_CALL),
    none(REDIS, "REDIS_PIPELINE_LIMIT", "0", Int, ONE_CALL),
    none(REDIS, "REDIS_CLUSTER_PIPELINE_PARALLELISM", "1", Int, ONE_CALL),
    sets(REDIS, "REDIS_TIMEOUT", "10s", Duration, "store.redis.connect_timeout"),
    none(REDIS, "REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, ONE_CALL),
    none(REDIS, "REDIS_STARTUP_INITIAL_INTERVAL", "1s", Duration, AT_ONCE),
    none(REDIS, "REDIS_STARTUP_MAX_INTERVAL", "30s", Duration, AT_ONCE),
    none(REDIS, "REDIS_STARTUP_MAX_ELAPSED_TIME", "0", Duration, AT_ONCE),

    special(PER_SECOND, "REDIS_PERSECOND", "false", Bool, "turns on the variables that follow"),
    special(PER_SECOND, "REDIS_PERSECOND_SOCKET_TYPE", "unix", Text, "how REDIS_PERSECOND_URL is read"),
    special(PER_SECOND, "REDIS_PERSECOND_TYPE", "SINGLE", Text, "how REDIS_PERSECOND_URL is read"),
    special(PER_SECOND, "REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock", Text, "`store.redis.upstream.per_second_url`, with REDIS_PERSECOND"),
    none(PER_SECOND, "REDIS_PERSECOND_POOL_SIZE", "10", Int, ONE_CALL),
    special(PER_SECOND, "REDIS_PERSECOND_AUTH", "", Secret, "`store.redis.upstream.per_second_password`, and `per_second_user` before a colon"),
    none(PER_SECOND, "REDIS_PERSECOND_SENTINEL_AUTH", "", Secret, "write it into `store.redis.upstream.per_second_url` as `?sentinel_password=`"),
    special(PER_SECOND, "REDIS_PERSECOND_TLS", "false", Bool, "`true` makes that URL one with TLS"),
    none(PER_SECOND, "REDIS_PERSECOND_PIPELINE_WINDOW", "0", Duration, ONE_CALL),
    none(PER_SECOND, "REDIS_PERSECOND_PIPELINE_LIMIT", "0", Int, ONE_CALL),
    none(PER_SECOND, "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", Int, ONE_CALL),
    none(PER_SECOND, "REDIS_PERSECOND_TIMEOUT", "10s", Duration, "REDIS_TIMEOUT holds for both"),
    none(PER_SECOND, "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, ONE_CALL),

    none(MEMCACHED, "MEMCACHE_HOST_PORT", "", Text, NO_MEMCACHED),
    none(MEMCACHED, "MEMCACHE_SRV", "", Text, NO_MEMCACHED),
    none(MEMCACHED, "MEMCACHE_SRV_REFRESH", "0", Duration, NO_MEMCACHED),
    none(MEMCACHED, "MEMCACHE_MAX_IDLE_CONNS", "2", Int, NO_MEMCACHED),
    none(MEMCACHED, "MEMCACHE_TLS", "false", Bool, NO_MEMCACHED),
    none(MEMCACHED, "MEMCACHE_TLS_CLIENT_CERT", "", Text, NO_MEMCACHED),
    none(MEMCACHED, "MEMCACHE_TLS_CLIENT_KEY", "", Text, NO_MEMCACHED),
    none(MEMCACHED, "MEMCACHE_TLS_CACERT", "", Text, NO_MEMCACHED),
    none(MEMCACHED, "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", Bool, NO_MEMCACHED),

    sets(TRACES, "TRACING_ENABLED", "false", Bool, "traces.enabled"),
    sets(TRACES, "TRACING_EXPORTER_PROTOCOL", "http", Word, "traces.protocol"),
    sets(TRACES, "TRACING_SERVICE_NAME", "RateLimit", Text, "traces.service_name"),
    sets(TRACES, "TRACING_SERVICE_NAMESPACE", "", Text, "traces.service_namespace"),
    sets(TRACES, "TRACING_SERVICE_INSTANCE_ID", "", Text, "traces.service_instance_id"),
    sets(TRACES, "TRACING_SAMPLING_RATE", "1", Rate, "traces.sampling_percent"),

    sets(BESIDE, "OTEL_EXPORTER_OTLP_ENDPOINT", "", Text, "traces.endpoint"),
    sets(BESIDE, "USE_CALENDAR_MONTH_RATE_LIMIT", "false", Bool, "rules.calendar_months"),
];
