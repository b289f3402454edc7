//! The body of a response on its way to the client, and the record by which the worker notices a client that does not
//! read.
//!
//! hyper polls a body when it can take more. A body that returned data and is not polled again waits for its client;
//! one that returned pending waits for the service. The record of each response notes which, so that the worker can
//! tell a slow client from a silent service without a timer in the body, which would run only while it is polled.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::connection_state::{ConnectionState, InFlightRequest};
use super::long_response::{Exchange, TakeableResponse, TakenExchange};
use super::settings::{ConnectionLimits, Pressure};

/// HTTP/2 data is passed on in pieces of this size, so that the progress of a slow client is seen.
const PIECE_BYTES: usize = 16 * 1024;

/// Over HTTP/1.1 the next data is fetched when fewer bytes than this wait to be written. hyper would fetch up to the
/// size of its buffer, and whatever one read of the upstream returned on top of that. Less than the smallest piece that
/// the gateway reads, so that a client that does not read holds one.
const UNWRITTEN_BYTES_MAX: u64 = 2 * 1024;

/// The instant by which a response must have been taken by its client, in the extensions of the response. Without it a
/// response may take as long as it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseDeadline(pub Instant);

/// How long a client must have been too slow to count as stalled, while the service is under pressure.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Whether the client of a response has stalled, in the extensions of the response: it does not read although the
/// service is under pressure. The server updates it four times a second.
#[derive(Clone, Debug, Default)]
pub struct StallFlag(Arc<AtomicBool>);

impl StallFlag {
    /// Whether the client has stalled.
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Identifies the record of a response among those of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseKey {
    index: usize,
    id: u64,
}

/// Whom a response waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Client,
    Service,
}

/// A response whose body has not ended.
#[derive(Debug)]
struct ResponseRecord {
    id: u64,
    turn: Turn,
    /// Bytes of the body that hyper has fetched.
    bytes: u64,
    deadline: Option<Instant>,
    stall: Option<StallFlag>,
    rate: RateWindow,
    /// The task of its stream; none over HTTP/1.1.
    waker: Option<Waker>,
    is_cut: bool,
}

/// The responses of one connection whose bodies have not ended.
#[derive(Debug, Default)]
pub(super) struct Responses {
    records: Vec<Option<ResponseRecord>>,
    free: Vec<usize>,
    next_id: u64,
    /// The response that began last.
    last: Option<ResponseKey>,
}

impl Responses {
    fn insert(&mut self, deadline: Option<Instant>, stall: Option<StallFlag>) -> ResponseKey {
        self.next_id = self.next_id.wrapping_add(1);
        let id = self.next_id;
        let record = ResponseRecord {
            id,
            turn: Turn::Client,
            bytes: 0,
            deadline,
            stall,
            rate: RateWindow::default(),
            waker: None,
            is_cut: false,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.records.len().saturating_sub(1)
        });
        if let Some(free) = self.records.get_mut(index) {
            *free = Some(record);
        }
        let key = ResponseKey { index, id };
        self.last = Some(key);
        key
    }

    fn get(&mut self, key: ResponseKey) -> Option<&mut ResponseRecord> {
        self.records.get_mut(key.index)?.as_mut().filter(|record| record.id == key.id)
    }

    fn remove(&mut self, key: ResponseKey) {
        if self.get(key).is_some() {
            if let Some(record) = self.records.get_mut(key.index) {
                *record = None;
            }
            self.free.push(key.index);
        }
    }

    /// Forgets which response began last.
    pub(super) fn clear_last(&mut self) {
        self.last = None;
    }

    /// The response that began since [`Responses::clear_last`].
    pub(super) fn last(&self) -> Option<ResponseKey> {
        self.last
    }

    /// Sets the task to wake when the response is cut. Returns false if it is cut already.
    pub(super) fn watch(&mut self, key: ResponseKey, waker: &Waker) -> bool {
        let Some(record) = self.get(key) else { return true };
        if record.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            record.waker = Some(waker.clone());
        }
        !record.is_cut
    }

    /// Cuts the responses whose clients are too slow or whose deadline is over, and returns whether there are any.
    pub(super) fn cut_stalled(&mut self, limits: &RateLimits<'_>, now: Instant) -> bool {
        let mut any = false;
        for record in self.records.iter_mut().flatten() {
            let late = record.deadline.is_some_and(|deadline| now >= deadline);
            let waits = record.turn == Turn::Client;
            let slow = record.rate.is_too_slow(limits, waits, record.bytes, now);
            if let Some(stall) = &record.stall {
                let stalled =
                    slow || record.rate.is_slow_for(STALLED_AFTER, limits, record.bytes, now);
                stall.0.store(stalled && limits.is_pressed(), Relaxed);
            }
            if (late || slow) && !record.is_cut {
                any = true;
                record.is_cut = true;
                if let Some(waker) = &record.waker {
                    waker.wake_by_ref();
                }
            }
        }
        any
    }
}

