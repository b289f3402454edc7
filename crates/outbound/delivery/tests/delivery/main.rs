//! Attempts over real sockets and with real commands.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod commands;
mod destinations;
mod exchanges;
mod harness;
mod redirects;
