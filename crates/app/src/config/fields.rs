//! Every field of the configuration, once, with its default.
//!
//! The comments are the texts of the schema and of docs/configuration.md. A field that is added here is read, checked,
//! shown and documented everywhere; if its type is secret, it is hidden everywhere. `validate` checks conditions across
//! fields.

mod connections;
mod floods;
mod forward;
mod gateway;

use std::path::PathBuf;
use std::time::Duration;

use tidegate_admin::TailMode;
use tidegate_document::{Entry, Field, HeaderName, SectionPart, Size, Word, section};
use tidegate_engine::{FailureMode, WhenFull};
use tidegate_gateway::CallerFormat;
use tidegate_rules::OnStoreError;

use super::kinds::{
    Address, Compat, ErrorCodes, KeyLayout, LogFormat, LogLevel, NameRewrite, OnRedisError,
    Password, Percent, Ratio, RecordedValues, RedisUrl, San, Secret, StatsTag, StatsdFormat,
    StatsdServer, SwitchAccess, Token, TraceProtocol, Url, UrlPath, Workers,
};

pub use connections::Connections;
pub use floods::Floods;
pub use forward::Forward;
pub use gateway::{AccessLog, Fleet, Gate, Gateway, LimiterSwitches, Overload, Worker};

/// Bounds of durations are in milliseconds.
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const CENTURY: u64 = 36_500 * DAY;
/// Bounds of sizes are in bytes.
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Larger counts are mistakes: a process has fewer sockets and series.
const MANY: u64 = 10_000_000;

section! {
    /// The configuration of `tidegate serve`.
    Config {
        /// Whether the environment variables and the semantics of envoyproxy/ratelimit apply too.
        compat: Compat = "none",
        /// How many threads serve requests; `auto` is one per core.
        workers: Workers = "auto" in 1..=1_024,
        /// The directory in which the service keeps what must survive a restart: requests that the gateway has queued
        /// (`when_over: queue`), and their results; for `tidegate forward serve`, its queue. One process owns it. Off:
        /// queued requests are kept in memory and are lost with the process.
        data_dir: Option<PathBuf> = "off",
        /// Where the rules come from.
        rules: Rules,
        /// Envoy's rate limit service.
        grpc: Grpc,
        /// The HTTP API.
        http: Http,
        /// A reverse proxy with every limiter.
        gateway: Gateway,
        /// The forwarder, which `tidegate forward serve` and `tidegate forward work` run.
        forward: Forward,
        /// Overload protection for the node behind the gateway.
        overload: Overload,
        /// Limits on the connections of one network at every door, before TLS; see docs/floods.md.
        connections: Connections,
        /// The list of networks that flood, for `tidegate guard`; see docs/floods.md.
        floods: Floods,
        /// The mode of each limiter, and the kill switch.
        switches: LimiterSwitches,
        /// Metrics, active rules, run-time switches.
        debug: Debug,
        /// Statistics sent to a statsd server.
        statsd: Statsd,
        /// Where counters are stored.
        store: Store,
        /// How decisions are made and answered.
        limiter: Limiter,
        /// What is logged.
        log: Log,
        /// The decision log, which `tidegate simulate traffic` plays again.
        decisions: Decisions,
        /// OpenTelemetry traces.
        traces: Traces,
        /// How the service stops.
        shutdown: Shutdown,
        /// What makes the service ready.
        health: Health,
    }
}

section! {
    /// Where the rules come from.
    Rules {
        /// Rule files, and directories that hold some.
        paths: Vec<PathBuf> = "rules",
        /// Rules as envoyproxy/ratelimit lays them out, instead of `paths`.
        runtime: Runtime,
        /// Whether several files may add to one domain.
        merge_domains: bool = "true",
        /// Whether refused requests count towards limits written as `rate_limit`, as in
        /// envoyproxy/ratelimit.
        charge_refused: bool = "false",
        /// Whether the unit `month` means calendar months in UTC; otherwise 30 days.
        calendar_months: bool = "false",
        /// Whether changed files take effect while the service runs.
        watch: bool = "true",
        /// How long files must stay unchanged before a change is read.
        debounce: Duration = "200ms" in 0..=HOUR,
        /// How often files are checked where the system does not report changes; `off` for never.
        poll: Option<Duration> = "30s" in SECOND..=DAY,
        /// Whether the service needs valid rules to start.
        required: bool = "true",
    }
}

