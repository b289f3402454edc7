//! Every field of the configuration, once, with its default.
//!
//! The comments are the texts of the schema and of docs/configuration.md. A
//! field that is added here is read, checked, shown and documented everywhere.
//! What fields mean together is checked in `validate`.

mod gateway;

use std::path::PathBuf;
use std::time::Duration;

use super::kinds::{
    Address, ErrorCodes, FailureMode, HeaderName, KeyLayout, LogFormat, LogLevel, Password,
    Percent, Ratio, RedisUrl, Secret, Size, Switches, TraceProtocol, Url, UrlPath, WhenFull,
    Workers,
};
use super::kinds::{Compat, San};
use super::section::{Entry, Part, section};

pub use gateway::{AccessLog, Fleet, Gate, Gateway, LimiterSwitches, Overload, Worker};

/// Bounds of lengths of time are in milliseconds.
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const CENTURY: u64 = 36_500 * DAY;
/// Bounds of sizes are in bytes.
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Larger counts are mistakes: a process has no more sockets or series.
const MANY: u64 = 10_000_000;

section! {
    /// The configuration of `tidegate serve`.
    Config {
        /// Whose environment variables and semantics apply beside our own:
        /// nobody's, or those of envoyproxy/ratelimit.
        compat: Compat = "none",
        /// How many threads serve requests; `auto` is one per core.
        workers: Workers = "auto" in 1..=1_024,
        /// Where the rules come from.
        rules: Rules,
        /// Envoy's rate limit service.
        grpc: Grpc,
        /// The HTTP API.
        http: Http,
        /// A reverse proxy with every limiter.
        gateway: Gateway,
        /// What protects the node behind the gateway from more than it can work on.
        overload: Overload,
        /// What each limiter does, and what stops them all.
        switches: LimiterSwitches,
        /// Metrics, active rules, run-time switches.
        debug: Debug,
        /// Where counters live.
        store: Store,
        /// How decisions are made and told.
        limiter: Limiter,
        /// What is logged.
        log: Log,
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
        /// Whether refused requests are charged to limits that are written as
        /// `rate_limit`, as envoyproxy/ratelimit does.
        charge_refused: bool = "false",
        /// Whether the unit `month` means months of the calendar, in UTC; otherwise 30 days.
        calendar_months: bool = "false",
        /// Whether changes of the files take effect while the service runs.
        watch: bool = "true",
        /// How long files must be quiet before a change is read.
        debounce: Duration = "200ms" in 0..=HOUR,
        /// How often files are looked at where no change is told; `off` for never.
        poll: Option<Duration> = "30s" in SECOND..=DAY,
        /// Whether the service refuses to start without valid rules.
        required: bool = "true",
    }
}

section! {
    /// A runtime directory of envoyproxy/ratelimit.
    Runtime {
        /// The root, usually a symlink that is swapped. Setting it turns this on.
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
        /// The largest request.
        message_bytes_max: Size = "1MiB" in KIB..=GIB,
        /// The most requests at once on one connection.
        streams_max: u32 = "1000" in 1..=MANY,
        /// The most connections.
        connections_max: u32 = "10000" in 1..=MANY,
        /// How long a connection lives before it is asked to close; `off` for ever.
        connection_age_max: Option<Duration> = "off" in SECOND..=CENTURY,
        /// How long such a connection may finish its requests.
        connection_age_grace: Duration = "1h" in 0..=CENTURY,
        /// How dead connections are noticed.
        keepalive: Keepalive,
        /// Whether tools may list the services.
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
        /// Authorities whose client certificates are accepted, PEM. Setting it
        /// asks every client for one.
        client_ca: Option<PathBuf> = "off",
        /// The DNS name that a client certificate must have.
        client_san: Option<San> = "off",
    }
}

section! {
    /// How dead connections are noticed.
    Keepalive {
        /// How long a connection is quiet before it is asked; `off` for never.
        interval: Option<Duration> = "60s" in SECOND..=DAY,
        /// How long the answer may take.
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
        /// The largest request body.
        body_bytes_max: Size = "1MiB" in KIB..=GIB,
        /// The most connections.
        connections_max: u32 = "10000" in 1..=MANY,
        /// How long a client may take to send its header.
        header_timeout: Duration = "10s" in SECOND..=HOUR,
        /// How long a connection may be idle.
        idle_timeout: Duration = "75s" in SECOND..=DAY,
    }
}

