//! Envoy's rate limit service (v3) over gRPC, and its `/json`.
//!
//! [`Rls`] is the door: any HTTP/2 server can put it behind a listener. `ShouldRateLimit` is served by hand: the message
//! is decoded in place, without copies, and the answer is written into one buffer. A gRPC library would spend more time
//! on the call than the engine spends on the decision. Health and reflection are rare, so tonic serves them.
//!
//! Answers follow envoyproxy/ratelimit field by field. Its known defects are not copied: a limit with an unknown unit is
//! an error of the call, global quota mode looks at matched descriptors only, and metadata of one answer never shows up
//! in another.
//!
//! | Step | Where |
//! |---|---|
//! | bytes → `RateLimitRequest` | `decode` |
//! | request → verdict → answer | `decide`, `encode::answer` |
//! | answer → bytes | `encode` |
//! | calls, deadlines | `service` |
//! | errors, health, reflection | `failure`, `health`, `routes` |
//!
//! Sockets, TLS and limits on connections belong to the server.
//!
//! ```
//! # use std::sync::Arc;
//! use tidegate_engine::{Engine, MemoryConfig, MemoryStore, Options, Source, SystemClock, compile};
//! use tidegate_metrics::Meter;
//! use tidegate_rls::{HealthHandle, Rls, RlsSettings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = "domain: api\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]";
//! let rules = compile(&[Source::new("rules.yaml", rules)], &Options::default())?;
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules));
//! let meter = Arc::new(Meter::new("grpc"));
//! let rls = Rls::new(engine, RlsSettings::default(), &HealthHandle::new(), meter);
//! let request = br#"{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "7"}]}]}"#;
//! assert_eq!(rls.answer_json(request).await.status(), 200);
//! assert_eq!(rls.answer_json(request).await.status(), 429);
//! # Ok(())
//! # }
//! ```

mod body;
mod decide;
mod decode;
mod encode;
mod failure;
mod health;
#[cfg(feature = "proto")]
pub mod proto;
mod routes;
mod service;
mod settings;
mod unit;

pub use body::RlsBody;
pub use health::{HealthHandle, Watch};
pub use service::{HasRules, Rls, RlsFuture};
pub use settings::{HeaderNames, RlsSettings};
