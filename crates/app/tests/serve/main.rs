//! `tidegate serve` as its users meet it: the real binary, on free ports.

mod process;
#[path = "../../../stores/tests/support/mod.rs"]
mod servers;

mod upstream;

mod compat;
mod gateway;
mod operating;
mod redis;
mod reloading;
mod serving;
mod starting;
