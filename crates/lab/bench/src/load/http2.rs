//! gRPC calls over HTTP/2, many at once on one connection.
//!
//! Headers of answers are not read: an answer that has a message went well, and
//! one that ends without is an error whatever its headers say.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::call::PendingCalls;
use super::frame::{Frame, PREFACE, flag, kind, number, setting};
use super::header_block::HeaderBlock;
use super::{Protocol, Reply};
use crate::questions::Questions;

/// The initial window of HTTP/2.
const WINDOW: u32 = 65_535;
/// The increment of the server's window: large enough that it never waits for us.
const MORE_WINDOW: u32 = 1 << 24;
/// The prefix of a gRPC message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// The longest frame without a setting.
const PAYLOAD_MAX: usize = 16_384;

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Http2 {
    wire: crate::questions::Wire,
    headers: HeaderBlock,
    calls: PendingCalls,
    /// Our own limit on calls in flight.
    depth: usize,
    /// The server's limit on calls in flight.
    streams_max: usize,
    question_bytes: u32,
    /// The window of the connection for requests.
    window: u32,
    /// Bytes of answers since the last window update.
    heard: u32,
    fresh: bool,
}

impl Http2 {
    /// A connection with at most this many calls in flight.
    ///
    /// # Errors
    /// When the questions are longer than one frame.
    pub(crate) fn new(questions: &Questions, depth: usize) -> anyhow::Result<Self> {
        let question_bytes = u32::try_from(questions.bytes())?;
        ensure!(questions.bytes() <= PAYLOAD_MAX, "a question has more than one frame");
        Ok(Http2 {
            wire: questions.wire(),
            headers: HeaderBlock::grpc(questions.wire().path()),
            calls: PendingCalls::new(),
            depth,
            streams_max: usize::MAX,
            question_bytes,
            window: WINDOW,
            heard: 0,
            fresh: true,
        })
    }

    #[inline]
    fn on_frame(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        replies: &mut Vec<Reply>,
    ) -> anyhow::Result<()> {
        match frame.kind {
            kind::DATA => self.on_data(frame, out)?,
            kind::SETTINGS if !frame.has(flag::ACK) => self.on_settings(frame, out),
            kind::PING if !frame.has(flag::ACK) => {
                Frame { flags: flag::ACK, ..*frame }.write(out);
            }
            // The initial window of a stream is larger than any request.
            kind::WINDOW_UPDATE if frame.stream == 0 => {
                let more = number(frame.payload).context("a window update without a number")?;
                self.window = self.window.saturating_add(more);
            }
            kind::RST_STREAM => {
                let code = number(frame.payload).unwrap_or_default();
                bail!("the server gave up a call with error {code}");
            }
            kind::GOAWAY => {
                let code = frame.payload.get(4..).and_then(number).unwrap_or_default();
                bail!("the server ends the connection with error {code}");
            }
            _ => {}
        }
        if matches!(frame.kind, kind::DATA | kind::HEADERS) && frame.has(flag::END_STREAM) {
            let call = self.calls.end(frame.stream).context("an answer to no call of ours")?;
            let admitted = call.admitted.context("a call ended without an answer")?;
            replies.push(Reply { asked: call.asked, admitted });
        }
        Ok(())
    }

    #[inline]
    fn on_data(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> anyhow::Result<()> {
        ensure!(!frame.has(flag::PADDED), "an answer is padded, which no known server does");
        self.heard = self.heard.saturating_add(u32::try_from(frame.payload.len())?);
        if self.heard >= MORE_WINDOW / 2 {
            window_update(self.heard, out);
            self.heard = 0;
        }
        if !frame.payload.is_empty() {
            let message = frame.payload.get(PREFIX_BYTES..).context("half a message")?;
            let call = self.calls.on(frame.stream).context("an answer to no call of ours")?;
            call.admitted = Some(self.wire.admits(message)?);
        }
        Ok(())
    }

    fn on_settings(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let (entries, _) = frame.payload.as_chunks::<6>();
        for [high, low, value @ ..] in entries.iter().copied() {
            if u16::from_be_bytes([high, low]) == setting::MAX_CONCURRENT_STREAMS {
                let streams = u32::from_be_bytes(value);
                self.streams_max = usize::try_from(streams).unwrap_or(usize::MAX);
            }
        }
        Frame { kind: kind::SETTINGS, flags: flag::ACK, stream: 0, payload: &[] }.write(out);
    }
}

fn window_update(more: u32, out: &mut Vec<u8>) {
    let payload = &more.to_be_bytes();
    Frame { kind: kind::WINDOW_UPDATE, flags: flag::NONE, stream: 0, payload }.write(out);
}

impl Protocol for Http2 {
    fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        let [high, low] = setting::ENABLE_PUSH.to_be_bytes();
        let payload = &[high, low, 0, 0, 0, 0];
        Frame { kind: kind::SETTINGS, flags: flag::NONE, stream: 0, payload }.write(out);
        window_update(MORE_WINDOW, out);
    }

    #[inline]
    fn has_room(&self) -> bool {
        let in_flight = self.calls.in_flight();
        in_flight < self.depth && in_flight < self.streams_max && self.window >= self.question_bytes
    }

    #[inline]
    fn ask(&mut self, question: &[u8], asked: Duration, out: &mut Vec<u8>) {
        // A connection lives for one round, which has less than a billion calls.
        let Some(stream) = self.calls.begin(asked) else { return };
        let payload = if self.fresh { self.headers.first() } else { self.headers.later() };
        self.fresh = false;
        Frame { kind: kind::HEADERS, flags: flag::END_HEADERS, stream, payload }.write(out);
        Frame { kind: kind::DATA, flags: flag::END_STREAM, stream, payload: question }.write(out);
        self.window = self.window.saturating_sub(self.question_bytes);
    }

    #[inline]
    fn hear(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        replies: &mut Vec<Reply>,
    ) -> anyhow::Result<usize> {
        let mut done = 0;
        while let Some((frame, bytes)) = input.get(done..).and_then(Frame::first) {
            self.on_frame(&frame, out, replies)?;
            done += bytes;
        }
        Ok(done)
    }

    fn in_flight(&self) -> usize {
        self.calls.in_flight()
    }
}

#[cfg(test)]
mod tests;
