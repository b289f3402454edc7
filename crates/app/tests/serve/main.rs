//! `tidegate serve` as its users meet it: the real binary, on free ports.

mod process;
#[path = "../../../stores/tests/support/mod.rs"]
mod servers;

mod compat;
mod operating;
mod redis;
mod reloading;
mod serving;
mod starting;