section! {
    /// Metrics, active rules, run-time switches.
    Debug {
        /// Where to listen. Beyond this machine it needs a token, or `switches: off`.
        listen: Vec<Address> = "127.0.0.1:6070",
        /// The token that the switches ask for. Better in the environment or in
        /// `token_file` than in this file.
        token: Option<Secret> = "off",
        /// A file with the token.
        token_file: Option<PathBuf> = "off",
        /// Whether rules can be switched at run time: `auto` is on where only
        /// this machine can ask or a token is set.
        switches: Switches = "auto",
        /// The most connections.
        connections_max: u32 = "100" in 1..=MANY,
        /// Further places to listen, for metrics only.
        metrics_listen: Vec<Address> = "",
        /// The path of the metrics there.
        metrics_path: UrlPath = "/metrics",
        /// How many series there can be.
        metrics: Metrics,
        /// How many refused rules and keys are ranked.
        top: u32 = "100" in 1..=100_000,
    }
}

section! {
    /// How many series there can be.
    Metrics {
        /// The most series of rules with `detailed_metric` or `value_to_metric`.
        detailed_series_max: u32 = "10000" in 0..=MANY,
        /// The most rules with series of their own.
        rules_max: u32 = "10000" in 0..=MANY,
    }
}

section! {
    /// Where counters live.
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
        /// The most memory that counters take.
        budget: Size = "256MiB" in MIB..=1_024 * GIB,
        /// What happens to new keys when it is used up.
        when_full: WhenFull = "approximate",
    }
}

section! {
    /// A Redis or Valkey that several processes share, instead of the memory.
    Redis {
        /// Where it is, such as `redis://localhost:6379`, `redis+unix:///PATH`,
        /// `redis-sentinel://HOST,HOST/MASTER` or `redis-cluster://HOST,HOST`; with `rediss` it
        /// speaks TLS. Setting it turns it on.
        url: Option<RedisUrl> = "off",
        /// The user, if it is not in the URL.
        user: Option<String> = "off",
        /// The password. Better in the environment or in `password_file` than in this file.
        password: Option<Password> = "off",
        /// A file with the password. It is read again when it changes.
        password_file: Option<PathBuf> = "off",
        /// Who we are to sentinels.
        sentinel: Sentinel,
        /// Certificates, for URLs with `rediss`.
        tls: RedisTls,
        /// What every key begins with.
        prefix: String = "tg",
        /// Connections to each server.
        connections: u32 = "1" in 1..=64,
        /// How long a request may wait for Redis; what decides then is said by the
        /// `on_store_error` of its limits.
        deadline: Duration = "10ms" in 1..=HOUR,
        /// How long a connection may take to be made.
        connect_timeout: Duration = "1s" in 1..=HOUR,
        /// After how long slots of concurrency limits are free again that a process held when it
        /// died. While it lives it renews them. Slots that nobody renews have the `time_to_live`
        /// of their limit.
        slot_lease: Duration = "10s" in 300..=HOUR,
        /// How often what eventual limits counted is added up.
        beat: Duration = "100ms" in 10..=HOUR,
        /// The Redis of other regions: they are told what eventual limits count here.
        regions: Vec<RedisUrl> = "",
        /// How counters are kept: our own way, or as envoyproxy/ratelimit keeps them,
        /// so that both count together.
        layout: KeyLayout = "tidegate",
        /// What the layout of envoyproxy/ratelimit needs beside.
        upstream: UpstreamLayout,
    }
}

section! {
    /// Who we are to sentinels.
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
        /// Authorities to believe, PEM; otherwise those of the system.
        ca: Option<PathBuf> = "off",
        /// Our own certificate, PEM, for servers that ask for one.
        cert: Option<PathBuf> = "off",
        /// Its private key, PEM.
        key: Option<PathBuf> = "off",
        /// Whether the server's certificate must carry its name.
        verify_name: bool = "true",
    }
}

