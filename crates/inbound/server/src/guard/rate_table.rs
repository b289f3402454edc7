//! The rate of new connections of many networks, in bounded memory.
//!
//! A hash chooses a set of cells, and a network keeps one cell of its set until its bucket is full again. A network
//! that finds every cell of its set in use shares the last one with others of its kind: it may be refused for their
//! connections, but it is never left uncounted. Tables that stop tracking when they are full let exactly the large
//! floods pass.
//!
//! Pages are allocated when the first network of their sets arrives, so that few networks take little memory.

use std::hash::{BuildHasher, RandomState};

use tidegate_algorithms::{BucketState, CheckInput, Limit, State, Timestamp};

use super::network::NetworkKey;

/// Cells that networks have for themselves, for each set. With the shared one, a set is four cache lines.
const OWN_CELLS: usize = 7;

/// Sets in a page: 4 KiB.
const SETS: usize = 16;

/// What one page takes.
const PAGE_BYTES: usize = size_of::<Page>();

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Two halves: as one number, it would enlarge the cell for its alignment.
    network: [u64; 2],
    full_at: u64,
    part: u32,
    door: u16,
}

impl Cell {
    fn idle_at(&self) -> Timestamp {
        self.state().idle_at()
    }

    fn state(&self) -> State {
        State::Bucket(BucketState::from_parts(Timestamp::from_nanos(self.full_at), self.part))
    }

    fn take(&mut self, limit: &Limit, now: Timestamp) -> bool {
        let mut state = if self.idle_at() <= now { State::Unused } else { self.state() };
        let decision = limit.check(&mut state, CheckInput::new(1, now));
        let (full_at, part) = match state {
            State::Bucket(state) => state.to_parts(),
            _ => (Timestamp::EPOCH, 0),
        };
        (self.full_at, self.part) = (full_at.as_nanos(), part);
        decision.is_admitted()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct CellSet {
    own: [Cell; OWN_CELLS],
    shared: Cell,
}

type Page = [CellSet; SETS];

/// A token bucket for each network and door.
#[derive(Debug)]
pub(super) struct RateTable {
    pages: Vec<Option<Box<Page>>>,
    hasher: RandomState,
    /// Connections that were counted in a shared cell.
    shared: u64,
}

impl RateTable {
    /// A table of at most so many bytes, and of at least one page.
    pub(super) fn new(budget_bytes: usize) -> Self {
        let pages = (budget_bytes / PAGE_BYTES).max(1);
        RateTable { pages: vec![None; pages], hasher: RandomState::new(), shared: 0 }
    }

    /// Takes one connection from the bucket of a network. Returns whether it fits.
    pub(super) fn take(
        &mut self,
        door: u16,
        network: NetworkKey,
        limit: &Limit,
        now: Timestamp,
    ) -> bool {
        let bits = network.bits().to_ne_bytes();
        let (low, high) = bits.split_at(8);
        let half = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let network = [half(low), half(high)];
        let hash = self.hasher.hash_one((door, network));
        let pages = u64::try_from(self.pages.len()).unwrap_or(1).max(1);
        let page = usize::try_from((hash >> 8) % pages).unwrap_or(0);
        let index = usize::from(hash.to_le_bytes()[0]) % SETS;
        let Some(set) =
            self.pages.get_mut(page).and_then(|page| page.get_or_insert_default().get_mut(index))
        else {
            return true;
        };
        let is_own =
            |cell: &&mut Cell| cell.network == network && cell.door == door && cell.idle_at() > now;
        if let Some(cell) = set.own.iter_mut().find(is_own) {
            return cell.take(limit, now);
        }
        if let Some(cell) = set.own.iter_mut().find(|cell| cell.idle_at() <= now) {
            *cell = Cell { network, door, ..Cell::default() };
            return cell.take(limit, now);
        }
        self.shared = self.shared.saturating_add(1);
        set.shared.take(limit, now)
    }

    /// Connections that were counted in a shared cell, because the table was full where they belong.
    pub(super) const fn shared(&self) -> u64 {
        self.shared
    }

    /// Bytes of the pages in use.
    pub(super) fn bytes(&self) -> usize {
        self.pages.iter().flatten().count().saturating_mul(PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use tidegate_algorithms::{Nanos, Period, TokenBucket};

    use super::*;
    use crate::guard::network::NetworkPrefixes;

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn limit() -> Limit {
        Limit::new(TokenBucket::new(2, Period::SECOND, 3))
    }

    fn network(number: u64) -> NetworkKey {
        let address = Ipv6Addr::from_bits((0x2001_0db8 << 96) | (u128::from(number) << 64));
        NetworkKey::of(IpAddr::V6(address), NetworkPrefixes::default())
    }

    #[test]
    fn a_cell_is_half_a_cache_line_and_a_page_is_four_kibibytes() {
        assert_eq!((size_of::<Cell>(), PAGE_BYTES), (32, 4096));
    }

    #[test]
    fn a_network_has_its_burst_and_then_its_rate_at_each_door() {
        let (mut table, limit) = (RateTable::new(1 << 20), limit());
        for door in [0, 1] {
            let admitted = |table: &mut RateTable, millis: u64, count: usize| {
                let now = START.after(Nanos::from_millis(millis));
                (0..count).filter(|_| table.take(door, network(7), &limit, now)).count()
            };
            assert_eq!(admitted(&mut table, 0, 10), 3);
            assert_eq!(admitted(&mut table, 499, 10), 0);
            assert_eq!(admitted(&mut table, 1_000, 10), 2);
            assert_eq!(admitted(&mut table, 60_000, 10), 3, "an idle bucket is full again");
        }
        assert_eq!(table.shared(), 0);
    }

    #[test]
    fn a_million_networks_stay_within_the_budget_and_none_is_left_uncounted() {
        let budget = 1 << 20;
        let (mut table, limit) = (RateTable::new(budget), limit());
        let mut refused = 0_u64;
        for number in 0..1_000_000 {
            refused += u64::from(!table.take(0, network(number), &limit, START));
        }
        assert!(table.bytes() <= budget);
        let own = u64::try_from(budget / PAGE_BYTES * SETS * OWN_CELLS).unwrap();
        assert!(table.shared() > 900_000 && table.shared() < 1_000_000);
        assert!(refused >= table.shared() - 3 * own, "shared cells limit too");
        // Beyond its own cell a network never gets more than the limit, whoever else is there.
        for number in (0..1_000_000).step_by(9_973) {
            let admitted =
                (0..10).filter(|_| table.take(0, network(number), &limit, START)).count();
            assert!(admitted <= 3, "{number}: {admitted}");
        }
    }

    #[test]
    fn networks_that_hold_a_cell_keep_it_while_others_flood_the_table() {
        let (mut table, limit) = (RateTable::new(PAGE_BYTES), limit());
        assert!((0..3).all(|_| table.take(0, network(0), &limit, START)));
        for number in 1..10_000 {
            table.take(0, network(number), &limit, START);
        }
        assert!(!table.take(0, network(0), &limit, START));
    }
}
