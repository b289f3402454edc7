//! Outgoing HTTP calls that keep to the limits of the services they call.
//!
//! [`PacingLayer`] wraps any tower service that sends HTTP requests: hyper's client, tonic's channel, reqwest through
//! an adapter. It reads what every answer says about limits and paces calls *before* they are refused; it holds all
//! calls to a target that asked to wait; it repeats failed calls with jitter, within a budget and the caller's
//! deadline; it drops calls to a service that is short of capacity; it learns how many calls may be in flight.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Empty;
//! use tidegate_client::{Outcome, PacingLayer, ReplayBody};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let http = service_fn(|_: Request<ReplayBody<Empty<Bytes>>>| async {
//!     Ok::<_, Infallible>(Response::new(()))
//! });
//! let client = ServiceBuilder::new().layer(PacingLayer::default()).service(http);
//!
//! let request = Request::get("https://api.example/orders").body(Empty::<Bytes>::new())?;
//! let answer = client.oneshot(request).await?;
//! match Outcome::of(&answer) {
//!     Outcome::Answered => println!("{}", answer.status()),
//!     Outcome::Refused { retry_after } => println!("over a limit; again after {retry_after:?}"),
//!     Outcome::Short { retry_after } => println!("the service is overloaded; again after {retry_after:?}"),
//!     Outcome::Failed => println!("the service failed: {}", answer.status()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! State is kept for each *target*: the authority of the URL, or a [`Scope`] of your choice, such as an API key.
//! [`TargetState`] is all of the arithmetic: it does no I/O and takes the time as an argument. Nothing sleeps silently:
//! an [`Observer`] sees each wait, hold, retry and drop.
//!
//! Several processes on one limit: [`PacingLayer::slices`] takes units ahead from a decision service, with the feature
//! `slices` from a Tidegate.
//!
//! With the feature `reqwest`, `ReqwestService` puts the layer in front of reqwest's client. For tonic, map the body:
//! `examples/tonic.rs`.
//!
//! A client is a courtesy: a service must not depend on it, and enforces its limits itself.

mod body;
#[cfg(feature = "slices")]
mod decision_service;
mod in_flight;
mod layer;
mod observer;
mod outcome;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retry;
mod schedule;
mod scope;
mod service;
mod settings;
mod share;
mod slices;
mod target;
mod throttle;
mod turn;

pub use body::{REPLAY_BYTES_MAX, ReplayBody};
#[cfg(feature = "slices")]
pub use decision_service::DecisionService;
pub use layer::PacingLayer;
pub use observer::{Observer, PacingEvent};
pub use outcome::{Outcome, PacingError};
#[cfg(feature = "reqwest")]
pub use reqwest::ReqwestService;
pub use scope::{Scope, TARGETS_MAX};
pub use service::{Deadline, PacedService};
pub use settings::PacingSettings;
pub use slices::{ExchangeFuture, SliceAnswer, SliceError, SliceExchange, SliceSource, SliceState};
pub use target::{AnswerKind, Step, TargetState};
