//! Requests for domains that have no rules.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use tidegate_engine::OTHERS;

/// The most domains with a count of their own: callers choose the names.
const DOMAINS_MAX: usize = 1_000;
/// Longer names are cut to this length.
const NAME_BYTES_MAX: usize = 128;

/// Descriptors by unknown domain.
#[derive(Debug, Default)]
pub(super) struct UnknownDomains {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    by_domain: BTreeMap<Box<str>, u64>,
    others: u64,
}

impl UnknownDomains {
    /// Counts the descriptors of one request. Waits for the lock: such requests are misconfigured and nothing else is
    /// done for them.
    pub(super) fn count(&self, domain: &str, descriptors: usize) {
        let descriptors = u64::try_from(descriptors).unwrap_or(u64::MAX);
        let domain = domain.get(..domain.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default();
        let mut counts = self.counts.lock();
        let full = counts.by_domain.len() >= DOMAINS_MAX;
        let count = match counts.by_domain.get_mut(domain) {
            Some(count) => count,
            None if full => &mut counts.others,
            None => counts.by_domain.entry(domain.into()).or_default(),
        };
        *count = count.saturating_add(descriptors);
    }

    /// The counts, by name.
    pub(super) fn read(&self) -> Vec<(String, u64)> {
        let counts = self.counts.lock();
        let named = counts.by_domain.iter().map(|(domain, count)| (domain.to_string(), *count));
        let others = (counts.others > 0).then(|| (OTHERS.to_owned(), counts.others));
        named.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_counted_by_domain() {
        let unknown = UnknownDomains::default();
        unknown.count("b", 2);
        unknown.count("a", 1);
        unknown.count("b", 1);
        assert_eq!(unknown.read(), [("a".to_owned(), 1), ("b".to_owned(), 3)]);
    }

    #[test]
    fn made_up_domains_stay_few_and_none_is_lost() {
        let unknown = UnknownDomains::default();
        for number in 0..10_000 {
            unknown.count(&format!("made-up-{number}{}", "x".repeat(1_000)), 1);
        }
        let counts = unknown.read();
        assert_eq!(counts.len(), DOMAINS_MAX + 1);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!(counts.iter().all(|(domain, _)| domain.len() <= NAME_BYTES_MAX));
    }
}
