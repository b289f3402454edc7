//! The checks of a request as one parcel.

use tidegate_algorithms::{Limit, Timestamp};

use super::bytes::{Body, put};
use super::record::put_check;
use crate::batch::{Batch, Charge, Check, Verb};
use crate::redis::key;
use crate::redis::parcel::Parcel;

/// What the script does with the checks of a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::redis) enum Order {
    /// Say what is there.
    Read = 0,
    /// Charge all that admit, if the request passes.
    All = 1,
    /// Charge all that admit.
    Always = 2,
    /// Charge what is left, up to the cost.
    Take = 3,
    /// Give back.
    Refund = 4,
    /// Forget.
    Reset = 5,
    /// Charge, whatever is left.
    Charge = 6,
    /// Let the slots of a holder live on.
    Renew = 7,
    /// Charge nobody: the request has been refused elsewhere.
    Nobody = 8,
    /// Put other states in place of those that were read.
    Swap = 9,
}

impl Order {
    pub(in crate::redis) const fn of(batch: &Batch<'_>) -> Self {
        match (batch.verb, batch.charge) {
            (Verb::Check, Charge::AllOrNothing) => Order::All,
            (Verb::Check, Charge::Always) => Order::Always,
            (Verb::Peek, _) => Order::Read,
            (Verb::Take, _) => Order::Take,
            (Verb::Refund, _) => Order::Refund,
            (Verb::Reset, _) => Order::Reset,
            (Verb::Charge, _) => Order::Charge,
        }
    }
}

/// A state that only Rust could settle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) struct Settled {
    /// The place of its check.
    pub(in crate::redis) index: usize,
    /// What is there.
    pub(in crate::redis) was: Vec<u8>,
    /// What that means now.
    pub(in crate::redis) becomes: Vec<u8>,
    /// For how many seconds.
    pub(in crate::redis) lives: u64,
}

/// The most states that one parcel settles; the rest are settled by the next.
const SETTLED_MAX: usize = 255;
/// Marks a parcel that brings settled states.
const BRINGS_SETTLED: u8 = 128;
/// Says that the number of checks follows in two bytes.
const MANY: usize = 255;

/// What goes into a parcel.
#[derive(Clone, Copy, Debug)]
pub(in crate::redis) struct Request<'a> {
    pub(in crate::redis) order: Order,
    pub(in crate::redis) checks: &'a [Check<'a>],
    /// The limit of each check as it is kept.
    pub(in crate::redis) limits: &'a [std::borrow::Cow<'a, Limit>],
    /// What the server's clock is expected to show.
    pub(in crate::redis) expected: Timestamp,
    pub(in crate::redis) settled: &'a [Settled],
}

impl Request<'_> {
    /// The parcel, with keys that begin with `prefix`.
    pub(in crate::redis) fn parcel(&self, prefix: &[u8]) -> Parcel {
        let keys = self.checks.iter().map(|check| key::text(prefix, check.key.fingerprint));
        let tag = self.checks.first().map_or(0, |check| check.key.fingerprint.tag());
        Parcel { tag, keys: keys.collect(), body: self.body() }
    }

    fn body(&self) -> Body {
        let mut body = Body::new();
        if self.checks.len() < MANY {
            put(&mut body, self.checks.len() as u64, 1);
        } else {
            put(&mut body, MANY as u64, 1);
            put(&mut body, self.checks.len() as u64, 2);
        }
        let settled = self.settled.get(..SETTLED_MAX).unwrap_or(self.settled);
        let brings = if settled.is_empty() { 0 } else { BRINGS_SETTLED };
        body.push(self.order as u8 + brings);
        put_settled(&mut body, settled);
        if !matches!(self.order, Order::Swap) {
            for (check, limit) in self.checks.iter().zip(self.limits) {
                let spent = self.spent_on(check);
                put_check(&mut body, self.order, check, limit, self.expected, spent);
            }
        }
        body
    }

    /// What all checks of the same key cost.
    fn spent_on(&self, check: &Check<'_>) -> u64 {
        let same = self.checks.iter().filter(|other| other.key == check.key);
        same.fold(0, |sum, other| sum.saturating_add(other.cost))
    }
}

fn put_settled(body: &mut Body, settled: &[Settled]) {
    if settled.is_empty() {
        return;
    }
    put(body, settled.len() as u64, 1);
    for state in settled {
        put(body, state.index as u64 + 1, 2);
        put(body, state.was.len() as u64, 2);
        body.extend_from_slice(&state.was);
        put(body, state.becomes.len() as u64, 2);
        body.extend_from_slice(&state.becomes);
        put(body, state.lives, 4);
    }
}
