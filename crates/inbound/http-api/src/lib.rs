//! Checks over HTTP with JSON, for callers that do not speak gRPC.
//!
//! [`HttpApi`] is a service of HTTP requests. It serves the OpenAPI document that describes it; a test compares the two.
//! It knows nothing of sockets, of where rules come from, or of the messages of the rate limit service: [`HttpApiParts`]
//! supplies those.
//!
//! | Step | Where |
//! |---|---|
//! | method and path → route | `route` |
//! | header fields and body → request | `decode` |
//! | request → verdict | `decide` |
//! | verdict → JSON | `encode` |
//! | units that a client takes ahead | `slices` |
//! | requests that wait for their body, counting | `service` |
//! | errors | `problem` |
//!
//! ```
//! # use std::sync::Arc;
//! use hyper::service::Service;
//! use tidegate_engine::{Engine, MemoryConfig, MemoryStore, SystemClock};
//! use tidegate_http_api::{Health, HttpApi, HttpApiParts, HttpApiSettings, RulesStatus};
//! use tidegate_metrics::Meter;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let parts = HttpApiParts {
//!     settings: HttpApiSettings::default(),
//!     meter: Arc::new(Meter::new("http")),
//!     health: Health::new(),
//!     rules: Arc::new(RulesStatus::default),
//!     json: None,
//! };
//! let api = HttpApi::new(Arc::new(Engine::new(store, SystemClock::new())), parts);
//! let body = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ada"}]}]}"#;
//! let request = http::Request::post("/v1/check").body(http_body_util::Full::from(body))?;
//! // No rule limits this user.
//! assert_eq!(api.call(request).await?.status(), 200);
//! # Ok(())
//! # }
//! ```

mod decide;
mod decode;
mod encode;
mod explain;
mod health;
mod openapi;
mod permits;
mod problem;
mod route;
mod rules_view;
mod service;
mod settings;
mod slices;
mod tokens;

pub use health::Health;
pub use rules_view::{LoadFailure, RulesStatus, RulesView};
pub use service::{HttpApi, HttpApiFuture, HttpApiParts, JsonHandler};
pub use settings::HttpApiSettings;
