//! The debug port: metrics, statistics, the limits in place, their history, the most refused callers, run-time switches,
//! the log level, and a dashboard for a browser.
//!
//! [`DebugDoor`] is a service of HTTP requests. Every page is computed when it is requested; only [`Observations`], an
//! observer of the engine, and the history, which [`DebugDoor::record`] reads once a second, keep counts of their own. A large page takes milliseconds to write, so serve this door from a
//! thread of its own and not from one that decides requests.
//!
//! `routes` lists every page and the access that it needs. The program supplies what the engine does not have (rules,
//! store, logs) with [`DebugParts`]. Sockets belong to the server.
//!
//! ```
//! # use std::sync::Arc;
//! use hyper::service::Service;
//! use tidegate_admin::{DebugDoor, DebugParts};
//! use tidegate_engine::{Engine, MemoryConfig, MemoryStore, SystemClock};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let engine = Arc::new(Engine::new(store, SystemClock::new()));
//! let door = DebugDoor::new(engine, DebugParts::default());
//! let request = http::Request::get("/metrics").body(String::new())?;
//! assert_eq!(door.call(request).await?.status(), 200);
//! // Without a token there are no changes.
//! let request = http::Request::post("/reload").body(String::new())?;
//! assert_eq!(door.call(request).await?.status(), 403);
//! # Ok(())
//! # }
//! ```

mod answer;
mod audit;
mod body;
mod change;
mod routes;
mod service;
mod settings;

mod assets;
mod callers_page;
mod changes_page;
mod csv;
mod events;
mod findings_page;
mod fleet_page;
mod limits_page;
mod query;
mod recorder;
mod series_page;
mod state_page;
mod tail;
mod try_page;

mod delivery;
mod limiters;
mod log_level;
mod metrics;
mod rlconfig;
mod stats;
mod switches;
mod top;

mod observations;
mod process;

pub use body::DebugBody;
pub use change::Change;
pub use service::DebugDoor;

pub use delivery::{DELIVERY_METRICS, DeliveryReading};
pub use fleet_page::NodesReader;
pub use limiters::{
    ConnectionLimiter, LimitTarget, LimiterName, SWITCHBOARD_METRICS, SwitchTarget, Switchboard,
};
pub use metrics::ADMIN_METRICS;
pub use observations::{OBSERVATION_METRICS, Observations, ObservationsConfig};
pub use settings::{DebugParts, DebugSettings, LogLevel};
pub use state_page::{ControlReading, ForwardedReading, StoreReading};
pub use tail::TailMode;
pub use tidegate_history::HistoryFileError;
pub use top::{ListedRow, NetworkRow};
pub use try_page::{TrialDescriptor, TriedHead, TriedRoute};
