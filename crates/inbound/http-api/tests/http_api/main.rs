//! The HTTP door, from the outside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;
mod document;

mod access;
mod allocations;
mod checks;
mod complaints;
mod document_is_true;
mod documentation;
mod example;
mod permits;
mod slices;
mod status;
mod wire;
