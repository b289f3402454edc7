//! Tokens for what clients hold: permits for slots in flight, slices of units.
//!
//! Tokens cannot be guessed, so a client cannot give back what another holds. A table is bounded, and drops what has
//! expired.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_access::RandomId;
use tidegate_engine::{Nanos, Timestamp};

/// How many expired tokens one check drops: more than one, so that the table shrinks, and few, so that no check is slow.
const REMOVE_MAX: usize = 4;

/// What clients hold, by token.
#[derive(Debug)]
pub(super) struct TokenTable<T> {
    table: Mutex<Table<T>>,
    tokens_max: usize,
    issued: AtomicU64,
    /// Keyed with a random secret, so that tokens cannot be predicted.
    secret: RandomState,
}

#[derive(Debug)]
struct Table<T> {
    held: HashMap<RandomId, (T, Timestamp)>,
    expiries: BTreeSet<(Timestamp, RandomId)>,
}

impl<T> TokenTable<T> {
    pub(super) fn new(tokens_max: usize) -> Self {
        TokenTable {
            table: Mutex::new(Table { held: HashMap::new(), expiries: BTreeSet::new() }),
            tokens_max,
            issued: AtomicU64::new(0),
            secret: RandomState::new(),
        }
    }

    /// Stores something until it is released or expires. If the table is full, it is returned.
    pub(super) fn issue(
        &self,
        held: T,
        time_to_live: Nanos,
        now: Timestamp,
    ) -> Result<RandomId, T> {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let half = |half: u8| u128::from(self.secret.hash_one((number, half)));
        let token = RandomId::new((half(0) << 64) | half(1));
        let expires = now.after(time_to_live);
        // Dropped after unlocking: freeing slots calls the store.
        let expired;
        let refused;
        {
            let mut table = self.table.lock();
            expired = table.remove_expired(now);
            refused = if table.held.len() < self.tokens_max {
                table.expiries.insert((expires, token));
                table.held.insert(token, (held, expires)).map(|(held, _)| held)
            } else {
                Some(held)
            };
        }
        drop(expired);
        refused.map_or(Ok(token), Err)
    }

    /// Removes what the token stands for. `None` if the token is unknown or expired.
    pub(super) fn release(&self, token: RandomId, now: Timestamp) -> Option<T> {
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

impl<T> Table<T> {
    fn remove_expired(&mut self, now: Timestamp) -> Vec<T> {
        let mut expired = Vec::new();
        while expired.len() < REMOVE_MAX
            && let Some((expires, token)) = self.expiries.first().copied()
            && expires <= now
        {
            self.expiries.remove(&(expires, token));
            expired.extend(self.held.remove(&token).map(|(held, _)| held));
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_admission::HeldSlots;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const LIFE: Nanos = Nanos::from_secs(10);

    /// Slots, and a mark to tell whether they are held.
    fn slots() -> (HeldSlots, Arc<()>) {
        let mark = Arc::new(());
        (HeldSlots::new(Arc::clone(&mark)), mark)
    }

    fn is_held(mark: &Arc<()>) -> bool {
        Arc::strong_count(mark) > 1
    }

    #[test]
    fn slots_are_held_until_their_token_is_released() {
        let permits = TokenTable::new(10);
        let (held, mark) = slots();
        let token = permits.issue(held, LIFE, NOW).unwrap();
        assert!(is_held(&mark));
        assert!(permits.release(token, NOW).is_some());
        assert!(!is_held(&mark));
        assert!(permits.release(token, NOW).is_none());
    }

    #[test]
    fn a_token_is_worth_nothing_once_its_slots_have_expired() {
        let permits = TokenTable::new(10);
        let (held, mark) = slots();
        let token = permits.issue(held, LIFE, NOW).unwrap();
        assert!(permits.release(token, NOW.after(LIFE)).is_none());
        assert!(!is_held(&mark));
    }

    #[test]
    fn expired_permits_make_room() {
        let permits = TokenTable::new(2);
        permits.issue(slots().0, LIFE, NOW).unwrap();
        permits.issue(slots().0, LIFE, NOW).unwrap();
        let (held, mark) = slots();
        assert!(permits.issue(held, LIFE, NOW).is_err());
        assert!(!is_held(&mark), "slots without a token are freed");
        permits.issue(slots().0, LIFE, NOW.after(LIFE)).unwrap();
        assert_eq!(permits.len(), 1);
    }

    #[test]
    fn a_token_parses_as_it_was_written() {
        let permits = TokenTable::new(10);
        let one = permits.issue(slots().0, LIFE, NOW).unwrap();
        let other = permits.issue(slots().0, LIFE, NOW).unwrap();
        assert_ne!(one, other);
        assert_eq!(RandomId::parse(&one.to_string()), Some(one));
        for text in ["", "7", "+0000000000000000000000000000000", &"g".repeat(32), &"0".repeat(33)]
        {
            assert_eq!(RandomId::parse(text), None, "{text}");
        }
    }
}
