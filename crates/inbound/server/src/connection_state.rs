//! The state of one connection, shared by its task and its worker, and the timeouts of the connection.
//!
//! The connection's task only counts: bytes read and written, requests begun and ended. It sets no timer and reads no
//! clock, so the timeouts cost a request nothing. The worker samples all its connections four times a second, [`TimeoutState::judge`]
//! decides which limit is exceeded, and the [`Order`] goes back to the task through [`ConnectionState`]. hyper's timers
//! would cost each request an allocation and an entry in the timer wheel.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::guard::{DoorGuard, NetworkSlot};
use super::response_body::{RateLimits, RateWindow, Responses};
use super::settings::{ConnectionLimits, Pressure};
use super::stats::{OpenConnection, Stats};

/// How hyper writes that it closes the connection after a response.
const CLOSE_LINE: &[u8] = b"\r\nconnection: close\r\n";

/// The length of the HTTP/2 connection preface.
const PREFACE_BYTES: u64 = 24;

/// The first three bytes of the preface. No HTTP/1.1 method in use begins with them.
const PREFACE_START: u32 = u32::from_be_bytes([0, b'P', b'R', b'I']);
const START_BYTES: u64 = 3;

/// How long an idle connection may take to close before it is cut.
const CLOSE_GRACE: Duration = Duration::from_secs(10);

/// How long an idle connection may take to close when another one needs its place.
const EVICT_GRACE: Duration = Duration::from_secs(1);

/// An order from the worker to a connection, from lenient to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Order {
    Serve = 0,
    /// Serve, and send `Connection: close` with the next HTTP/1.1 response.
    Announce = 1,
    /// Finish the requests in flight, accept no more.
    Finish = 2,
    /// Close immediately.
    Cut = 3,
}

/// The state that a connection's task shares with its worker.
#[derive(Debug)]
pub(super) struct ConnectionState {
    door: &'static str,
    /// The connection in the counts of its network. Dropped before `open`: a connection that is not counted as open has
    /// left its place.
    slot: OnceLock<NetworkSlot>,
    open: OpenConnection,
    /// The limits on connections by network.
    guard: Option<DoorGuard>,
    order: AtomicU8,
    waker: Mutex<Option<Waker>>,
    bytes: AtomicU64,
    /// The first bytes, as one number.
    start: AtomicU32,
    begun: AtomicU64,
    ended: AtomicU64,
    handshaken: AtomicU8,
    /// Requests whose service waits for more of the body.
    body_waits: AtomicU64,
    /// Bytes written to the client.
    written: AtomicU64,
    /// Whether the last write or flush was pending: the client does not read as fast as the server writes.
    write_blocked: AtomicBool,
    /// Bytes of HTTP/1.1 bodies that hyper has fetched and not written.
    unwritten: AtomicU64,
    /// The task of a body that waits until they are written.
    write_waiter: Mutex<Option<Waker>>,
    responses: Mutex<Responses>,
    /// Bytes that requests and responses of this connection hold in memory.
    held: AtomicU64,
    /// Whether all connections of the worker hold more than they should.
    crowded: AtomicBool,
    /// Whether the HTTP/1.1 response in flight can be taken from hyper.
    takeable: AtomicBool,
    /// Whether it is being taken.
    taken: AtomicBool,
    /// The number of the HTTP/1.1 request whose body has not been read to its end; 0 if there is none.
    open_request: AtomicU64,
    /// The number of the request that began last.
    last_request: AtomicU64,
    /// What is known about the head that hyper writes next.
    response_head: AtomicU8,
}

/// What is known about whether hyper closes the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ResponseHead {
    /// The fields of the request and of the response say it.
    Clear = 0,
    /// The head that is written next says it.
    Awaited = 1,
    /// It was written with `connection: close`.
    Closes = 2,
}

