//! What refusals say, whichever door says it: the words for each cause, when to ask again,
//! and the details of a gRPC status.
//!
//! How an answer is put together is each door's own matter.

pub(crate) mod grpc_status;
pub(crate) mod retry;
mod words;

#[cfg(feature = "gateway")]
pub(crate) use retry::Retry;
pub(crate) use words::Cause;
#[cfg(feature = "gateway")]
pub(crate) use words::Words;
