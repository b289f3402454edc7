//! The configuration of `tidegate serve`: one typed struct, with the origin of each value.
//!
//! Later layers win over earlier ones: defaults; with `compat`, the defaults and the environment variables of
//! envoyproxy/ratelimit; the file; environment variables; flags. All problems are reported at once before anything
//! starts, each with its location in the file, a variable or a flag. [`resolve`] is pure; `load` reads the file and the
//! environment. Nothing here opens a socket, a certificate or a rule file, except `check`.

mod kinds;

mod fields;
mod host;

mod args;
mod changed;
mod compat;
mod file;
mod layers;
mod mask;
mod validate;

pub(crate) mod forward;
pub(crate) mod gateway;
pub(crate) mod load;
pub(crate) mod statistics;

pub(crate) mod check;
pub(crate) mod reference;
pub(crate) mod schema;
pub(crate) mod show;

pub use args::ConfigArgs;
pub use changed::changed;
pub use compat::{Effect, VARIABLES, Variable};
pub use fields::{
    AccessLog, Config, Connections, Debug, Decisions, Fleet, Floods, Forward, Gate, Gateway, Grpc,
    Health, History, Http, Keepalive, Limiter, LimiterSwitches, Log, Memory, Metrics, Overload,
    Redis, RedisTls, ResponseHeaders, Rules, RulesFrom, Runtime, Sentinel, Shutdown, Statsd, Store,
    Tls, Traces, UpstreamLayout, UpstreamMetrics, Worker,
};
pub use kinds::{
    Address, Compat, ErrorCodes, KeyLayout, LeaseUrl, LogFormat, LogLevel, NameRewrite,
    OnRedisError, Password, Percent, QueueUrl, Ratio, RecordedValues, RedisUrl, San, Secret,
    StatsTag, StatsdFormat, StatsdServer, SwitchAccess, SwitchMode, Token, TraceProtocol, Url,
    UrlPath, Workers,
};
pub use layers::{Flag, Input, LoadedConfig, Note, Origin, Weight, resolve, variable_of};
pub use reference::{compat_reference, example, forward_reference, gateway_reference, reference};
pub use schema::schema;
pub use tidegate_document::{Entry, Field, HeaderName, Network, Size};

/// A count as the components take it.
pub(crate) fn count(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
