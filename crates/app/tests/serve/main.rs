//! `tidegate serve` as its users meet it: the real binary, on free ports.

mod process;
#[path = "../../../decision/stores/tests/support/mod.rs"]
mod servers;

mod certificates;
mod client;
mod upstream;

mod access_log;
mod compat;
mod documents;
mod encryption;
mod gateway;
mod operating;
mod redis;
mod reloading;
mod serving;
mod starting;
mod turns;
