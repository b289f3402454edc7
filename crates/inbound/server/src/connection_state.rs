//! The state of one connection, shared by its task and its worker, and the timeouts of the connection.
//!
//! The connection's task only counts: bytes read, requests begun and ended. It sets no timer and reads no clock, so the
//! timeouts cost a request nothing. The worker samples all its connections four times a second, [`TimeoutState::judge`]
//! decides which limit is exceeded, and the [`Order`] goes back to the task through [`ConnectionState`]. hyper's timers
//! would cost each request an allocation and an entry in the timer wheel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::settings::ConnectionLimits;
use super::stats::{OpenConnection, Stats};

/// The length of the HTTP/2 connection preface.
const PREFACE_BYTES: u64 = 24;

/// The first three bytes of the preface. No HTTP/1.1 method in use begins with them.
const PREFACE_START: u32 = u32::from_be_bytes([0, b'P', b'R', b'I']);
const START_BYTES: u64 = 3;

/// How long an idle connection may take to close before it is cut.
const CLOSE_GRACE: Duration = Duration::from_secs(10);

/// An order from the worker to a connection, from lenient to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Order {
    Serve = 0,
    /// Finish the requests in flight, accept no more.
    Finish = 1,
    /// Close immediately.
    Cut = 2,
}

/// The state that a connection's task shares with its worker.
#[derive(Debug)]
pub(super) struct ConnectionState {
    door: &'static str,
    open: OpenConnection,
    order: AtomicU8,
    waker: Mutex<Option<Waker>>,
    bytes: AtomicU64,
    /// The first bytes, as one number.
    start: AtomicU32,
    begun: AtomicU64,
    ended: AtomicU64,
    handshaken: AtomicU8,
}

impl ConnectionState {
    pub(super) fn new(door: &'static str, open: OpenConnection) -> Self {
        ConnectionState {
            door,
            open,
            order: AtomicU8::new(Order::Serve as u8),
            waker: Mutex::new(None),
            bytes: AtomicU64::new(0),
            start: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            handshaken: AtomicU8::new(0),
        }
    }

    pub(super) fn door(&self) -> &'static str {
        self.door
    }

    pub(super) fn stats(&self) -> &Arc<Stats> {
        self.open.stats()
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::Serve,
            1 => Order::Finish,
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
        }
    }
}

/// Adds without a locked instruction: only one thread writes these counters.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// A request in flight, counted as ended when dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest(Arc<ConnectionState>);

impl InFlightRequest {
    pub(super) fn begin(state: &Arc<ConnectionState>) -> Self {
        add(&state.begun, 1);
        InFlightRequest(Arc::clone(state))
    }

    pub(super) fn state(&self) -> &ConnectionState {
        &self.0
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        add(&self.0.ended, 1);
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
}

/// Watches the timeouts of one connection.
#[derive(Debug)]
pub(super) struct TimeoutWatch {
    state: Arc<ConnectionState>,
    limits: ConnectionLimits,
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
            age_at: age.and_then(|age| now.checked_add(age)),
            cut_at: None,
        };
        TimeoutWatch { state, limits, timeouts }
    }

    pub(super) fn state(&self) -> &ConnectionState {
        &self.state
    }

    /// Samples the connection, and orders it to close if a limit is exceeded.
    pub(super) fn check(&mut self, now: Instant) {
        let order = self.timeouts.judge(&self.limits, self.state.sample(), now);
        self.state.set_order(order);
    }
}

impl TimeoutState {
    fn judge(&mut self, limits: &ConnectionLimits, sample: Sample, now: Instant) -> Order {
        if self.cut_at.is_some_and(|at| now >= at) {
            return Order::Cut;
        }
        self.update(sample, now);
        if self.is_stalling(limits, sample, now) {
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
        if sample.in_flight > 0 || sample.begun != self.begun {
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
