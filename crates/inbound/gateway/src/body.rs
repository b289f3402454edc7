//! Bodies on their way: from client to upstream, and back.
//!
//! Both are watched while they stream, and neither is gathered. A timer is made only when a
//! body has to be waited for: most answers are there with their head.

mod answer;
mod request;

pub(super) use answer::{End, Ending, OnEnd};
pub use answer::{GatewayBody, GatewayBodyError};
pub(super) use request::{Fate, Gate, GateKey, Progress, RequestBody};

use std::error::Error as StdError;

/// Any error of a body.
pub(super) type BoxError = Box<dyn StdError + Send + Sync>;
