//! Overload protection as a tower layer: worker shedder, the fleet's share and the gate, before
//! a service in this process.
//!
//! A closure says what a request is; [`Protection`] decides. A refused request is answered
//! at once with the contract of every door: 503, `Retry-After`, a problem, or a gRPC status. What an
//! admitted request holds is given back when the answer's body has ended or was dropped,
//! and how it ended is what the gate learns from.
//!
//! Where a caller's own limits are asked too, the order matters: a request that cannot be
//! served should not spend its caller's budget, and one that waits for its turn should not
//! hold a place inside. [`ProtectionLayer::screening`] is the part that comes before the limits.
//! What is refused after them is marked as [`Unserved`](crate::Unserved), and they give back what
//! they charged.
//!
//! The loops of [`Protection`] have to be run: `tidegate_overload::run`, and `run_beats` for a
//! node of a fleet. That is not done here.

mod answer;
mod arriving;
mod future;
mod layer;
mod service;

pub use arriving::Arriving;
pub use future::ProtectedFuture;
pub use layer::{ProtectionLayer, ScreeningLayer};
pub use service::{Protected, Screened};
