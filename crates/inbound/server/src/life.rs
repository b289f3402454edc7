//! The life of one connection, as its worker watches it.
//!
//! The connection's task only counts: bytes read, requests begun and ended. It
//! sets no timer and reads no clock, so a request pays nothing for the
//! timeouts. The worker looks at all its connections four times a second,
//! [`Watch::judge`] says what a limit asks for, and the order goes back to the
//! task through [`Life`]. hyper's own timers would cost an allocation and an
//! entry in the timer's wheel for each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::settings::ConnectionLimits;
use super::stats::{OpenConnection, Stats};

/// The greeting of HTTP/2 is so long.
const PREFACE_BYTES: u64 = 24;

/// The first bytes of that greeting. No method of HTTP/1.1 in use begins so.
const PREFACE_START: u32 = u32::from_be_bytes([0, b'P', b'R', b'I']);
const START_BYTES: u64 = 3;

/// An idle connection that was asked to close and does not answer is cut after this long.
const CLOSE_GRACE: Duration = Duration::from_secs(10);

/// What a connection is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Order {
    Serve = 0,
    /// Finish what is begun, take no more.
    Finish = 1,
    /// Close at once.
    Cut = 2,
}

/// Shared by a connection's task and its worker.
#[derive(Debug)]
pub(super) struct Life {
    door: &'static str,
    open: OpenConnection,
    order: AtomicU8,
    waker: Mutex<Option<Waker>>,
    bytes: AtomicU64,
    start: AtomicU32,
    begun: AtomicU64,
    ended: AtomicU64,
    greeted: AtomicU8,
}

impl Life {
    pub(super) fn new(door: &'static str, open: OpenConnection) -> Self {
        Life {
            door,
            open,
            order: AtomicU8::new(Order::Serve as u8),
            waker: Mutex::new(None),
            bytes: AtomicU64::new(0),
            start: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            greeted: AtomicU8::new(0),
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

    /// Gives an order, unless a stricter one was given, and wakes the task to see it.
    pub(super) fn give(&self, order: Order) {
        if self.order() >= order {
            return;
        }
        self.order.store(order as u8, Relaxed);
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }

    /// Whom to wake for orders. A task's waker stays the same, so once is enough.
    pub(super) fn wake_by(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// The connection is encrypted, where it has to be, and HTTP begins.
    pub(super) fn greeted(&self) {
        self.greeted.store(1, Relaxed);
    }

    /// Takes note of bytes that were read from the client.
    pub(super) fn has_read(&self, bytes: &[u8]) {
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

    /// How many bytes were read from the client.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn sample(&self) -> Sample {
        let bytes = self.bytes.load(Relaxed);
        let start = self.start.load(Relaxed);
        let begun = self.begun.load(Relaxed);
        Sample {
            greeted: self.greeted.load(Relaxed) != 0,
            bytes,
            one: bytes >= START_BYTES && start != PREFACE_START,
            begun,
            in_flight: begun.saturating_sub(self.ended.load(Relaxed)),
        }
    }
}

/// Adds without a locked instruction: one thread alone writes these counters.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// A request that has begun and not ended.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Life>);

impl InFlight {
    pub(super) fn begin(life: &Arc<Life>) -> Self {
        add(&life.begun, 1);
        InFlight(Arc::clone(life))
    }

    pub(super) fn life(&self) -> &Life {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        add(&self.0.ended, 1);
    }
}

/// What a look at a connection shows.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    greeted: bool,
    bytes: u64,
    /// It speaks HTTP/1.1.
    one: bool,
    begun: u64,
    in_flight: u64,
}

/// What the worker remembers of a connection between two looks.
#[derive(Debug)]
pub(super) struct Watch {
    life: Arc<Life>,
    limits: ConnectionLimits,
    seen: Seen,
}

#[derive(Debug)]
struct Seen {
    /// When the phase began in which the client has to greet.
    since: Instant,
    greeted: bool,
    begun: u64,
    /// When it was last seen busy.
    quiet_since: Instant,
    /// Bytes that had been read when it was first seen quiet.
    quiet_bytes: u64,
    /// When more bytes came than that: the head of a request.
    head_since: Option<Instant>,
    age_at: Option<Instant>,
    cut_at: Option<Instant>,
}

impl Watch {
    /// Watches a connection that came `now`. `spread`, from 0 to 1, moves its greatest
    /// age by up to a tenth either way, so that connections that came together
    /// do not leave together.
    pub(super) fn new(
        life: Arc<Life>,
        limits: ConnectionLimits,
        now: Instant,
        spread: f64,
    ) -> Self {
        let age = limits.age_max.map(|age| age.mul_f64(0.9 + 0.2 * spread.clamp(0.0, 1.0)));
        let seen = Seen {
            since: now,
            greeted: false,
            begun: 0,
            quiet_since: now,
            quiet_bytes: 0,
            head_since: None,
            age_at: age.and_then(|age| now.checked_add(age)),
            cut_at: None,
        };
        Watch { life, limits, seen }
    }

    pub(super) fn life(&self) -> &Life {
        &self.life
    }

    /// Looks at the connection and gives the order that is due.
    pub(super) fn look(&mut self, now: Instant) {
        let order = self.seen.judge(&self.limits, self.life.sample(), now);
        self.life.give(order);
    }
}

impl Seen {
    fn judge(&mut self, limits: &ConnectionLimits, sample: Sample, now: Instant) -> Order {
        if self.cut_at.is_some_and(|at| now >= at) {
            return Order::Cut;
        }
        self.note(sample, now);
        if self.is_stalling(limits, sample, now) {
            return Order::Cut;
        }
        if self.age_at.is_some_and(|at| now >= at) {
            return self.finish_within(limits.age_grace, now);
        }
        let quiet = now.saturating_duration_since(self.quiet_since);
        if sample.in_flight == 0 && limits.idle_timeout.is_some_and(|timeout| quiet >= timeout) {
            return self.finish_within(CLOSE_GRACE, now);
        }
        Order::Serve
    }

    fn note(&mut self, sample: Sample, now: Instant) {
        if sample.greeted && !self.greeted {
            self.greeted = true;
            self.since = now;
        }
        if sample.in_flight > 0 || sample.begun != self.begun {
            self.begun = sample.begun;
            self.quiet_since = now;
            self.quiet_bytes = sample.bytes;
            self.head_since = None;
        } else if sample.bytes > self.quiet_bytes {
            self.head_since.get_or_insert(now);
        }
    }

    /// The client takes too long to encrypt, to greet or to send a head.
    fn is_stalling(&self, limits: &ConnectionLimits, sample: Sample, now: Instant) -> bool {
        let first = sample.begun == 0 && (sample.one || sample.bytes < PREFACE_BYTES);
        let since = if !sample.greeted || first {
            Some(self.since)
        } else {
            self.head_since.filter(|_| sample.one)
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