impl ConnectionState {
    pub(super) fn new(door: &'static str, open: OpenConnection, guard: Option<DoorGuard>) -> Self {
        ConnectionState {
            door,
            open,
            guard,
            slot: OnceLock::new(),
            order: AtomicU8::new(Order::Serve as u8),
            waker: Mutex::new(None),
            bytes: AtomicU64::new(0),
            start: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            handshaken: AtomicU8::new(0),
            body_waits: AtomicU64::new(0),
            written: AtomicU64::new(0),
            write_blocked: AtomicBool::new(false),
            unwritten: AtomicU64::new(0),
            write_waiter: Mutex::new(None),
            responses: Mutex::default(),
            held: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
            takeable: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            open_request: AtomicU64::new(0),
            last_request: AtomicU64::new(0),
            response_head: AtomicU8::new(ResponseHead::Clear as u8),
        }
    }

    pub(super) fn door(&self) -> &'static str {
        self.door
    }

    pub(super) fn stats(&self) -> &Arc<Stats> {
        self.open.stats()
    }

    /// The limits on connections by network.
    pub(super) const fn guard(&self) -> Option<&DoorGuard> {
        self.guard.as_ref()
    }

    /// Sets the place of the connection in the counts of its network. Called once.
    pub(super) fn set_slot(&self, slot: NetworkSlot) {
        // A connection has one client, so that there is no second slot.
        let _ = self.slot.set(slot);
    }

    /// The place of the connection in the counts of its network, if its network is limited.
    pub(super) fn slot(&self) -> Option<&NetworkSlot> {
        self.slot.get()
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::Serve,
            1 => Order::Announce,
            2 => Order::Finish,
            _ => Order::Cut,
        }
    }

    /// Sets an order unless a stricter one is set, and wakes the task.
    pub(super) fn set_order(&self, order: Order) {
        if self.order() >= order {
            return;
        }
        self.order.store(order as u8, Relaxed);
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }

    /// Sets the task to wake for orders. Called once: the waker of a task does not change.
    pub(super) fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Records that the PROXY header and the TLS handshake, if any, are done.
    pub(super) fn set_handshaken(&self) {
        self.handshaken.store(1, Relaxed);
    }

    /// Counts bytes that were read from the client.
    pub(super) fn record_read(&self, bytes: &[u8]) {
        let before = self.bytes.load(Relaxed);
        let mut start = self.start.load(Relaxed);
        let missing = usize::try_from(START_BYTES.saturating_sub(before)).unwrap_or(0);
        for byte in bytes.iter().take(missing) {
            start = (start << 8) | u32::from(*byte);
        }
        if missing > 0 {
            self.start.store(start, Relaxed);
        }
        add(&self.bytes, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    /// The number of bytes read from the client.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Records whether one more request waits for its body, or one fewer.
    pub(super) fn record_body_wait(&self, waits: bool) {
        add(&self.body_waits, if waits { 1 } else { u64::MAX });
    }

    /// Records the result of a write: bytes that the transport accepted, or that it is blocked.
    pub(super) fn record_write(&self, written: Option<usize>) {
        self.write_blocked.store(written.is_none(), Relaxed);
        if let Some(bytes) = written {
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            add(&self.written, bytes);
            let unwritten = self.unwritten.load(Relaxed);
            if unwritten > 0 {
                self.set_unwritten(unwritten.saturating_sub(bytes));
            }
        }
    }

    /// Records the result of a flush, which hyper calls when it has written everything.
    pub(super) fn record_flush(&self, is_done: bool) {
        self.write_blocked.store(!is_done, Relaxed);
        if is_done && self.unwritten.load(Relaxed) > 0 {
            self.set_unwritten(0);
        }
    }

    fn set_unwritten(&self, bytes: u64) {
        self.unwritten.store(bytes, Relaxed);
        if let Some(waker) = self.write_waiter.lock().take() {
            waker.wake();
        }
    }

    /// Counts bytes of an HTTP/1.1 body that hyper has fetched.
    pub(super) fn record_unwritten(&self, bytes: u64) {
        add(&self.unwritten, bytes);
    }

    /// Ready when fewer bytes of HTTP/1.1 bodies wait to be written.
    pub(super) fn poll_unwritten_below(&self, bytes_max: u64, cx: &mut Context<'_>) -> Poll<()> {
        if self.unwritten.load(Relaxed) < bytes_max {
            return Poll::Ready(());
        }
        // Woken by the write: hyper may flush after it polled the body, and then wait for nothing else.
        *self.write_waiter.lock() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the client does not read as fast as the server writes.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.write_blocked.load(Relaxed)
    }

    /// Records the start of an HTTP/1.1 request, and returns its number.
    pub(super) fn begin_request(&self, has_body: bool) -> u64 {
        add(&self.last_request, 1);
        let number = self.last_request.load(Relaxed);
        self.open_request.store(if has_body { number } else { 0 }, Relaxed);
        number
    }

    /// Records that the body of a request was read to its end. A body that is read after its response says nothing
    /// about the body of the next request.
    pub(super) fn end_request_body(&self, number: u64) {
        if self.open_request.load(Relaxed) != number {
            return;
        }
        self.open_request.store(0, Relaxed);
        // The request may be taken from hyper now.
        if has_many_requests()
            && let Some(waker) = &*self.waker.lock()
        {
            waker.wake_by_ref();
        }
    }

    /// Whether hyper still reads the body of the HTTP/1.1 request in flight.
    pub(super) fn is_request_open(&self) -> bool {
        self.open_request.load(Relaxed) != 0
    }

    /// Sets whether only the head that hyper writes next says whether the connection closes after the response.
    pub(super) fn await_response_head(&self, is_awaited: bool) {
        let head = if is_awaited { ResponseHead::Awaited } else { ResponseHead::Clear };
        self.response_head.store(head as u8, Relaxed);
    }

    /// Reads the head of a response as hyper writes it, if it is awaited.
    pub(super) fn read_response_head(&self, written: &[u8]) {
        if self.response_head.load(Relaxed) != ResponseHead::Awaited as u8 {
            return;
        }
        let closes = written.windows(CLOSE_LINE.len()).any(|line| line == CLOSE_LINE);
        let head = if closes { ResponseHead::Closes } else { ResponseHead::Clear };
        self.response_head.store(head as u8, Relaxed);
    }

    /// Whether the head that was awaited closes the connection.
    pub(super) fn has_closing_head(&self) -> bool {
        self.response_head.load(Relaxed) == ResponseHead::Closes as u8
    }

    /// Sets whether the HTTP/1.1 response in flight can be taken from hyper.
    pub(super) fn set_takeable(&self, is_takeable: bool) {
        self.takeable.store(is_takeable, Relaxed);
    }

    /// Whether the HTTP/1.1 response in flight can be taken from hyper: not while hyper reads the body of the request.
    pub(super) fn is_takeable(&self) -> bool {
        self.takeable.load(Relaxed) && !self.is_request_open()
    }

    /// Sets whether a response is being taken from hyper.
    pub(super) fn set_taken(&self, is_taken: bool) {
        self.taken.store(is_taken, Relaxed);
        if !is_taken {
            self.set_unwritten(0);
        }
    }

    /// Whether a response is being taken from hyper, which must not keep anything that it would write.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Relaxed)
    }

    /// The responses whose bodies have not ended.
    pub(super) fn responses(&self) -> MutexGuard<'_, Responses> {
        self.responses.lock()
    }

    /// Bytes that requests and responses hold in memory.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Whether all connections of the worker hold more than they should.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Relaxed)
    }

    /// Counts bytes that are held instead of others.
    pub(super) fn replace_held(&self, before: u64, now: u64) {
        if before != now {
            add(&self.held, now.wrapping_sub(before));
        }
    }

    fn sample(&self) -> Sample {
        let bytes = self.bytes.load(Relaxed);
        let start = self.start.load(Relaxed);
        let begun = self.begun.load(Relaxed);
        Sample {
            handshaken: self.handshaken.load(Relaxed) != 0,
            bytes,
            is_http1: bytes >= START_BYTES && start != PREFACE_START,
            begun,
            in_flight: begun.saturating_sub(self.ended.load(Relaxed)),
            body_waits: self.body_waits.load(Relaxed),
            written: self.written.load(Relaxed),
            write_blocked: self.write_blocked.load(Relaxed),
        }
    }
}

