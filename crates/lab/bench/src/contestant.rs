//! The measured limiters, ours and its peers, behind one trait.
//!
//! Each reads its own clock for each decision and hands out its whole answer.
//! Keys of peers are `String`s, as their interfaces ask for.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher, RandomState};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use governor::clock::{DefaultClock, QuantaInstant};
use governor::middleware::{NoOpMiddleware, RateLimitingMiddleware, StateInformationMiddleware};
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use spinning_top::Spinlock;
use throttlecrab::PeriodicStore;
use tidegate_engine::{Clock, KeyedLimiter, Limit, MemoryConfig, Period, SystemClock, TokenBucket};
use tidegate_stores::Fingerprinter;

use crate::keys::KeyBuffer;
use crate::stopwatch::time_of_day;

/// A burst that no run uses up. At one token a minute it takes 68 years to refill; our buckets
/// hold at most 73 years' worth.
const BURST: u32 = 36_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
/// Room for 10M keys and more.
const BUDGET_BYTES: usize = 1024 * 1024 * 1024;
/// The seed of hash functions: with a fixed one, tables grow at the same inserts in every run.
const SEED: u64 = 7;

/// A limiter for many keys.
pub(crate) trait Contestant: Sync {
    /// Decides one request. Implementations pass the whole answer to `black_box`, so that the
    /// compiler cannot skip parts of it; by reference, so that large answers are not copied.
    fn admits(&self, key: &KeyBuffer) -> bool;

    /// The number of keys it holds, if it has a method for that.
    fn keys(&self) -> Option<usize>;
}

/// Verifies that no key was dropped; otherwise the measured table is smaller than its row says.
///
/// # Errors
/// When a contestant holds fewer keys than it was given, or more.
pub(crate) fn ensure_holds(contestant: &dyn Contestant, keys: u64) -> anyhow::Result<()> {
    match contestant.keys() {
        Some(held) if held as u64 != keys => bail!("{held} keys are held, not {keys}"),
        _ => Ok(()),
    }
}

/// The contestants by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContestantName {
    Tidegate,
    Governor,
    Throttlecrab,
}

impl fmt::Display for ContestantName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            ContestantName::Tidegate => "tidegate",
            ContestantName::Governor => "governor",
            ContestantName::Throttlecrab => "throttlecrab",
        })
    }
}

impl ContestantName {
    /// A contestant with room for 10M keys, all of which it admits and keeps. It is built in the
    /// same way in every run.
    pub(crate) fn spacious(self) -> anyhow::Result<Box<dyn Contestant>> {
        let terms = Terms::Keep;
        Ok(match self {
            ContestantName::Tidegate => Box::new(TidegateLimiter::spacious(terms)?),
            ContestantName::Governor => {
                let hasher = BuildHasherDefault::<DefaultHasher>::default();
                Box::new(Governor::with_hasher(terms, hasher)?)
            }
            ContestantName::Throttlecrab => Box::new(Throttlecrab::new(terms)),
        })
    }
}

/// The limit of all keys in a run.
///
/// A bucket that is full again is idle, and our table evicts idle keys while the peers keep them.
/// So one token must take longer to refill than the insertion of all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// One a minute, with a burst that no run uses up.
    Admit,
    /// One a day, two at once, for keys that are used once: none becomes idle.
    Keep,
    /// The same, for keys that are used often: all requests but the first two are refused. The
    /// burst is not one, because throttlecrab then drops the key at once and refuses nothing.
    Refuse,
}

impl Terms {
    const fn burst(self) -> u32 {
        match self {
            Terms::Admit => BURST,
            Terms::Keep | Terms::Refuse => 2,
        }
    }

    const fn interval(self) -> Duration {
        match self {
            Terms::Admit => MINUTE,
            Terms::Keep | Terms::Refuse => DAY,
        }
    }

    /// The requests that bring a new key into the state to measure.
    pub(crate) const fn first(self) -> u32 {
        match self {
            Terms::Admit | Terms::Keep => 1,
            Terms::Refuse => self.burst(),
        }
    }