section! {
    /// A runtime directory of envoyproxy/ratelimit.
    Runtime {
        /// The root, usually a symlink that is swapped. Setting it enables this section.
        root: Option<PathBuf> = "off",
        /// The directory below the root.
        subdirectory: Option<PathBuf> = "off",
        /// The directory with the rule files, below that.
        appdirectory: PathBuf = "config",
        /// Whether names that begin with a dot are skipped.
        ignore_dot_files: bool = "false",
        /// Whether the root symlink is watched; otherwise the directory with the files.
        watch_root: bool = "true",
    }
}

section! {
    /// Envoy's rate limit service.
    Grpc {
        /// Where to listen: `ADDRESS:PORT` or `unix:PATH`.
        listen: Vec<Address> = "0.0.0.0:8081",
        /// TLS; off without a certificate.
        tls: Tls,
        /// Access tokens, as in `http.tokens`. If there are any, calls need one with the role
        /// `check` in their metadata; health checks and reflection need none.
        tokens: Vec<Token> = "",
        /// The largest request.
        message_bytes_max: Size = "1MiB" in KIB..=GIB,
        /// The maximum of concurrent requests on one connection.
        streams_max: u32 = "1000" in 1..=MANY,
        /// The maximum of connections.
        connections_max: u32 = "10000" in 1..=MANY,
        /// How long a connection is used before it is closed gracefully; `off` for no limit.
        connection_age_max: Option<Duration> = "off" in SECOND..=CENTURY,
        /// How long such a connection may take to finish its requests.
        connection_age_grace: Duration = "1h" in 0..=CENTURY,
        /// How long a connection may be without a request; `off` for no limit.
        idle_timeout: Option<Duration> = "1h" in SECOND..=CENTURY,
        /// Detection of dead connections.
        keepalive: Keepalive,
        /// Whether gRPC reflection is enabled.
        reflection: bool = "true",
    }
}

section! {
    /// Certificates.
    Tls {
        /// The certificate chain, PEM.
        cert: Option<PathBuf> = "off",
        /// The private key, PEM.
        key: Option<PathBuf> = "off",
        /// Certificate authorities for client certificates, PEM. If it is set, every client
        /// needs a certificate.
        client_ca: Option<PathBuf> = "off",
        /// The DNS name that a client certificate must have.
        client_san: Option<San> = "off",
    }
}

section! {
    /// Detection of dead connections.
    Keepalive {
        /// How long a connection may be silent before it is pinged; `off` for never.
        interval: Option<Duration> = "60s" in SECOND..=DAY,
        /// How long the answer to a ping may take.
        timeout: Duration = "20s" in SECOND..=HOUR,
    }
}

section! {
    /// The HTTP API.
    Http {
        /// Where to listen: `ADDRESS:PORT` or `unix:PATH`.
        listen: Vec<Address> = "0.0.0.0:8080",
        /// TLS; off without a certificate.
        tls: Tls,
        /// Access tokens, each with the SHA-256 of its text, a name, roles (`read`, `check`,
        /// `change`, joined by `+`) and optionally the day on which it expires. Without tokens,
        /// everyone may read and check; changes need a port that other machines cannot reach.
        tokens: Vec<Token> = "",
        /// The largest request body.
        body_bytes_max: Size = "1MiB" in KIB..=GIB,
        /// The maximum of connections.
        connections_max: u32 = "10000" in 1..=MANY,
        /// How long a client may take to send its header.
        header_timeout: Duration = "10s" in SECOND..=HOUR,
        /// How long a client may take to send its body.
        body_timeout: Duration = "10s" in SECOND..=HOUR,
        /// How long a connection may be idle.
        idle_timeout: Duration = "75s" in SECOND..=DAY,
    }
}

