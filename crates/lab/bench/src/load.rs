//! A generator of load: one thread that asks servers over real connections.
//!
//! Requests are encoded by hand, because a client library would cost more than
//! the servers that are measured: here a call costs a copy, a few table look-ups
//! and its share of a system call. It knows just enough of each protocol to be
//! a client in good standing, and stops at anything that it does not expect.

mod arrivals;
mod call;
mod connection;
mod crowd;
mod frame;
mod generator;
mod header_block;
mod http1;
mod http2;

use std::time::Duration;

use hdrhistogram::Histogram;

pub(crate) use crowd::{ArrivalPlan, CallerKind, CallerOutcome, Crowd};
pub(crate) use generator::{Enough, Generator, Wait};
pub(crate) use http1::Http1;
pub(crate) use http2::Http2;

/// Waits up to a minute are told apart, to three digits.
const WAIT_NANOS_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

fn wait_histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, WAIT_NANOS_MAX, DIGITS)?)
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// When the question was asked, or should have been.
    pub(crate) asked: Duration,
    pub(crate) admitted: bool,
}

/// The client's side of one connection, without the socket.
pub(crate) trait Protocol {
    /// Writes what comes before the first question.
    fn open(&mut self, out: &mut Vec<u8>);

    /// Whether another question may be asked now.
    fn has_room(&self) -> bool;

    /// Writes a question. Only where there is room.
    fn ask(&mut self, question: &[u8], asked: Duration, out: &mut Vec<u8>);

    /// Reads what has arrived and writes what the protocol wants said to it.
    /// Returns how many bytes are done with; the rest will come again with more.
    ///
    /// # Errors
    /// When the server fails a call or breaks the protocol.
    fn hear(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        replies: &mut Vec<Reply>,
    ) -> anyhow::Result<usize>;

    /// How many questions have no answer yet.
    fn in_flight(&self) -> usize;
}
