//! The door for services in this process: a tower layer.
//!
//! It limits any service of HTTP requests (axum, hyper, tonic). A request is
//! described by a closure, decided on the calling thread before its body is
//! read, and refused, delayed or passed on. Slots of concurrency limits are
//! held until the answer's body has ended or was dropped, whatever happens on
//! the way: an error, a panic, a client that goes away.
//!
//! Rules, counters and switches belong to the engine, which the layer shares
//! with everyone who has a handle to it. Who is over a limit is refused, or waits in line where
//! the rule says `when_over: delay`. Nothing is kept for later: `when_over: queue` refuses here.
//!
//! `protection` is another layer, for what the service itself can take.

mod settings;

mod answer;
mod body;
mod future;
#[cfg(feature = "protection")]
mod protection;
mod receipt;
mod service;
mod waiting;

pub use body::LimitedBody;
pub use future::RateLimitFuture;
#[cfg(feature = "protection")]
pub use protection::{
    Arriving, Protected, ProtectedFuture, ProtectionLayer, Screened, ScreeningLayer,
};
pub use receipt::Unserved;
pub use service::RateLimit;
pub use settings::{LimitError, RateLimitLayer};
