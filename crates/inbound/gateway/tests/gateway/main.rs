//! The gateway: real sockets on both sides, a real server behind it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;
mod by_hand;
#[path = "../../../tower-layer/tests/support/elsewhere.rs"]
mod elsewhere;
mod upstream;

mod addresses;
mod allocations;
mod answering;
mod describing;
mod encryption;
mod frames;
mod framing;
mod limiting;
mod logging;
mod passing;
mod protecting;
mod reloading;
mod settings;
mod tunnels;
mod turns;
mod upstreams;
mod waiting;
