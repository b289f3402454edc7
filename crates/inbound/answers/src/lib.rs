//! What clients see of a verdict, the same behind every door.
//!
//! [`Notice`] holds the facts that a client may learn; [`HeaderSet`] writes them into header fields,
//! [`problem_answer`] into an HTTP answer and [`grpc_answer`] into one of gRPC. [`refusals`] has the wording of refusals
//! by limits and by overload protection. Nothing here decides, and nothing here knows of sockets.

mod headers;
mod notice;
mod problem;

pub mod grpc;
pub mod refusals;

pub use grpc::{grpc_answer, is_grpc};
pub use headers::{Fields, HeaderFormat, HeaderSet, HeadersOn, ResetAs, write_number};
pub use notice::{NAME_CHARS_MAX, Notice, POLICIES_MAX, Policy, PolicyName};
pub use problem::problem_answer;