/// How fast a client must take what waits for it.
#[derive(Debug)]
pub(super) struct RateLimits<'c> {
    bytes_per_second: u32,
    window: Duration,
    window_pressed: Duration,
    pressure: Option<&'c Pressure>,
}

impl<'c> RateLimits<'c> {
    pub(super) const fn new(limits: &ConnectionLimits, pressure: Option<&'c Pressure>) -> Self {
        RateLimits {
            bytes_per_second: limits.send_rate_min,
            window: limits.send_rate_window,
            window_pressed: limits.send_rate_window_pressed,
            pressure,
        }
    }

    fn is_pressed(&self) -> bool {
        self.pressure.is_some_and(Pressure::is_on)
    }
}

/// Measures how fast a client takes what waits for it.
#[derive(Debug, Default)]
pub(super) struct RateWindow {
    /// The beginning of the window, and the bytes taken until then. None while nothing waits for the client.
    began: Option<(Instant, u64)>,
}

impl RateWindow {
    /// Whether the client has taken less than the minimum rate over a whole window, during which something waited for
    /// it at every sample.
    pub(super) fn is_too_slow(
        &mut self,
        limits: &RateLimits<'_>,
        waits: bool,
        bytes: u64,
        now: Instant,
    ) -> bool {
        if !waits {
            self.began = None;
            return false;
        }
        let (since, before) = *self.began.get_or_insert((now, bytes));
        let took = now.saturating_duration_since(since);
        let is_slow = || is_slow(limits, bytes.saturating_sub(before), took);
        if took < limits.window {
            return took >= limits.window_pressed && is_slow() && limits.is_pressed();
        }
        self.began = Some((now, bytes));
        is_slow()
    }

    /// Whether the client has taken less than the minimum rate so far, for at least `least`.
    fn is_slow_for(
        &self,
        least: Duration,
        limits: &RateLimits<'_>,
        bytes: u64,
        now: Instant,
    ) -> bool {
        self.began.is_some_and(|(since, before)| {
            let took = now.saturating_duration_since(since);
            took >= least && is_slow(limits, bytes.saturating_sub(before), took)
        })
    }
}

fn is_slow(limits: &RateLimits<'_>, bytes: u64, took: Duration) -> bool {
    bytes < bytes_at(limits.bytes_per_second, took)
}

/// The bytes of a rate over a time.
fn bytes_at(per_second: u32, took: Duration) -> u64 {
    let bytes = u128::from(per_second).saturating_mul(took.as_millis()) / 1_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Ends the record of a response, and its request, when it is dropped.
#[derive(Debug)]
struct ResponseGuard {
    request: InFlightRequest,
    key: ResponseKey,
    /// Bytes of the frame that was fetched last, counted as held by the connection.
    held: u64,
}

impl ResponseGuard {
    fn state(&self) -> &ConnectionState {
        self.request.state()
    }

    fn hold(&mut self, bytes: u64) {
        self.request.state().replace_held(self.held, bytes);
        self.held = bytes;
    }

    fn note(&self, turn: Turn, bytes: u64) {
        if let Some(record) = self.state().responses().get(self.key) {
            record.turn = turn;
            record.bytes = record.bytes.saturating_add(bytes);
        }
    }
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.hold(0);
        self.state().set_takeable(false);
        self.state().responses().remove(self.key);
    }
}

/// What a service says about a response in its extensions.
#[derive(Debug)]
pub(super) struct ResponseExtensions {
    deadline: Option<ResponseDeadline>,
    stall: Option<StallFlag>,
}

impl ResponseExtensions {
    pub(super) fn of(extensions: &Extensions) -> Self {
        ResponseExtensions { deadline: extensions.get().copied(), stall: extensions.get().cloned() }
    }
}

