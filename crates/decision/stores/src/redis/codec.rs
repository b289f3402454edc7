//! Between checks and the bytes that the script takes and gives.
//!
//! Rust computes whatever needs a division or a calendar and sends plain
//! numbers; the script adds, subtracts and compares. All numbers are whole,
//! highest byte first.

mod bytes;
mod record;
mod reply;
mod request;
mod state;

#[cfg(feature = "fleet")]
pub(super) use bytes::{Body, Reader, put};
pub(super) use reply::{Reply, told_state};
pub(super) use request::{Order, Request, Settled};
pub(super) use state::{decode as decode_state, encode as encode_state};
