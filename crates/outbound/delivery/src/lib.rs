//! One attempt at sending records to their target.
//!
//! A [`Processor`] makes one attempt at each record of a batch and says what came of it. It does not retry, wait for its
//! turn or settle claims: the caller does, because each attempt takes a share of the target's capacity.
//!
//! | Processor | Sends |
//! |---|---|
//! | [`HttpProcessor`] | HTTP requests, one for each record or one for many, only to allowed destinations |
//! | [`CommandProcessor`] | JSON to the standard input of a command |
//! | your own | implement [`Processor`] |
//!
//! ```
//! use tidegate_delivery::{
//!     Attempt, AttemptOutcome, AttemptResult, Processor, ProcessorFuture,
//! };
//!
//! /// Accepts records that are not empty.
//! struct NonEmpty;
//!
//! impl Processor for NonEmpty {
//!     fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
//!         Box::pin(async move {
//!             let outcome = |attempt: &Attempt| match attempt.record.payload.body.is_empty() {
//!                 false => AttemptOutcome::Delivered,
//!                 true => AttemptOutcome::Rejected { detail: "the body is empty".to_owned() },
//!             };
//!             batch.iter().map(|attempt| AttemptResult::new(outcome(attempt))).collect()
//!         })
//!     }
//! }
//! ```
//!
//! [`StatusPolicy`] (what an answer means), [`DestinationPolicy`] (where requests may go), [`secrets`] (which header
//! fields are kept and shown) and [`signature`] (signed callbacks) are pure and serve by themselves.

mod bulk;
mod classify;
mod command;
mod destination;
mod http_client;
mod http_processor;
mod http_request;
mod processor;
mod real_cost;
pub mod secrets;
pub mod signature;

pub use bulk::{BulkEnvelope, BulkFormat, BulkResults, BulkSettings, read_results};
pub use classify::{HOLD_MAX, StatusPolicy};
pub use command::{CommandProcessor, CommandSettings};
pub use destination::{DestinationError, DestinationPolicy, HostRule, HostRuleError, is_public};
pub use http_client::{
    HttpProtocol, HttpSetupError, HttpTimeouts, Resolver, ResolverFuture, SystemResolver,
};
pub use http_processor::{HttpProcessor, HttpSettings, ResponseSettings};
pub use http_request::{METHOD_FIELD, URL_FIELD};
pub use processor::{
    Attempt, AttemptOutcome, AttemptResult, KeptResponse, Processor, ProcessorFuture, SlotEpoch,
};
pub use real_cost::CostSource;
pub use tidegate_client_tls::{ClientTls, NameCheck};
