//! What refusals say, whichever door says it: the words for each cause, when to ask again,
//! and the details of a gRPC status.
//!
//! How an answer is put together is each door's own matter.

pub mod grpc_status;
pub mod retry;
mod words;

pub use retry::Retry;
pub use words::Cause;

pub use words::Words;
