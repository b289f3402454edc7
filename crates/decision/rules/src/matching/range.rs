//! Address ranges: the longest prefix that holds an address.
//!
//! One table keyed by (bits, length), with one lookup for each prefix length that occurs, longest first. Rules have few
//! lengths, so this is faster than a trie.

use std::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use ipnet::IpNet;

/// The ranges of one key at one node.
#[derive(Debug)]
pub(crate) struct RangeSet<T> {
    v4: Ranges<T>,
    v6: Ranges<T>,
}

#[derive(Debug)]
struct Ranges<T> {
    /// Longest first.
    lengths: Vec<u8>,
    table: HashMap<(u128, u8), T, FixedState>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Ranges { lengths: Vec::new(), table: HashMap::default() }
    }
}

impl<T: Copy> Ranges<T> {
    fn add(&mut self, bits: u128, length: u8, target: T) {
        let longest_first = |other: &u8| length.cmp(other);
        if let Err(at) = self.lengths.binary_search_by(longest_first) {
            self.lengths.insert(at, length);
        }
        self.table.insert((masked(bits, length), length), target);
    }

    fn find(&self, bits: u128) -> Option<(u8, &T)> {
        self.lengths.iter().find_map(|length| {
            let target = self.table.get(&(masked(bits, *length), *length))?;
            Some((*length, target))
        })
    }
}

impl<T: Copy> RangeSet<T> {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (IpNet, T)>) -> Self {
        let mut set = RangeSet { v4: Ranges::default(), v6: Ranges::default() };
        for (range, target) in ranges {
            let ranges = match range {
                IpNet::V4(_) => &mut set.v4,
                IpNet::V6(_) => &mut set.v6,
            };
            ranges.add(bits(range.addr()), range.prefix_len(), target);
        }
        set
    }

    /// The longest range that holds the address, and its target.
    pub(crate) fn find(&self, address: IpAddr) -> Option<(IpNet, &T)> {
        let ranges = match address {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        };
        let (length, target) = ranges.find(bits(address))?;
        let range = IpNet::new(address, length).ok()?.trunc();
        Some((range, target))
    }
}

/// The address in the highest bits, for both families.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn masked(bits: u128, length: u8) -> u128 {
    let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128)));
    bits & mask.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(ranges: &[&str]) -> RangeSet<usize> {
        RangeSet::new(ranges.iter().map(|range| range.parse().unwrap()).zip(0..))
    }

    fn find(ranges: &[&str], address: &str) -> Option<usize> {
        let set = set(ranges);
        let found = set.find(address.parse().unwrap());
        found.map(|(_, target)| *target)
    }

    #[test]
    fn the_longest_prefix_wins_whatever_the_order() {
        let ranges = ["10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0"];
        assert_eq!(find(&ranges, "10.1.2.3"), Some(1));
        assert_eq!(find(&ranges, "10.2.2.3"), Some(0));
        assert_eq!(find(&ranges, "192.0.2.1"), Some(2));
    }

    #[test]
    fn families_are_kept_apart() {
        assert_eq!(find(&["::/0"], "10.0.0.1"), None);
        assert_eq!(find(&["0.0.0.0/0"], "::1"), None);
        assert_eq!(find(&["2001:db8::/32"], "2001:db8::1"), Some(0));
    }

    proptest! {
        #[test]
        fn finds_what_asking_every_range_finds(
            ranges in proptest::collection::vec((any::<u8>(), 0u8..=32), 0..12),
            address in any::<[u8; 4]>(),
        ) {
            let ranges: Vec<IpNet> = ranges
                .into_iter()
                .map(|(byte, length)| {
                    let address = IpAddr::from([byte, address[1] ^ (byte & 3), address[2], 0]);
                    IpNet::new(address, length).unwrap().trunc()
                })
                .collect();
            let address = IpAddr::from(address);
            let longest = ranges
                .iter()
                .filter(|range| range.contains(&address))
                .max_by_key(|range| range.prefix_len());
            let set = RangeSet::new(ranges.iter().map(|range| (*range, ())));
            let found = set.find(address).map(|(range, _)| range);
            prop_assert_eq!(found.as_ref(), longest);
        }
    }
}
