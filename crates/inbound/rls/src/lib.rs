//! Envoy's rate limit service (v3) over gRPC, and its `/json`.
//!
//! [`Rls`] is the door: any HTTP/2 server can put it behind a listener. The one
//! method that matters, `ShouldRateLimit`, is served by hand: the message is
//! read where it lies, without copies, and the answer is written into one
//! buffer. A gRPC library would spend more on the call than the engine spends
//! on the decision. Health and reflection are rare, so tonic serves them.
//!
//! What is answered follows envoyproxy/ratelimit field by field. Its known
//! defects are not copied: a limit with an unknown unit is an error of the
//! call, global quota mode looks at matched descriptors only, and metadata of
//! one answer never shows in another.
//!
//! | Step | Where |
//! |---|---|
//! | bytes → what is asked | `frame`, `wire`, `decode`; `json` |
//! | what is asked → the engine's request | `asked` |
//! | verdict → answer | `answer`, `metadata` |
//! | answer → bytes | `encode`; `json` |
//! | calls, deadlines, errors | `service`, `failure`, `body` |
//!
//! Sockets, TLS and limits on connections are the server's.

mod answer;
mod asked;
mod body;
mod decode;
mod encode;
mod failure;
mod frame;
mod health;
mod json;
mod metadata;
#[cfg(feature = "proto")]
pub mod proto;
mod routes;
mod service;
mod settings;
mod unit;
mod wire;

pub use body::RlsBody;
pub use health::{HealthHandle, Watch};
pub use service::{HasRules, Rls, RlsFuture};
pub use settings::{HeaderNames, RlsSettings};
