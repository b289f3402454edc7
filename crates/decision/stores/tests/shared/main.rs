//! Counters that several nodes share, on virtual time: a fake remote that can be slow, silent or gone, and a record of
//! admissions with arithmetic of its own.

mod conforming;
mod eventual;
mod exact;
mod fake;
mod leased;
mod outage;
mod regions;
mod routes;
mod simulation;
mod world;

#[path = "../conformance/model.rs"]
#[expect(dead_code, reason = "the suite itself looks into the model's states, too")]
mod model;
#[path = "../conformance/sequences.rs"]
mod sequences;
