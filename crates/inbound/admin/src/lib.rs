//! The debug door: what those who run the service look at, and what they switch.
//!
//! Metrics, statistics, the limits in place, who is refused most, run-time
//! switches and the log level, over HTTP. Everything is read when it is asked for;
//! nothing is kept here but [`Observations`], which the engine's verdicts feed.
//! A large page takes milliseconds to write, so serve this door from a thread
//! of its own rather than from one that answers requests.
//!
//! Pages are listed in `routes`, metrics in `vocabulary`; there are no others.
//! Where the figures of rules, store and logs come from is the program's
//! matter: it hands them in with [`DebugParts`]. Sockets are the server's.

mod answer;
mod change;
mod routes;
mod service;
mod settings;
mod token;

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

pub use change::Change;
pub use service::DebugDoor;

pub use delivery::{DELIVERY_METRICS, DeliveryReading};
pub use limiters::{LimiterName, SWITCHBOARD_METRICS, Switchboard, Switched};
pub use metrics::ADMIN_METRICS;
pub use observations::{OBSERVATION_METRICS, Observations, ObservationsConfig};
pub use settings::{DebugParts, DebugSettings, LogLevel};
pub use token::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN, Token, TokenError};
