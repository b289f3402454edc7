//! Slots of concurrency limits that are held between two requests.
//!
//! A check that takes slots is answered with a token; whoever brings the token
//! back gives them back. Tokens cannot be guessed, so nobody gives back what
//! another holds. The table is bounded, and forgets tokens when their slots
//! have come back by themselves.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_engine::{Nanos, Period, Timestamp, Verdict};

use tidegate_admission::HeldSlots;

/// How many expired tokens one check forgets at most: more than one, so that
/// the table shrinks, and few, so that no check waits for many.
const FORGET_MAX: usize = 4;

/// What a permit is called on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Token(u128);

impl Token {
    /// Reads a token back; `None` when it cannot be one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| digits).map(Token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Too many permits are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyPermits;

impl fmt::Display for TooManyPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many permits are out; the slots were given back")
    }
}

/// The permits that are out.
#[derive(Debug)]
pub(super) struct Permits {
    table: Mutex<Table>,
    permits_max: usize,
    issued: AtomicU64,
    /// Its keys are secret, so tokens cannot be foretold.
    secret: RandomState,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<Token, (HeldSlots, Timestamp)>,
    expiries: BTreeSet<(Timestamp, Token)>,
}

impl Permits {
    pub(super) fn new(permits_max: usize) -> Self {
        Permits {
            table: Mutex::default(),
            permits_max,
            issued: AtomicU64::new(0),
            secret: RandomState::new(),
        }
    }

    /// Keeps slots until they are taken back or expire.
    pub(super) fn keep(
        &self,
        held: HeldSlots,
        lasting: Nanos,
        now: Timestamp,
    ) -> Result<Token, TooManyPermits> {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let half = |half: u8| u128::from(self.secret.hash_one((number, half)));
        let token = Token((half(0) << 64) | half(1));
        let expires = now.after(lasting);
        // Dropped after the lock: giving slots back asks the store.
        let forgotten;
        let refused;
        {
            let mut table = self.table.lock();
            forgotten = table.forget_expired(now);
            refused = if table.held.len() < self.permits_max {
                table.expiries.insert((expires, token));
                table.held.insert(token, (held, expires)).map(|(held, _)| held)
            } else {
                Some(held)
            };
        }
        drop(forgotten);
        match refused {
            None => Ok(token),
            Some(_) => Err(TooManyPermits),
        }
    }

    /// Takes slots out to give them back; `None` when the token is not (any more) known.
    pub(super) fn take(&self, token: Token, now: Timestamp) -> Option<HeldSlots> {
        let (held, expires) = {
            let mut table = self.table.lock();
            let (held, expires) = table.held.remove(&token)?;
            table.expiries.remove(&(expires, token));
            (held, expires)
        };
        (expires > now).then_some(held)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.lock().held.len()
    }
}

impl Table {
    fn forget_expired(&mut self, now: Timestamp) -> Vec<HeldSlots> {
        let mut forgotten = Vec::new();
        while forgotten.len() < FORGET_MAX
            && let Some((expires, token)) = self.expiries.first().copied()
            && expires <= now
        {
            self.expiries.remove(&(expires, token));
            forgotten.extend(self.held.remove(&token).map(|(held, _)| held));
        }
        forgotten
    }
}

/// For how long the slots of a verdict are held if nobody gives them back: the
/// longest of its limits.
pub(super) fn lasting(verdict: &Verdict) -> Nanos {
    let limits = verdict.rulings().iter().filter_map(|ruling| verdict.limit(ruling));
    let lives = limits.filter_map(|limit| limit.limit.algorithm().slot_time_to_live());
    lives.max().map_or(Nanos::ZERO, Period::as_span)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const LIFE: Nanos = Nanos::from_secs(10);

    /// Something to hold, and whether it is held.
    fn slots() -> (HeldSlots, Arc<()>) {
        let mark = Arc::new(());
        (HeldSlots::new(Arc::clone(&mark)), mark)
    }

    fn is_held(mark: &Arc<()>) -> bool {
        Arc::strong_count(mark) > 1
    }

    #[test]
    fn slots_are_held_until_their_token_comes_back() {
        let permits = Permits::new(10);
        let (held, mark) = slots();
        let token = permits.keep(held, LIFE, NOW).unwrap();
        assert!(is_held(&mark));
        assert!(permits.take(token, NOW).is_some());
        assert!(!is_held(&mark));
        assert!(permits.take(token, NOW).is_none());
    }

    #[test]
    fn a_token_is_worth_nothing_once_its_slots_have_expired() {
        let permits = Permits::new(10);
        let (held, mark) = slots();
        let token = permits.keep(held, LIFE, NOW).unwrap();
        assert!(permits.take(token, NOW.after(LIFE)).is_none());
        assert!(!is_held(&mark));
    }

    #[test]
    fn what_has_expired_makes_room() {
        let permits = Permits::new(2);
        permits.keep(slots().0, LIFE, NOW).unwrap();
        permits.keep(slots().0, LIFE, NOW).unwrap();
        let (held, mark) = slots();
        assert_eq!(permits.keep(held, LIFE, NOW), Err(TooManyPermits));
        assert!(!is_held(&mark), "slots without a token are given back");
        permits.keep(slots().0, LIFE, NOW.after(LIFE)).unwrap();
        assert_eq!(permits.len(), 1);
    }

    #[test]
    fn tokens_are_read_back_as_they_were_written() {
        let permits = Permits::new(10);
        let one = permits.keep(slots().0, LIFE, NOW).unwrap();
        let other = permits.keep(slots().0, LIFE, NOW).unwrap();
        assert_ne!(one, other);
        assert_eq!(Token::parse(&one.to_string()), Some(one));
        for text in ["", "7", "+0000000000000000000000000000000", &"g".repeat(32), &"0".repeat(33)]
        {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }
}
