//! `tidegate forward` as its users meet it: the real binary, throttled services, real servers.

#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../serve/process.rs"]
mod process;

mod harness;

mod commands;
mod crashes;
mod fleet;
mod serving;
