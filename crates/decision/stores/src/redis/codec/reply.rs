//! Decodes the script's replies. Malformed ones are rejected.

use tidegate_algorithms::{
    Algorithm, Allowance, Holder, Limit, LogState, SlotsState, SoftState, State, Timestamp,
};
use tidegate_redis_link::NumberReader;

use super::state::{allowance, instant};

/// The outcome of a script call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) enum Reply<'a> {
    /// The checks were decided.
    Decided {
        /// Whether the checks that admit were charged.
        charged: bool,
        /// The state that each decision depends on.
        states: Vec<&'a [u8]>,
    },
    /// Nothing was done: only Rust can settle these states.
    Stale(Vec<&'a [u8]>),
    /// Nothing was done: two checks have the same key under limits that settle it differently.
    Conflicting(Vec<&'a [u8]>),
    /// The script failed for this call.
    Failed(String),
}

impl<'a> Reply<'a> {
    /// Decodes a reply to this many checks. `lone_bucket`: one check of a bucket without soft limit, whose state is
    /// reported without framing.
    pub(in crate::redis) fn read(body: &'a [u8], checks: usize, lone_bucket: bool) -> Option<Self> {
        if lone_bucket && matches!(body.len(), 0 | 12) {
            // Whether it was charged follows from the state.
            return Some(Reply::Decided { charged: true, states: vec![body] });
        }
        let (status, rest) = body.split_first()?;
        if lone_bucket && *status == b's' {
            return Some(Reply::Stale(vec![rest]));
        }
        match *status {
            b'c' if rest.is_empty() => Some(Reply::Decided { charged: true, states: Vec::new() }),
            b'c' => Some(Reply::Decided { charged: true, states: parts(rest, checks)? }),
            b'n' => Some(Reply::Decided { charged: false, states: parts(rest, checks)? }),
            b's' => Some(Reply::Stale(parts(rest, checks)?)),
            b'o' => Some(Reply::Conflicting(parts(rest, checks)?)),
            b'e' => Some(Reply::Failed(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}

fn parts(bytes: &[u8], count: usize) -> Option<Vec<&[u8]>> {
    let mut reader = NumberReader::new(bytes);
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let length = usize::try_from(reader.number(4)?).ok()?;
        parts.push(reader.bytes(length)?);
    }
    reader.is_empty().then_some(parts)
}

/// The state that a decision depends on: the whole state of the key, or the needed part of a sorted set.
pub(in crate::redis) fn reported_state(bytes: &[u8], limit: &Limit) -> Option<State> {
    if limit.algorithm().is_list() {
        return ListSummary::read(bytes)?.state(limit);
    }
    Some(super::state::decode(bytes))
}

/// The reported part of a sorted set.
#[derive(Clone, Copy, Debug)]
struct ListSummary<'a> {
    total: u64,
    /// The instant of the newest entry.
    last: Timestamp,
    allowance: Option<Allowance>,
    /// The oldest entries, as many as were needed.
    leading: NumberReader<'a>,
}

impl<'a> ListSummary<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = NumberReader::new(bytes);
        let (total, last) = (reader.number(7)?, instant(reader.number(7)?));
        let allowance = allowance(reader.number(7)?, reader.number(7)?);
        Some(ListSummary { total, last, allowance, leading: reader })
    }

    fn state(self, limit: &Limit) -> Option<State> {
        let inner = match limit.algorithm() {
            Algorithm::SlidingLog(_) => State::Log(self.log()?),
            Algorithm::Concurrency(_) => State::Slots(self.slots()?),
            Algorithm::TokenBucket(_)
            | Algorithm::LeakyBucket(_)
            | Algorithm::FixedWindow(_)
            | Algorithm::SlidingWindow(_) => return None,
        };
        if limit.soft().is_none() {
            return Some(inner);
        }
        Some(State::Soft(Box::new(SoftState { inner, allowance: self.allowance })))
    }

    fn log(mut self) -> Option<LogState> {
        let (mut entries, mut left) = (Vec::new(), self.total);
        while !self.leading.is_empty() {
            let (at, cost) = (instant(self.leading.number(7)?), self.leading.number(7)?);
            left = left.checked_sub(cost)?;
            entries.push((at, cost));
        }
        // The entries that were not reported count as one, the newest.
        entries.extend((left > 0).then_some((self.last, left)));
        Some(LogState::from_entries(entries))
    }

    fn slots(mut self) -> Option<SlotsState> {
        let (mut entries, mut left) = (Vec::new(), self.total);
        while !self.leading.is_empty() {
            let expires = instant(self.leading.number(7)?);
            let holder = Holder(self.leading.number(8)?);
            let count = self.leading.number(7)?;
            left = left.checked_sub(count)?;
            entries.push((holder, count, expires));
        }
        // An unused holder id stands for the slots that were not reported.
        entries.extend((left > 0).then_some((Holder(u64::MAX), left, self.last)));
        Some(SlotsState::from_entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_algorithms::{Concurrency, Period, SlidingLog};

    use super::*;

    proptest! {
        #[test]
        fn no_reply_breaks_the_reader(
            body in prop::collection::vec(any::<u8>(), 0..60),
            status in prop::sample::select(&b"cnsoe?"[..]),
            checks in 0..4_usize,
            lone in any::<bool>(),
        ) {
            let body: Vec<u8> = std::iter::once(status).chain(body).collect();
            if let Some(Reply::Decided { states, .. }) = Reply::read(&body, checks, lone) {
                prop_assert!(states.len() <= checks.max(1));
            }
        }

        #[test]
        fn no_summary_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let log = Limit::new(SlidingLog::new(5, Period::SECOND).unwrap());
            let slots = Limit::new(Concurrency::new(5, Period::SECOND).unwrap());
            let read =
                reported_state(&bytes, &log).is_some() || reported_state(&bytes, &slots).is_some();
            prop_assert!(!read || bytes.len() >= 28);
        }
    }
}