section! {
    /// What the layout of envoyproxy/ratelimit needs beside.
    UpstreamLayout {
        /// What every key begins with, without anything between.
        key_prefix: Option<String> = "off",
        /// Keys live up to this much longer than their window, so that they do not all
        /// expire at once.
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
    /// How decisions are made and told.
    Limiter {
        /// What happens to a request that cannot be decided.
        failure_mode: FailureMode = "admit",
        /// Whether every answer is "admitted"; what would have been is still counted.
        shadow: bool = "false",
        /// Whether every limit counts as a quota: refused only when all are used up.
        quota: bool = "false",
        /// From which share of a limit a hit counts as near it: `0.8` or `80%`.
        near_limit_ratio: Ratio = "0.8",
        /// Whether answers carry the request and the metadata of its rules.
        dynamic_metadata: bool = "false",
        /// Header fields for Envoy to add to its answer.
        response_headers: ResponseHeaders,
        /// Which gRPC codes errors have: precise ones, or always `Unknown`.
        error_codes: ErrorCodes = "precise",
    }
}

section! {
    /// Header fields for Envoy to add to its answer.
    ResponseHeaders {
        /// Whether to add them.
        enabled: bool = "false",
        /// The field with the limit.
        limit: HeaderName = "RateLimit-Limit",
        /// The field with what is left.
        remaining: HeaderName = "RateLimit-Remaining",
        /// The field with the seconds until the limit starts anew.
        reset: HeaderName = "RateLimit-Reset",
    }
}

section! {
    /// What is logged.
    Log {
        /// The least important messages that are logged.
        level: LogLevel = "info",
        /// `auto` is text on a terminal and JSON otherwise.
        format: LogFormat = "auto",
    }
}

section! {
    /// OpenTelemetry traces.
    Traces {
        /// Whether to send traces.
        enabled: bool = "false",
        /// Where they are sent. With `protocol: http` the default has port 4318.
        endpoint: Url = "http://localhost:4317",
        /// The transport of OTLP.
        protocol: TraceProtocol = "grpc",
        /// What the service is called.
        service_name: String = "tidegate",
        /// The namespace of that name.
        service_namespace: Option<String> = "off",
        /// What this process is called; otherwise something random.
        service_instance_id: Option<String> = "off",
        /// The share of requests without a decision of their own that are traced.
        sampling_percent: Percent = "100",
    }
}

section! {
    /// How the service stops.
    Shutdown {
        /// How long it still serves while it says that it is not ready, so that
        /// load balancers notice.
        delay: Duration = "0s" in 0..=HOUR,
        /// How long requests may take to finish after that.
        grace: Duration = "15s" in 0..=DAY,
    }
}

section! {
    /// What makes the service ready.
    Health {
        /// Whether it is ready only with rules for at least one domain.
        needs_rules: bool = "false",
        /// Whether it is ready only while the shared store can be asked. Without it a
        /// service goes on by itself, as `on_store_error` says.
        needs_store: bool = "false",
        /// Whether it is ready only while every group of the gateway's upstreams has a server that
        /// is well.
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
}

impl Default for Config {
    fn default() -> Self {
        let mut config = Config::blank();
        for entry in config.entries() {
            if let Entry::Field(field) = entry {
                field.value.set_text(field.default, &field.bounds).expect("the defaults are right");
            }
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
        /// The rest of it.
        runtime: &'c Runtime,
    },
}

impl Rules {
    /// How the files become one snapshot.
    pub const fn options(&self) -> tidegate_rules::Options {
        tidegate_rules::Options {
            merge_domains: self.merge_domains,
            compat: self.charge_refused,
            calendar_months: self.calendar_months,
        }
    }

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

impl Debug {
    /// Whether a token is asked for.
    pub fn has_token(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }

    /// Whether only this machine can ask.
    pub fn is_local(&self) -> bool {
        self.listen.iter().all(Address::is_local)
    }

    /// Whether rules can be switched at run time.
    pub fn switches_are_on(&self) -> bool {
        match self.switches {
            Switches::On => true,
            Switches::Off => false,
            Switches::Auto => self.is_local() || self.has_token(),
        }
    }
}
