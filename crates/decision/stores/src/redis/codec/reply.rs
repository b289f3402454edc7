//! What the script says, taken apart. Nothing of it is trusted.

use tidegate_algorithms::{
    Algorithm, Holder, Limit, LogState, SlotsState, SoftState, State, Timestamp,
};

use super::bytes::Reader;
use super::state::{allowance, instant};

/// What became of a parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) enum Reply<'a> {
    /// It was decided.
    Decided {
        /// Whether the checks that admit were charged.
        charged: bool,
        /// What each check rests on.
        told: Vec<&'a [u8]>,
    },
    /// Nothing was done: the states are such that only Rust can settle them.
    Stale(Vec<&'a [u8]>),
    /// Nothing was done: one key stands twice, under limits that settle it differently.
    Odd(Vec<&'a [u8]>),
    /// Something went wrong with this parcel.
    Failed(String),
}

/// Reads an answer to so many checks; `lone_bucket` when it is one check of a
/// hard bucket, which is told without any framing.
impl<'a> Reply<'a> {
    pub(in crate::redis) fn read(body: &'a [u8], checks: usize, lone_bucket: bool) -> Option<Self> {
        if lone_bucket && matches!(body.len(), 0 | 12) {
            // Rust decides the same from the state.
            return Some(Reply::Decided { charged: true, told: vec![body] });
        }
        let (status, rest) = body.split_first()?;
        if lone_bucket && *status == b's' {
            return Some(Reply::Stale(vec![rest]));
        }
        match *status {
            b'c' if rest.is_empty() => Some(Reply::Decided { charged: true, told: Vec::new() }),
            b'c' => Some(Reply::Decided { charged: true, told: parts(rest, checks)? }),
            b'n' => Some(Reply::Decided { charged: false, told: parts(rest, checks)? }),
            b's' => Some(Reply::Stale(parts(rest, checks)?)),
            b'o' => Some(Reply::Odd(parts(rest, checks)?)),
            b'e' => Some(Reply::Failed(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}

fn parts(bytes: &[u8], count: usize) -> Option<Vec<&[u8]>> {
    let mut reader = Reader::new(bytes);
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let length = usize::try_from(reader.number(4)?).ok()?;
        parts.push(reader.bytes(length)?);
    }
    reader.is_empty().then_some(parts)
}

/// The state that a check rests on: the key's own, or as much of a sorted
/// set as its answer needs.
pub(in crate::redis) fn told_state(bytes: &[u8], limit: &Limit) -> Option<State> {
    if limit.algorithm().is_list() {
        return Summary::read(bytes)?.state(limit);
    }
    Some(super::state::decode(bytes))
}

/// What is told of a sorted set.
#[derive(Clone, Copy, Debug)]
struct Summary<'a> {
    total: u64,
    /// The instant of the newest entry.
    last: Timestamp,
    allowance: Option<(Timestamp, Timestamp)>,
    /// The oldest entries, as many as were needed.
    leading: Reader<'a>,
}

impl<'a> Summary<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (total, last) = (reader.number(7)?, instant(reader.number(7)?));
        let allowance = allowance(reader.number(7)?, reader.number(7)?);
        Some(Summary { total, last, allowance, leading: reader })
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
        Some(State::Soft(Box::new(SoftState::from_parts(inner, self.allowance))))
    }

    fn log(mut self) -> Option<LogState> {
        let (mut entries, mut left) = (Vec::new(), self.total);
        while !self.leading.is_empty() {
            let (at, cost) = (instant(self.leading.number(7)?), self.leading.number(7)?);
            left = left.checked_sub(cost)?;
            entries.push((at, cost));
        }
        // What is not told counts as one entry, the newest.
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
        // A holder that nobody is: it gives nothing back.
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
        fn no_answer_breaks_the_reader(
            body in prop::collection::vec(any::<u8>(), 0..60),
            status in prop::sample::select(&b"cnsoe?"[..]),
            checks in 0..4_usize,
            lone in any::<bool>(),
        ) {
            let body: Vec<u8> = std::iter::once(status).chain(body).collect();
            if let Some(Reply::Decided { told, .. }) = Reply::read(&body, checks, lone) {
                prop_assert!(told.len() <= checks.max(1));
            }
        }

        #[test]
        fn no_summary_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let log = Limit::new(SlidingLog::new(5, Period::SECOND).unwrap());
            let slots = Limit::new(Concurrency::new(5, Period::SECOND).unwrap());
            let told = told_state(&bytes, &log).is_some() || told_state(&bytes, &slots).is_some();
            prop_assert!(!told || bytes.len() >= 28);
        }
    }
}
