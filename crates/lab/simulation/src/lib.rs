//! The whole in-process system in virtual time, from one seed.
//!
//! A run draws rules, renders them as YAML and compiles them for the production engine with the
//! production memory store and a manual clock. Then come random events: traffic, bursts, floods of
//! new keys, reloads, switches, clock steps. After each event, checkers compare the answers with
//! the documented promises by brute force on their own history. The same seed gives the same run.
//!
//! [`overload`] simulates load shedders. [`replay`] plays recorded traffic through rules,
//! [`sites`] measures findings on planted faults. Threads, the network and Redis are tested in their crates.

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
pub mod replay;
pub mod sites;

pub use overload_command::OverloadArguments;
pub use simulation::{RunReport, Simulation, Size, Violation};
