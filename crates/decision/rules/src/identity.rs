//! What a limit's counters are kept under.
//!
//! A hash of where the limit stands and of what kind it is, not of its numbers:
//! a changed number, a reload or another plan keeps the usage. Every part is
//! hashed with its length, so that no two different paths read the same.

use tidegate_algorithms::Algorithm;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::document::ValuePattern;

/// Never change it: every stored counter would be lost.
const SEED: u64 = 0x7469_6465_6761_7465;

/// The parts of an identity so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    parts: Vec<u8>,
}

impl Identity {
    pub(crate) fn of_domain(domain: &str) -> Self {
        let mut identity = Identity::default();
        identity.part("domain", domain);
        identity
    }

    /// Goes one level further down.
    pub(crate) fn below(&mut self, key: &str, values: &ValuePattern) {
        self.part("key", key);
        match values {
            ValuePattern::Any => self.part("varies", ""),
            ValuePattern::Exactly(value) => self.part("value", value),
            ValuePattern::Like(pattern) => self.part("pattern", pattern),
            ValuePattern::Within(ranges) => {
                // The order of ranges in a file means nothing.
                let mut ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                ranges.sort_unstable();
                for range in ranges {
                    self.part("cidr", &range);
                }
            }
        }
    }

    /// The identity of every rule here: other plans of the place share it.
    pub(crate) fn of_rule(&self) -> u64 {
        xxh3_64_with_seed(&self.parts, SEED)
    }

    /// The identity of a limit here: by its name, or else by its place among the rule's limits.
    pub(crate) fn of_limit(
        &self,
        name: Option<&str>,
        ordinal: usize,
        algorithm: &Algorithm,
    ) -> u64 {
        let mut identity = self.clone();
        match name {
            Some(name) => identity.part("name", name),
            None => identity.part("ordinal", &ordinal.to_string()),
        }
        identity.part("algorithm", algorithm.name());
        xxh3_64_with_seed(&identity.parts, SEED)
    }

    fn part(&mut self, kind: &str, text: &str) {
        for bytes in [kind.as_bytes(), text.as_bytes()] {
            self.parts.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            self.parts.extend_from_slice(bytes);
        }
    }
}

/// A number that names the texts that rules were compiled from.
pub(crate) fn version_of<'t>(texts: impl IntoIterator<Item = &'t str>) -> u64 {
    let mut whole = xxhash_rust::xxh3::Xxh3::with_seed(SEED);
    for text in texts {
        whole.update(&(text.len() as u64).to_le_bytes());
        whole.update(text.as_bytes());
    }
    whole.digest()
}