section! {
    /// Metrics, active rules, run-time switches.
    Debug {
        /// Where to listen. Addresses that other machines can reach need a token, or `switches: off`.
        listen: Vec<Address> = "127.0.0.1:6070",
        /// The token that run-time switches require. Prefer the environment variable or
        /// `token_file` over this file.
        token: Option<Secret> = "off",
        /// A file with the token.
        token_file: Option<PathBuf> = "off",
        /// Further tokens, as in `http.tokens`. Pages about callers need the role `read`, run-time
        /// switches the role `change`; `debug.token` has all roles.
        tokens: Vec<Token> = "",
        /// Host names that the port answers to, beside IP addresses and `localhost`; requests for
        /// other names are rejected, against DNS rebinding.
        hosts: Vec<San> = "",
        /// The name of this node among the others of its fleet; `off` for the name of the machine.
        name: Option<String> = "off",
        /// The file that changes at run time are appended to and read from at the start; `off` for
        /// none.
        changes_file: Option<PathBuf> = "off",
        /// The HTTP API of a forwarder, as HOST:PORT, whose queues the dashboard shows.
        forwarder: Option<String> = "off",
        /// A file with the token that the forwarder asks for, with the role `read`.
        forwarder_token_file: Option<PathBuf> = "off",
        /// Whether limits can be switched at run time: `auto` is on if only this machine can
        /// connect or a token is set.
        switches: SwitchAccess = "auto",
        /// The maximum of connections.
        connections_max: u32 = "100" in 1..=MANY,
        /// Further addresses, for metrics only.
        metrics_listen: Vec<Address> = "",
        /// The path of the metrics at these addresses.
        metrics_path: UrlPath = "/metrics",
        /// The metrics of envoyproxy/ratelimit at these addresses, before ours.
        upstream_metrics: UpstreamMetrics,
        /// Limits for the number of metric series.
        metrics: Metrics,
        /// How many of the most refused rules and keys are listed.
        top: u32 = "100" in 1..=100_000,
        /// How pages, the tail and tables name callers: as they are, hashed, or not at all. Names
        /// are kept for at most two hours.
        callers: CallerFormat = "plain",
        /// Which verdicts open pages can watch.
        tail: Word<TailMode> = "refusals",
        /// The maximum of streams of events at a time.
        streams_max: u32 = "16" in 0..=1_000,
        /// The history of limits and of the service.
        history: History,
    }
}

section! {
    /// The history of limits and of the service.
    History {
        /// The most memory that it takes; limits beyond it are summed.
        budget: Size = "8MiB" in 64 * KIB..=GIB,
        /// The file that keeps the hours and days of limits over a restart; `off` for none.
        file: Option<PathBuf> = "off",
    }
}

section! {
    /// The metrics of envoyproxy/ratelimit at `metrics_listen`, before ours.
    UpstreamMetrics {
        /// Whether to show them.
        enabled: bool = "false",
        /// A mapping file of `statsd_exporter`, instead of that of envoyproxy/ratelimit.
        mapping: Option<PathBuf> = "off",
        /// Whether durations are in milliseconds; otherwise in seconds, as their names say.
        milliseconds: bool = "false",
    }
}

section! {
    /// Statistics sent to a statsd server.
    Statsd {
        /// The server: `udp://HOST:PORT`, `tcp://HOST:PORT` or `unix:PATH`. Setting it enables
        /// this section.
        address: Option<StatsdServer> = "off",
        /// The format of lines: tags in the name, or after the value.
        format: StatsdFormat = "statsd",
        /// The time between two flushes.
        flush_interval: Duration = "10s" in 10..=DAY,
        /// Tags of every statistic, each `KEY:VALUE`.
        tags: Vec<StatsTag> = "",
        /// Rewrites of names with `format: dogstatsd`, each `PATTERN -> NAME KEY:VALUE ...`. The
        /// pattern is a regular expression, and `$1` is the text of its first group. The first
        /// that matches a name applies.
        mogrifiers: Vec<NameRewrite> = "",
    }
}

