//! Bodies while they stream: from client to upstream, and back.
//!
//! Neither is buffered. A timer is made only when a body has to be waited for: most responses arrive with their head.

mod held_bytes;
mod request;
mod response;

pub(super) use held_bytes::is_over_budget;
pub(super) use request::{BodyProgress, BodyState, ContinueGate, ContinueSignal, RequestBody};
pub use response::{GatewayBody, GatewayBodyError};

use std::error::Error as StdError;

/// Any error of a body.
pub(super) type BoxError = Box<dyn StdError + Send + Sync>;
