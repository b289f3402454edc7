//! Kinds of values that only the configuration has: how each is read, described and shown.

mod address;
mod choice;
mod number;
mod statistics;
mod text;

pub use address::Address;
pub use choice::{
    Compat, ErrorCodes, KeyLayout, LogFormat, LogLevel, OnRedisError, RecordedValues, SwitchAccess,
    SwitchMode, TraceProtocol,
};
pub use number::{Percent, Ratio, Workers};
pub use statistics::{NameRewrite, StatsTag, StatsdFormat, StatsdServer};
pub use text::{LeaseUrl, Password, QueueUrl, RedisUrl, San, Secret, Token, Url, UrlPath};

#[cfg(test)]
mod tests;