section! {
    /// Limits for the number of metric series.
    Metrics {
        /// The maximum of series of rules with `detailed_metric` or `value_to_metric`.
        detailed_series_max: u32 = "10000" in 0..=MANY,
        /// The maximum of rules with their own series.
        rules_max: u32 = "10000" in 0..=MANY,
    }
}

section! {
    /// Where counters are stored.
    Store {
        /// The memory of this process.
        memory: Memory,
        /// A Redis or Valkey that several processes share, instead of the memory.
        redis: Redis,
    }
}

section! {
    /// The memory of this process.
    Memory {
        /// The maximum of memory for counters.
        budget: Size = "256MiB" in MIB..=1_024 * GIB,
        /// What happens to new keys when the memory is used up.
        when_full: Word<WhenFull> = "approximate",
    }
}

section! {
    /// A Redis or Valkey that several processes share, instead of the memory.
    Redis {
        /// The URL: `redis://localhost:6379`, `redis+unix:///PATH`,
        /// `redis-sentinel://HOST,HOST/MASTER` or `redis-cluster://HOST,HOST`; `rediss` is TLS.
        /// Setting it enables Redis.
        url: Option<RedisUrl> = "off",
        /// The user, if it is not in the URL.
        user: Option<String> = "off",
        /// The password. Prefer the environment variable or `password_file` over this file.
        password: Option<Password> = "off",
        /// A file with the password. It is read again when it changes.
        password_file: Option<PathBuf> = "off",
        /// The login for sentinels.
        sentinel: Sentinel,
        /// Certificates, for URLs with `rediss`.
        tls: RedisTls,
        /// The prefix of every key.
        prefix: String = "tg",
        /// Connections to each server.
        connections: u32 = "1" in 1..=64,
        /// How long a request may wait for Redis; after that the `on_store_error` of its limits
        /// applies.
        deadline: Duration = "250ms" in 1..=HOUR,
        /// What happens while Redis fails to limits without `on_store_error` of their own: the
        /// request fails with the error of envoyproxy/ratelimit, this process decides on its share
        /// of the limit, the request passes, or it fails as undecided.
        on_error: OnRedisError = "local",
        /// How long connecting may take, and how long Redis may be silent before its connection
        /// counts as dead, unless `deadline` is longer.
        connect_timeout: Duration = "1s" in 1..=HOUR,
        /// How long the slots of a crashed process stay occupied. A running process renews its
        /// slots. Slots that are not renewed expire by the `time_to_live` of their limit.
        slot_lease: Duration = "10s" in 300..=HOUR,
        /// How often the counts of eventual limits are exchanged.
        beat: Duration = "100ms" in 10..=HOUR,
        /// The Redis of other regions, to which the counts of eventual limits are sent.
        regions: Vec<RedisUrl> = "",
        /// The layout of counters: our own, or that of envoyproxy/ratelimit, so that both share
        /// counters.
        layout: KeyLayout = "tidegate",
        /// Settings for the layout of envoyproxy/ratelimit.
        upstream: UpstreamLayout,
    }
}

section! {
    /// The login for sentinels.
    Sentinel {
        /// The user.
        user: Option<String> = "off",
        /// The password.
        password: Option<Password> = "off",
        /// A file with the password. It is read again when it changes.
        password_file: Option<PathBuf> = "off",
    }
}

section! {
    /// Certificates, for URLs with `rediss`.
    RedisTls {
        /// Trusted certificate authorities, PEM; otherwise those of the system.
        ca: Option<PathBuf> = "off",
        /// The client certificate, PEM, for servers that require one.
        cert: Option<PathBuf> = "off",
        /// Its private key, PEM.
        key: Option<PathBuf> = "off",
        /// Whether the server's certificate must have its host name.
        verify_name: bool = "true",
    }
}

