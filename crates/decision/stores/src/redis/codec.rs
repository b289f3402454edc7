//! Encodes checks for the script, and decodes its replies.
//!
//! Rust computes whatever needs a division or a calendar, and sends integers; the script adds, subtracts and compares.
//! All integers are big-endian.

mod record;
mod reply;
mod request;
mod state;

pub(super) use reply::{Reply, reported_state};
pub(super) use request::{Request, ScriptVerb, SettledState};
pub(super) use state::decode as decode_state;