/// Adds without a locked instruction: only one thread writes these counters.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// A worker with more requests in flight than this has many.
const REQUESTS_MANY: usize = 250;

thread_local! {
    /// The requests in flight of this worker.
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

/// Whether the worker of this thread has many requests in flight, so that each should hold little memory.
pub fn has_many_requests() -> bool {
    REQUESTS.get() > REQUESTS_MANY
}

/// A request in flight, counted as ended when dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest(Arc<ConnectionState>);

impl InFlightRequest {
    pub(super) fn begin(state: &Arc<ConnectionState>) -> Self {
        add(&state.begun, 1);
        REQUESTS.set(REQUESTS.get().saturating_add(1));
        InFlightRequest(Arc::clone(state))
    }

    pub(super) fn state(&self) -> &ConnectionState {
        &self.0
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        add(&self.0.ended, 1);
        // A task ends on the thread of its worker.
        REQUESTS.set(REQUESTS.get().saturating_sub(1));
    }
}

/// The counters of a connection at one instant.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    handshaken: bool,
    bytes: u64,
    is_http1: bool,
    begun: u64,
    in_flight: u64,
    body_waits: u64,
    written: u64,
    write_blocked: bool,
}

impl Sample {
    /// Whether nothing but its client can move the connection.
    const fn waits_for_client(&self) -> bool {
        self.in_flight == 0 || self.body_waits >= self.in_flight
    }
}

