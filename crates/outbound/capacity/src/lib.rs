//! Shares of a throttled service's capacity, for processes that do not know each other.
//!
//! A *target* has limits: operations, bytes and units over windows of up to a minute, and quotas over longer ones. Its capacity is divided into equal
//! *slots*. Each *member* holds slots under leases and sends at the pace that its slots allow, so that all members
//! together never exceed a limit. There is no leader: a member reads one small document from a store, computes everyone's
//! fair share, and replaces the document if it is unchanged.
//!
//! ```
//! use tidegate_capacity::{
//!     Cost, Dimension, MemberTerms, MemoryCapacityStore, Target, TargetAnswer, TargetLimit, TargetLimits, TargetMember,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A database that takes 20,000 units a second; each record costs ten.
//! let limits = TargetLimits::new(vec![TargetLimit::per_second(Dimension::Units, 20_000)])?;
//! let target = Target::new("database", limits);
//! let member = TargetMember::join(MemoryCapacityStore::default(), target, MemberTerms::named("importer"));
//! member.set_backlog(Cost::units(30));
//! for _record in 0..3 {
//!     let permit = member.turn(Cost::units(10)).await?;
//!     // Send the record here.
//!     permit.finish(TargetAnswer::Accepted, None);
//! }
//! member.leave().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`fair_shares`], [`TargetPacer`], [`Brake`], [`CapacityDocument`] and [`LeaseHolder`] do no I/O and take the time as an
//! argument; [`TargetMember`] runs them on a store.

mod beats;
mod boot_clock;
mod brake;
mod document;
mod holder;
mod lease_store;
mod limits;
mod member;
mod pacing;
mod quota;
mod shares;
mod store;

pub use beats::BeatSchedule;
pub use boot_clock::BootClock;
pub use brake::{Brake, TargetAnswer};
pub use document::{
    CapacityDocument, DocumentError, Grant, Heartbeat, SlotHolder, SlotLease, TargetHold,
    TooManyMembers,
};
pub use holder::{
    BrakeReport, DocumentReading, Hunger, LeaseHolder, MemberTerms, NewTarget, PreparedHeartbeat,
    StoreLost, UsableShare,
};
pub use lease_store::{ChangeLimitsError, LeaseStore};
pub use limits::{Cost, Dimension, LimitsError, TargetLimit, TargetLimits};
pub use member::{CostTooHigh, HeartbeatError, MemberStatus, SendPermit, Target, TargetMember};
pub use pacing::{Departure, Pace, TargetPacer};
pub use shares::{Pool, ShareRequest, fair_shares};
#[cfg(feature = "postgres")]
pub use store::PostgresCapacityStore;
#[cfg(feature = "redis")]
pub use store::RedisCapacityStore;
#[cfg(feature = "sqlite")]
pub use store::SqliteCapacityStore;
pub use store::{CapacityStore, CapacityStoreError, MemoryCapacityStore, StoredDocument};
#[cfg(feature = "etcd")]
pub use store::{EtcdCapacityStore, EtcdSettings};
#[cfg(feature = "s3")]
pub use store::{ObjectCapacityStore, S3Settings};
#[cfg(feature = "redis")]
pub use tidegate_redis_link::RedisSettings;