    /// Whether requests for known keys are admitted.
    pub(crate) const fn admits_known(self) -> bool {
        !matches!(self, Terms::Refuse)
    }
}

/// Our limiter.
#[derive(Debug)]
pub(crate) struct TidegateLimiter(KeyedLimiter);

impl TidegateLimiter {
    /// With the default settings.
    pub(crate) fn new(terms: Terms) -> anyhow::Result<Self> {
        Ok(TidegateLimiter(KeyedLimiter::new(limit(terms))?))
    }

    /// With a large budget and a fixed seed.
    fn spacious(terms: Terms) -> anyhow::Result<Self> {
        let memory = MemoryConfig {
            budget_bytes: BUDGET_BYTES,
            seed: Some(SEED),
            ..MemoryConfig::default()
        };
        Ok(TidegateLimiter(KeyedLimiter::with(limit(terms), memory, SystemClock::new())?))
    }
}

fn limit(terms: Terms) -> Limit {
    let period = match terms {
        Terms::Admit => Period::MINUTE,
        Terms::Keep | Terms::Refuse => Period::DAY,
    };
    Limit::new(TokenBucket::new(1, period, terms.burst().into()))
}

impl Contestant for TidegateLimiter {
    #[inline]
    fn admits(&self, key: &KeyBuffer) -> bool {
        let decision = self.0.check(key.as_str());
        black_box(&decision).is_admitted()
    }

    fn keys(&self) -> Option<usize> {
        Some(self.0.store().stats().keys)
    }
}

/// governor's limiter for many keys, with its default settings.
#[derive(Debug)]
pub(crate) struct Governor<S = RandomState, M = NoOpMiddleware>(
    RateLimiter<String, DashMapStateStore<String, S>, DefaultClock, M>,
)
where
    S: BuildHasher + Clone,
    M: RateLimitingMiddleware<QuantaInstant>;

impl Governor {
    pub(crate) fn new(terms: Terms) -> anyhow::Result<Self> {
        Self::with_hasher(terms, RandomState::new())
    }

    /// With the middleware that also returns the remaining quota, as our limiter does.
    pub(crate) fn with_figures(self) -> Governor<RandomState, StateInformationMiddleware> {
        Governor(self.0.with_middleware())
    }
}

impl<S: BuildHasher + Clone + Default> Governor<S> {
    fn with_hasher(terms: Terms, hasher: S) -> anyhow::Result<Self> {
        let quota = Quota::with_period(terms.interval()).context("the interval is zero")?;
        let quota = quota.allow_burst(NonZeroU32::new(terms.burst()).context("the burst is zero")?);
        Ok(Governor(RateLimiter::dashmap_with_hasher(quota, hasher)))
    }
}