/// Watches the timeouts of one connection.
#[derive(Debug)]
pub(super) struct TimeoutWatch {
    state: Arc<ConnectionState>,
    limits: ConnectionLimits,
    pressure: Option<Pressure>,
    timeouts: TimeoutState,
}

/// The instants from which timeouts run, kept between two samples.
#[derive(Debug)]
struct TimeoutState {
    /// The beginning of the handshake; once that is done, of the first request's head or the preface.
    since: Instant,
    handshaken: bool,
    begun: u64,
    /// The last sample with a request in flight.
    idle_since: Instant,
    /// Bytes read by then.
    idle_bytes: u64,
    /// The first sample with more bytes than that: the head of a request has begun.
    head_since: Option<Instant>,
    /// The last sample with new bytes of the client, or with a request that does not wait for any.
    quiet_since: Instant,
    quiet_bytes: u64,
    /// How fast the client takes what is written.
    rate: RateWindow,
    /// When the connection reaches its maximum age.
    age_at: Option<Instant>,
    cut_at: Option<Instant>,
}

impl TimeoutWatch {
    /// Watches a connection that was accepted `now`. `jitter`, from 0 to 1, changes its maximum age by up to a tenth
    /// either way, so that connections opened together are not closed together.
    pub(super) fn new(
        state: Arc<ConnectionState>,
        limits: ConnectionLimits,
        now: Instant,
        jitter: f64,
    ) -> Self {
        let age = limits.age_max.map(|age| age.mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0)));
        let timeouts = TimeoutState {
            since: now,
            handshaken: false,
            begun: 0,
            idle_since: now,
            idle_bytes: 0,
            head_since: None,
            quiet_since: now,
            quiet_bytes: 0,
            rate: RateWindow::default(),
            age_at: age.and_then(|age| now.checked_add(age)),
            cut_at: None,
        };
        TimeoutWatch { state, limits, pressure: None, timeouts }
    }

    /// Cuts clients that do not read sooner while the service is under pressure.
    pub(super) fn with_pressure(self, pressure: Option<Pressure>) -> Self {
        TimeoutWatch { pressure, ..self }
    }

    pub(super) fn state(&self) -> &ConnectionState {
        &self.state
    }

    /// Samples the connection, and orders it to close if a limit is exceeded. Returns the bytes that it holds;
    /// `held_in_all` are those of all connections of the worker.
    pub(super) fn check(&mut self, now: Instant, held_in_all: u64) -> u64 {
        self.state.crowded.store(held_in_all > self.limits.held_bytes_total, Relaxed);
        let sample = self.state.sample();
        let rates = RateLimits::new(&self.limits, self.pressure.as_ref());
        let mut order = self.timeouts.judge(&self.limits, &rates, sample, now);
        let stalled = self.state.responses().cut_stalled(&rates, now);
        // An HTTP/1.1 response is cut with its connection, an HTTP/2 response by its task.
        if stalled && sample.is_http1 {
            order = Order::Cut;
        }
        self.state.set_order(order);
        self.state.held()
    }

    /// Orders a connection to close whose client has been silent for this long, in favour of a new one. Returns
    /// whether it does.
    pub(super) fn evict(&mut self, quiet_min: Duration, now: Instant) -> bool {
        let sample = self.state.sample();
        self.timeouts.update(sample, now);
        let quiet = now.saturating_duration_since(self.timeouts.quiet_since);
        if self.timeouts.cut_at.is_some() || !sample.waits_for_client() || quiet < quiet_min {
            return false;
        }
        let idle = sample.begun > 0 && sample.in_flight == 0 && self.timeouts.head_since.is_none();
        let order = if idle { self.timeouts.finish_within(EVICT_GRACE, now) } else { Order::Cut };
        self.state.set_order(order);
        true
    }

    /// How long the client has been silent, as far as the last sample knows.
    pub(super) fn quiet_since(&self) -> Instant {
        self.timeouts.quiet_since
    }

    /// Orders a connection to finish when the server stops. One over HTTP/1.1 that was used a moment ago
    /// closes with its next response, because its client may be sending a request already. Returns whether it does.
    pub(super) fn finish_or_announce(&self, recent: Duration, now: Instant) -> bool {
        let sample = self.state.sample();
        let idle = now.saturating_duration_since(self.timeouts.idle_since);
        let used = sample.begun != self.timeouts.begun || sample.in_flight > 0 || idle < recent;
        // A new connection has not shown its protocol yet.
        let announces = (sample.is_http1 || sample.bytes == 0) && used;
        self.state.set_order(if announces { Order::Announce } else { Order::Finish });
        announces
    }
}

