//! Verdict → wire: the answer, and its bytes as a protobuf message in a gRPC frame or as JSON.

pub(crate) mod answer;
pub(crate) mod json;
mod metadata;
pub(crate) mod protobuf;

pub(crate) use answer::{Answer, Code};
pub(crate) use protobuf::{ADMITTED, encode};