impl<S, M> Contestant for Governor<S, M>
where
    S: BuildHasher + Clone + Sync + Send,
    M: RateLimitingMiddleware<QuantaInstant> + Sync,
{
    #[inline]
    fn admits(&self, key: &KeyBuffer) -> bool {
        let answer = self.0.check_key(key.as_string());
        black_box(&answer).is_ok()
    }

    fn keys(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// throttlecrab's library, in a mutex because its methods take `&mut self`.
pub(crate) struct Throttlecrab {
    limiter: Mutex<throttlecrab::RateLimiter<PeriodicStore>>,
    burst: i64,
    period_secs: i64,
}

impl fmt::Debug for Throttlecrab {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Throttlecrab").field("burst", &self.burst).finish_non_exhaustive()
    }
}

impl Throttlecrab {
    pub(crate) fn new(terms: Terms) -> Self {
        let limiter = Mutex::new(throttlecrab::RateLimiter::new(PeriodicStore::new()));
        let period_secs = i64::try_from(terms.interval().as_secs()).unwrap_or(i64::MAX);
        Throttlecrab { limiter, burst: terms.burst().into(), period_secs }
    }
}

impl Contestant for Throttlecrab {
    #[inline]
    fn admits(&self, key: &KeyBuffer) -> bool {
        let mut limiter = self.limiter.lock();
        let now = time_of_day();
        let answer = limiter.rate_limit(key.as_str(), self.burst, 1, self.period_secs, 1, now);
        drop(limiter);
        matches!(black_box(&answer), Ok((true, _)))
    }

    fn keys(&self) -> Option<usize> {
        None
    }
}

/// Decides nothing, which leaves the cost of making keys.
#[derive(Debug)]
pub(crate) struct NoLimiter(pub(crate) Terms);

impl Contestant for NoLimiter {
    #[inline]
    fn admits(&self, key: &KeyBuffer) -> bool {
        black_box(key.as_str());
        self.0.admits_known()
    }

    fn keys(&self) -> Option<usize> {
        None
    }
}

/// Decides nothing either, but takes the steps that every limiter of ours needs: it reads the
/// clock and stores the time in a word chosen by the key's fingerprint, under that word's lock.
#[derive(Debug)]
pub(crate) struct Least {
    terms: Terms,
    clock: SystemClock,
    fingerprinter: Fingerprinter,
    words: Vec<Word>,
}

/// In a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Word(Spinlock<(u64, u64)>);

impl Least {
    const WORDS: usize = 256;

    pub(crate) fn new(terms: Terms) -> Self {
        let words = (0..Self::WORDS).map(|_| Word::default()).collect();
        let (clock, fingerprinter) = (SystemClock::new(), Fingerprinter::random());
        Least { terms, clock, fingerprinter, words }
    }
}

impl Contestant for Least {
    #[inline]
    fn admits(&self, key: &KeyBuffer) -> bool {
        let mut bits = Bits::default();
        self.fingerprinter.of(0, key.as_str().as_bytes()).hash(&mut bits);
        let now = self.clock.now().as_nanos();
        if let Some(Word(word)) = self.words.get(usize::from(bits.0.to_le_bytes()[0])) {
            let mut word = word.lock();
            *word = (bits.0, word.1.max(now) + 1);
        }
        self.terms.admits_known()
    }

    fn keys(&self) -> Option<usize> {
        None
    }
}

/// The last word that was hashed, as it is.
#[derive(Debug, Default)]
struct Bits(u64);

impl Hasher for Bits {
    #[inline]
    fn write(&mut self, _: &[u8]) {}

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(terms: Terms) -> Vec<Box<dyn Contestant>> {
        vec![
            Box::new(TidegateLimiter::new(terms).unwrap()),
            Box::new(Governor::new(terms).unwrap()),
            Box::new(Governor::new(terms).unwrap().with_figures()),
            Box::new(Throttlecrab::new(terms)),
        ]
    }

    fn answers(contestant: &dyn Contestant) -> Vec<bool> {
        let mut key = KeyBuffer::default();
        key.fill("somebody");
        (0..1_000).map(|_| contestant.admits(&key)).collect()
    }

    #[test]
    fn every_contestant_admits_all_where_it_shall() {
        for contestant in all(Terms::Admit) {
            assert!(answers(&*contestant).into_iter().all(|admitted| admitted));
        }
    }

    #[test]
    fn every_contestant_admits_and_keeps_keys_that_are_asked_for_once() {
        for name in ContestantName::value_variants() {
            let contestant = name.spacious().unwrap();
            let mut key = KeyBuffer::default();
            for number in 0..1_000 {
                key.number(number, 16);
                assert!(contestant.admits(&key), "{name}");
            }
            ensure_holds(&*contestant, 1_000).unwrap();
        }
    }

    #[test]
    fn a_contestant_that_lost_keys_is_found_out() {
        let contestant = ContestantName::Tidegate.spacious().unwrap();
        let error = ensure_holds(&*contestant, 1).unwrap_err();
        assert_eq!(error.to_string(), "0 keys are held, not 1");
    }

    #[test]
    fn every_contestant_refuses_all_but_the_first_two_where_it_shall() {
        for contestant in all(Terms::Refuse) {
            let answers = answers(&*contestant);
            let (first, rest) = answers.split_at(2);
            assert_eq!(first, [true, true]);
            assert!(rest.iter().all(|admitted| !admitted));
        }
    }
}
