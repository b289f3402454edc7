//! Shares of a throttled service's capacity.
mod brake;
mod document;
mod holder;
mod limits;
mod pacing;
mod shares;

pub use brake::{Brake, TargetAnswer};
pub use document::{
    CapacityDocument, DocumentError, Grant, Heartbeat, SlotHolder, SlotLease, TargetHold,
    TooManyMembers,
};
pub use holder::{
    BrakeReport, DocumentReading, LeaseHolder, MemberTerms, NewTarget, PreparedHeartbeat,
};
pub use limits::{Cost, Dimension, LimitsError, TargetLimit, TargetLimits};
pub use pacing::{Departure, Pace, SLACK, TargetPacer};
pub use shares::{Pool, ShareRequest, fair_shares};
