//! The door for services in this process: a tower layer.
//!
//! It limits any service of HTTP requests (axum, hyper, tonic). A closure describes a request (decode), the limits
//! decide it on the calling thread before its body is read (`decide`), and it is refused (`encode`), delayed or passed
//! on. Slots of concurrency limits are held until the body of the response has ended or was dropped, whatever happens:
//! an error, a panic, a client that disconnects.
//!
//! Rules, counters and switches belong to the engine, which the layer shares with everything that has a handle to it.
//! A request over a limit is refused, or waits in line where the rule says `when_over: delay`. The layer has no queue:
//! `when_over: queue` refuses.
//!
//! `protection` is another layer, for the capacity of the service itself.
//!
//! ```
//! use axum::{Router, routing::get};
//! use http::request::Parts;
//! use tidegate_tower_layer::RateLimitLayer;
//!
//! // Ten requests a second for each API key; requests without one are not limited.
//! let limit = "algorithm: token_bucket, unit: second, requests_per_unit: 10";
//! let layer = RateLimitLayer::by_key(limit, |request: &Parts| {
//!     Some(request.headers.get("x-api-key")?.to_str().ok()?.to_owned())
//! })?;
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! # Ok::<(), tidegate_tower_layer::LimitError>(())
//! ```

mod settings;

mod decide;
mod encode;

mod body;
mod future;
#[cfg(feature = "protection")]
mod protection;
mod refund;
mod service;

pub use body::LimitedBody;
pub use future::LayerFuture;
#[cfg(feature = "protection")]
pub use protection::{ArrivingRequest, ProtectedService, ProtectionLayer};
pub use refund::UnservedRequest;
pub use service::RateLimit;
pub use settings::{LimitError, RateLimitLayer};
