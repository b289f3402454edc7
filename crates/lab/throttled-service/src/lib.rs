//! A throttled service: it enforces limits, logs every arrival, and so judges who calls it.
//!
//! - [`Judge`] decides from `now` and a cost, without I/O: fixed window, sliding log or token bucket over operations,
//!   bytes and units, several at once, with rivals that take a part.
//! - [`ThrottledService`] serves it over HTTP on threads of its own, with latency, random errors and faults.
//! - [`ArrivalLog`] answers what a test asks: how many were throttled, how busy was the busiest second, what came twice,
//!   what is missing.
//! - [`BaselineClient`] has the clients to compare with: naive rounds, exponential backoff with full jitter, and the
//!   arithmetic of go-batcher. They run in virtual time on a judge, or in real time over HTTP.
//!
//! It knows nothing of queues and forwarders.

mod arrivals;
mod baseline;
mod chance;
mod http_client;
mod judge;
mod service;
mod settings;

pub use arrivals::{Arrival, ArrivalLog, ArrivalSummary, ArrivalTime};
pub use baseline::{
    BackoffClient, BaselineClient, BaselineReport, BatcherFleet, BatcherSettings, BurstClient,
    NaiveClient, run_in_virtual_time,
};
pub use chance::Chance;
pub use http_client::run_over_http;
pub use judge::{Judge, Judgement, LimitKind, Rival, ServiceLimit};
pub use service::{REPORT_PATH, ServiceError, ThrottledService};
pub use settings::{Latency, RetryHint, ServiceFault, ThrottledServiceSettings};
