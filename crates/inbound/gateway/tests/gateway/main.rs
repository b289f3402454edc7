//! Tests of the gateway with real sockets and a real upstream.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../tower-layer/tests/support/elsewhere.rs"]
mod elsewhere;
mod harness;
mod manual_time;
mod upstream;

mod addresses;
mod allocations;
mod answers;
mod counting;
mod describing;
mod durable_queue;
mod encryption;
mod evasion;
mod forwarding;
mod frames;
mod framing;
mod limiting;
mod logging;
mod long_responses;
mod overload;
mod reloading;
mod settings;
mod slow_clients;
mod tunnels;
mod turns;
mod upstreams;
mod waiting;
