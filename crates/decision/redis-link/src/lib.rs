//! A client for Redis and Valkey that batches script calls and keeps deadlines.
//!
//! [`BatchingClient::start`] connects by [`RedisSettings`]: one server, the master that sentinels name, or a cluster.
//! [`BatchingClient::send`] runs the client's Lua script for one [`ScriptCall`]; calls of concurrent callers travel in
//! one pipeline for each node. [`BatchingClient::commands`] sends plain commands. Every call has a deadline, and every
//! error says whether the call may have run: a call that may have run is never sent again.
//!
//! ```no_run
//! use tidegate_redis_link::{BatchingClient, RedisSettings, cmd};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = RedisSettings::parse("redis://localhost:6379?deadline=20ms")?;
//! let deadline = settings.deadline;
//! let client = BatchingClient::start(settings, "return {0, 0, 'ok'}")?;
//! let replies = client.commands(vec![cmd("PING")], deadline).await?;
//! assert_eq!(replies.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! The crate knows nothing of counters, limits or fleets. It does not choose what to do when the server fails.

mod backoff;
mod client;
mod cluster_slots;
mod dial;
mod error;
mod numbers;
mod script;
mod sentinel;
mod settings;
mod state;

pub use client::{BatchingClient, ClientFigures, Histogram, REDIS_METRICS};
pub use cluster_slots::slot_of;
pub use error::{FailureKind, LinkError};
pub use numbers::{NumberReader, put_number};
pub use redis::{Cmd, Value, cmd};
pub use script::{RedisKey, ScriptBody, ScriptCall, ScriptReply};
pub use settings::{
    ClientTls, Login, NameCheck, Password, RedisAddress, RedisServers, RedisSettings,
    RedisSettingsError, Secret,
};
pub use state::LinkState;