section! {
    /// Settings for the layout of envoyproxy/ratelimit.
    UpstreamLayout {
        /// The prefix of every key, without a separator.
        key_prefix: Option<String> = "off",
        /// Keys expire up to this much after their window, so that they do not all expire at
        /// once.
        expiration_jitter: Duration = "300s" in 0..=DAY,
        /// Another Redis, for limits per second.
        per_second_url: Option<RedisUrl> = "off",
        /// The user there, if it is not in the URL.
        per_second_user: Option<String> = "off",
        /// The password there.
        per_second_password: Option<Password> = "off",
    }
}

section! {
    /// How decisions are made and answered.
    Limiter {
        /// What happens to a request that cannot be decided.
        failure_mode: Word<FailureMode> = "admit",
        /// Whether every request is admitted; decisions are still counted.
        shadow: bool = "false",
        /// Whether every limit is a quota: a request is refused only when all are used up.
        quota: bool = "false",
        /// The share of a limit from which on hits count as near the limit: `0.8` or `80%`.
        near_limit_ratio: Ratio = "0.8",
        /// Whether answers have the request and the metadata of its rules.
        dynamic_metadata: bool = "false",
        /// Header fields that Envoy adds to its response.
        response_headers: ResponseHeaders,
        /// The most descriptors of a request.
        descriptors_max: u32 = "1000" in 1..=MANY,
        /// Which gRPC codes errors have: precise ones, or always `Unknown`.
        error_codes: ErrorCodes = "precise",
    }
}

section! {
    /// Header fields that Envoy adds to its response.
    ResponseHeaders {
        /// Whether to add them.
        enabled: bool = "false",
        /// The field with the limit.
        limit: HeaderName = "RateLimit-Limit",
        /// The field with the remaining hits.
        remaining: HeaderName = "RateLimit-Remaining",
        /// The field with the seconds until the limit resets.
        reset: HeaderName = "RateLimit-Reset",
    }
}

section! {
    /// What is logged.
    Log {
        /// The lowest level that is logged.
        level: LogLevel = "info",
        /// `auto` is text on a terminal and JSON otherwise.
        format: LogFormat = "auto",
        /// How the caller of a refused request is named in logs and spans of the decision service:
        /// by the entries of its descriptor, hashed, or not at all.
        caller: CallerFormat = "hashed",
        /// How many refusals of the decision service are logged as examples, per ten seconds; 0 for
        /// none.
        refusal_samples: u32 = "10" in 0..=1_000,
    }
}

section! {
    /// The decision log, which `tidegate simulate traffic` plays again.
    Decisions {
        /// Where to write it: `stdout`, `stderr` or a file.
        to: Option<PathBuf> = "off",
        /// The values of callers: `plain`, or `hashed` except for those that a rule names.
        values: RecordedValues = "plain",
        /// The decisions of one of this many callers are logged; a caller is the first descriptor.
        one_of: u32 = "1" in 1..=MANY,
        /// The maximum of lines that wait to be written; more are dropped and counted.
        waiting_max: u32 = "8192" in 1..=MANY,
    }
}

section! {
    /// OpenTelemetry traces.
    Traces {
        /// Whether to send traces.
        enabled: bool = "false",
        /// The endpoint of the collector. With `protocol: http` the default port is 4318.
        endpoint: Url = "http://localhost:4317",
        /// The transport of OTLP.
        protocol: TraceProtocol = "grpc",
        /// The name of the service.
        service_name: String = "tidegate",
        /// The namespace of that name.
        service_namespace: Option<String> = "off",
        /// The id of this process; otherwise a random one.
        service_instance_id: Option<String> = "off",
        /// The percentage of requests to trace, unless the caller decided already.
        sampling_percent: Percent = "100",
    }
}

