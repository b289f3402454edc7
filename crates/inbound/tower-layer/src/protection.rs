//! Overload protection as a tower layer: worker shedder, the fleet's share and the gate.
//!
//! A closure describes a request; [`Protection`](tidegate_overload::Protection) decides. A refused request is answered
//! at once, like behind every door: 503, `Retry-After`, a problem, or a gRPC status. An admitted request holds its slot
//! until the body of the response has ended or was dropped; the gate learns from how it ended.
//!
//! Where the caller's own limits apply too, the order matters: see the crate `tidegate-admission`.
//! [`ProtectionLayer::screening`] is the part that comes before the limits. A refusal after them is marked as an
//! [`UnservedRequest`](crate::UnservedRequest), and they refund what they charged.
//!
//! The caller runs the loops of the protection: `tidegate_overload::run`, and `run_beats` for a node of a fleet.

mod arrival;
mod decide;
mod encode;
mod service;
mod settings;

pub use arrival::ArrivingRequest;
pub use service::ProtectedService;
pub use settings::ProtectionLayer;
