//! The whole in-process system in virtual time, from one seed.
//!
//! A run draws rules and renders them as YAML, compiles them, puts them into
//! the production engine over the production memory store on a clock turned by
//! hand, and lets things happen: traffic, bursts, floods of new keys, reloads,
//! switches, a clock that steps. After each step it checks what the documents
//! promise, by brute force on its own record of what happened. The seed decides
//! everything; the same seed gives the same run.
//!
//! Threads, the network and Redis are not here: their tests are with their crates.

mod chance;
mod time;

mod written_rules;

mod history;
mod seen_verdict;

mod checker;

mod traffic;
mod world;

mod simulation;

pub mod overload;
mod overload_command;

pub use overload_command::OverloadArguments;
pub use simulation::{RunReport, Simulation, Size, Violation};
