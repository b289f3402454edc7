//! Forwarders as real processes under faults.
//!
//! A [`Scene`] starts a throttled service, real servers for the queue and the leases, and forwarders as processes of
//! their own; then it kills, freezes and cuts them off, as its seed decides. It judges by the service's log and by the
//! list of records that were acknowledged to their producer: nothing is lost, and no second holds more than the limit.
//!
//! Windows are judged at the instants at which records left their pacers, which each request carries. What a process
//! waits for a processor of a busy machine is therefore no fault of the forwarder, and no test depends on the machine's
//! speed.
//!
//! The tests play each scene for seconds; `make soak` plays the long versions.

#![allow(clippy::unwrap_used, reason = "a scene cannot continue without these values")]

mod chance;
mod fleet;
mod scene;
mod worker;

pub use fleet::{Fleet, FleetPlan, WorkerHandle};
pub use scene::{Scene, SceneLength, SceneReport};
pub use worker::{WorkerArguments, work};