impl TimeoutState {
    fn judge(
        &mut self,
        limits: &ConnectionLimits,
        rates: &RateLimits<'_>,
        sample: Sample,
        now: Instant,
    ) -> Order {
        if self.cut_at.is_some_and(|at| now >= at) {
            return Order::Cut;
        }
        self.update(sample, now);
        let slow = self.rate.is_too_slow(rates, sample.write_blocked, sample.written, now);
        if slow || self.is_stalling(limits, sample, now) {
            return Order::Cut;
        }
        if self.age_at.is_some_and(|at| now >= at) {
            return self.finish_within(limits.age_grace, now);
        }
        let idle = now.saturating_duration_since(self.idle_since);
        if sample.in_flight == 0 && limits.idle_timeout.is_some_and(|timeout| idle >= timeout) {
            return self.finish_within(CLOSE_GRACE, now);
        }
        Order::Serve
    }

    fn update(&mut self, sample: Sample, now: Instant) {
        if sample.handshaken && !self.handshaken {
            self.handshaken = true;
            self.since = now;
        }
        if sample.bytes != self.quiet_bytes || !sample.waits_for_client() {
            self.quiet_bytes = sample.bytes;
            self.quiet_since = now;
        }
        if sample.in_flight > 0 || sample.begun != self.begun || sample.write_blocked {
            self.begun = sample.begun;
            self.idle_since = now;
            self.idle_bytes = sample.bytes;
            self.head_since = None;
        } else if sample.bytes > self.idle_bytes {
            self.head_since.get_or_insert(now);
        }
    }

    /// Whether the client takes too long for the handshake, the preface or the head of a request.
    fn is_stalling(&self, limits: &ConnectionLimits, sample: Sample, now: Instant) -> bool {
        let first = sample.begun == 0 && (sample.is_http1 || sample.bytes < PREFACE_BYTES);
        let since = if !sample.handshaken || first {
            Some(self.since)
        } else {
            self.head_since.filter(|_| sample.is_http1)
        };
        since.is_some_and(|since| now.saturating_duration_since(since) >= limits.header_timeout)
    }

    fn finish_within(&mut self, grace: Duration, now: Instant) -> Order {
        if self.cut_at.is_none() {
            self.cut_at = now.checked_add(grace);
        }
        Order::Finish
    }
}

#[cfg(test)]
mod tests;
