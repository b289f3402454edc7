//! A load generator: one thread that sends requests to servers over real connections.
//!
//! Requests are encoded by hand, because a client library would cost more than
//! the measured servers: here a call costs a copy, a few table look-ups and its
//! share of a system call. It implements the part of each protocol that a client
//! needs, and fails on anything that it does not expect.

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

/// The resolution of recorded latencies: three digits, up to a minute.
const WAIT_NANOS_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

fn wait_histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, WAIT_NANOS_MAX, DIGITS)?)
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// When the request was sent, or should have been.
    pub(crate) asked: Duration,
    pub(crate) admitted: bool,
}

/// The client's side of one connection, without the socket.
pub(crate) trait Protocol {
    /// Writes the bytes before the first request.
    fn open(&mut self, out: &mut Vec<u8>);

    /// Whether another request may be sent now.
    fn has_room(&self) -> bool;

    /// Writes a request. Call it only when there is room.
    fn ask(&mut self, question: &[u8], asked: Duration, out: &mut Vec<u8>);

    /// Reads the input and writes the replies that the protocol requires. Returns the number of
    /// consumed bytes; the next call gets the rest again, followed by new input.
    ///
    /// # Errors
    /// When the server fails a call or breaks the protocol.
    fn hear(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        replies: &mut Vec<Reply>,
    ) -> anyhow::Result<usize>;

    /// The number of requests without an answer.
    fn in_flight(&self) -> usize;
}
