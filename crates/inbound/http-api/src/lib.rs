//! Checks over HTTP with JSON, for callers that do not speak gRPC.
//!
//! [`HttpApi`] is a service of HTTP requests: it routes by hand, decodes a body
//! without copying its texts, asks the engine and writes the answer into one
//! buffer. What it serves is said by the OpenAPI document that it serves too;
//! a test compares the two.
//!
//! It knows nothing of sockets, of where rules come from, or of the rate limit
//! service's messages: [`HttpApiParts`] brings what it needs of those.

mod health;
mod route;
mod rules_view;
mod settings;

mod body;
mod complaint;
mod decode;
mod head;

mod answer;
mod encode;
mod explain;
mod openapi;
mod permits;

mod door;
mod future;

pub use door::{HttpApi, HttpApiParts, JsonHandler};
pub use future::HttpApiFuture;
pub use health::Health;
pub use rules_view::{RulesFailure, RulesStatus, RulesView};
pub use settings::{HttpApiSettings, Verbs};
