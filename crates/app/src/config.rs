//! The configuration of `tidegate serve`: one typed struct, and where each of
//! its values comes from.
//!
//! Layers, each winning over those before it: defaults; under `compat`, the
//! defaults and the environment variables of envoyproxy/ratelimit; the file;
//! the environment; flags. Everything that can be wrong is found before anything
//! starts, all at once and with its place; a variable or a flag is a source with
//! a place like the file. [`resolve`] is pure; `load` reads the file and the
//! environment for it.
//!
//! What is done with the values is the business of whoever gets them: nothing
//! here opens a socket, a certificate or a rule file.

mod kinds;

mod fields;

mod args;
mod changed;
mod compat;
mod file;
mod layers;
mod mask;
mod validate;

pub(crate) mod gateway;
pub(crate) mod load;

pub(crate) mod check;
pub(crate) mod reference;
pub(crate) mod schema;
pub(crate) mod show;

pub use args::ConfigArgs;
pub use changed::changed;
pub use compat::{Effect, VARIABLES, Variable};
pub use fields::{
    AccessLog, Config, Debug, Fleet, Gate, Gateway, Grpc, Health, Http, Keepalive, Limiter,
    LimiterSwitches, Log, Memory, Metrics, Overload, Redis, RedisTls, ResponseHeaders, Rules,
    RulesFrom, Runtime, Sentinel, Shutdown, Store, Tls, Traces, UpstreamLayout, Worker,
};
pub use kinds::{
    AccessLogFormat, Address, Compat, ErrorCodes, FailureMode, KeyLayout, LogFormat, LogLevel,
    LogTo, Password, Percent, Ratio, RedisUrl, San, Secret, SwitchMode, Switches, Token,
    TraceProtocol, Url, UrlPath, WhenFull, Workers,
};
pub use layers::{Flag, Input, Loaded, Note, Origin, Weight, resolve, variable_of};
pub use reference::{compat_reference, example, gateway_reference, reference};
pub use schema::schema;
pub use tidegate_document::{Entry, Field, HeaderName, Network, Size};