section! {
    /// How the service stops.
    Shutdown {
        /// How long it still accepts requests while it reports "not ready", so that load
        /// balancers notice.
        delay: Duration = "0s" in 0..=HOUR,
        /// How long running requests may take to finish after that.
        grace: Duration = "15s" in 0..=DAY,
    }
}

section! {
    /// What makes the service ready.
    Health {
        /// Whether it is ready only with rules for at least one domain.
        needs_rules: bool = "false",
        /// Whether it is ready only while the shared store is available. Otherwise it continues
        /// without the store, as `on_store_error` of the limits says.
        needs_store: bool = "false",
        /// Whether it is ready only while every group of the gateway's upstreams has a healthy
        /// server.
        needs_upstreams: bool = "false",
    }
}

impl Config {
    /// Every section and field, from the top.
    pub fn entries(&mut self) -> Vec<Entry<'_>> {
        let mut entries = Vec::new();
        self.list_fields("", &mut entries);
        entries
    }

    /// Every field.
    pub fn fields(&mut self) -> impl Iterator<Item = Field<'_>> {
        self.entries().into_iter().filter_map(|entry| match entry {
            Entry::Field(field) => Some(field),
            Entry::Section { .. } => None,
        })
    }

    /// The paths of every section and field.
    pub(super) fn paths() -> Vec<String> {
        let path = |entry: Entry<'_>| match entry {
            Entry::Section { path, .. } => path,
            Entry::Field(field) => field.path,
        };
        Config::default().entries().into_iter().map(path).collect()
    }
}

impl Default for Config {
    fn default() -> Self {
        let mut config = Config::blank();
        for field in config.fields() {
            field
                .value
                .set_text(field.default(), &field.key.bounds)
                .expect("the defaults are valid");
        }
        config
    }
}

/// Where rules are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesFrom<'c> {
    /// Files and directories.
    Paths(&'c [PathBuf]),
    /// A runtime directory of envoyproxy/ratelimit.
    Runtime {
        /// The root, usually a symlink.
        root: &'c PathBuf,
        /// Its other settings.
        runtime: &'c Runtime,
    },
}

impl Config {
    /// The options for compiling the rules.
    pub const fn rule_options(&self) -> tidegate_rules::Options {
        tidegate_rules::Options {
            merge_domains: self.rules.merge_domains,
            compat: self.rules.charge_refused,
            calendar_months: self.rules.calendar_months,
            on_store_error: self.store.redis.on_error.policy(),
        }
    }
}

impl OnRedisError {
    /// The policy of limits whose rules do not have one.
    pub const fn policy(self) -> OnStoreError {
        match self {
            OnRedisError::Upstream | OnRedisError::Deny => OnStoreError::Deny,
            OnRedisError::Local => OnStoreError::Local,
            OnRedisError::Allow => OnStoreError::Allow,
        }
    }
}

impl Rules {
    /// Where rules are read from.
    pub fn source(&self) -> RulesFrom<'_> {
        match &self.runtime.root {
            Some(root) => RulesFrom::Runtime { root, runtime: &self.runtime },
            None => RulesFrom::Paths(&self.paths),
        }
    }
}

impl Tls {
    /// The certificate and its key, if TLS is on.
    pub fn pair(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.cert.as_ref().zip(self.key.as_ref())
    }
}

impl Http {
    /// Whether only this machine can connect.
    pub fn is_local(&self) -> bool {
        self.listen.iter().all(Address::is_local)
    }
}

impl Debug {
    /// Whether there is a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some() || self.token_file.is_some() || !self.tokens.is_empty()
    }

    /// Whether only this machine can connect.
    pub fn is_local(&self) -> bool {
        self.listen.iter().all(Address::is_local)
    }

    /// Whether limits can be switched at run time.
    pub fn switches_are_on(&self) -> bool {
        match self.switches {
            SwitchAccess::On => true,
            SwitchAccess::Off => false,
            SwitchAccess::Auto => self.is_local() || self.has_token(),
        }
    }
}
