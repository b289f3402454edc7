//! What clients see of a decision, the same behind every door.
//!
//! [`Notice`] has the facts of a verdict that a client may learn, and [`HeaderSet`] writes them into header fields. A
//! refused request stays plain data ([`Refusal`]) until one [`Renderer`] turns it into a response: problem+json, a page
//! or a gRPC status. [`Problem`] writes the problem bodies of errors that no limit caused. This crate decides nothing
//! and opens no sockets.

mod cause;
mod headers;
mod negotiation;
mod notice;
mod problem;
mod refusal;
mod renderer;

pub mod grpc;

pub use cause::{Cause, Wording};
pub use headers::{Fields, HeaderFormat, HeaderSet, HeadersOn, ResetAs, write_number};
pub use negotiation::{AnswerFormat, Negotiation};
pub use notice::{NAME_CHARS_MAX, Notice, POLICIES_MAX, Policy, PolicyName};
pub use problem::{NO_STORE, PROBLEM_JSON, Problem};
pub use refusal::{Refusal, Shed, ViolatedLimit};
pub use renderer::{PreparedAnswer, Renderer, TemplateError, Templates};
