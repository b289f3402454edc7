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
//! | requests that wait for their body, counting | `service` |
//! | errors | `problem` |

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

pub use health::Health;
pub use rules_view::{RulesFailure, RulesStatus, RulesView};
pub use service::{HttpApi, HttpApiFuture, HttpApiParts, JsonHandler};
pub use settings::{HttpApiSettings, Verbs};