/// The body of a service with its record.
#[derive(Debug)]
pub(super) struct TrackedBody<B> {
    inner: B,
    guard: ResponseGuard,
}

impl<B: Body<Data = Bytes> + Unpin> TrackedBody<B> {
    /// The next frame. Data waits for the client until the next call.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = self.poll_unnoted(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.guard.note(Turn::Client, length(data));
        }
        frame
    }

    /// The next frame. Data is noted when it is passed on.
    fn poll_unnoted(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        match &frame {
            Poll::Pending => {
                self.guard.hold(0);
                self.guard.note(Turn::Service, 0);
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.guard.hold(length(data));
                }
            }
            Poll::Ready(_) => {}
        }
        frame
    }

    /// Whether nothing follows.
    pub(super) fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

/// The body of a response as hyper sees it.
pub(super) struct ResponseBody<B> {
    /// None when it was taken from hyper.
    body: Option<TrackedBody<B>>,
    writer: BodyWriter<B>,
}

/// Who writes a body.
enum BodyWriter<B> {
    /// HTTP/2; with the rest of a frame that is passed on in pieces.
    Http2(Bytes),
    Http1,
    /// HTTP/1.1, until the response is taken from hyper.
    Http1UntilTaken(Arc<Exchange<B>>, TakeableResponse),
}

impl<B> ResponseBody<B> {
    pub(super) fn new(
        inner: B,
        request: InFlightRequest,
        is_http2: bool,
        extensions: ResponseExtensions,
        taken: Option<(Arc<Exchange<B>>, TakeableResponse)>,
    ) -> Self {
        let ResponseExtensions { deadline, stall } = extensions;
        let key = request.state().responses().insert(deadline.map(|deadline| deadline.0), stall);
        let state = request.state();
        state.set_takeable(taken.is_some());
        state.await_response_head(taken.as_ref().is_some_and(|(_, taken)| taken.is_ambiguous()));
        let guard = ResponseGuard { request, key, held: 0 };
        let writer = match taken {
            _ if is_http2 => BodyWriter::Http2(Bytes::new()),
            Some((exchange, response)) => BodyWriter::Http1UntilTaken(exchange, response),
            None => BodyWriter::Http1,
        };
        ResponseBody { body: Some(TrackedBody { inner, guard }), writer }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let ResponseBody { body: place, writer } = self.get_mut();
        let Some(body) = place else { return Poll::Pending };
        let state = body.guard.state();
        match writer {
            BodyWriter::Http2(rest) => return poll_piece(body, rest, cx),
            BodyWriter::Http1UntilTaken(exchange, response)
                if (response.is_long() || state.is_taken()) && state.is_takeable() =>
            {
                state.set_taken(true);
                if let Some(body) = place.take() {
                    exchange.put(TakenExchange::Response(body, *response));
                }
                return Poll::Pending;
            }
            BodyWriter::Http1UntilTaken(..) | BodyWriter::Http1 => {}
        }
        ready!(state.poll_unwritten_below(UNWRITTEN_BYTES_MAX, cx));
        let frame = ready!(body.poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            body.guard.state().record_unwritten(length(data));
            if let BodyWriter::Http1UntilTaken(_, response) = writer {
                response.count(length(data));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let has_rest = matches!(&self.writer, BodyWriter::Http2(rest) if !rest.is_empty());
        !has_rest && self.body.as_ref().is_some_and(TrackedBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.body.as_ref().map_or_else(SizeHint::new, |body| body.inner.size_hint());
        let BodyWriter::Http2(rest) = &self.writer else { return inner };
        let rest = length(rest);
        if rest == 0 {
            return inner;
        }
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

/// The next piece of a body over HTTP/2.
fn poll_piece<B: Body<Data = Bytes> + Unpin>(
    body: &mut TrackedBody<B>,
    rest: &mut Bytes,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
    if rest.is_empty() {
        *rest = match ready!(body.poll_unnoted(cx)).map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => data,
            Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        };
    }
    let piece = match rest.len() > PIECE_BYTES {
        true => rest.split_to(PIECE_BYTES),
        false => std::mem::take(rest),
    };
    body.guard.note(Turn::Client, length(&piece));
    Poll::Ready(Some(Ok(Frame::data(piece))))
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
