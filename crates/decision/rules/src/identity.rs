//! The identity under which a limit's counters are stored.
//!
//! A hash of the limit's path and algorithm, not of its numbers: usage survives a changed number, a reload and a change of
//! plan. Every part is hashed with its length, so that two different paths never hash the same bytes.

use tidegate_algorithms::Algorithm;
use tidegate_row_table::Rows;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::document::ValuePattern;

/// Must never change: every stored counter would be lost.
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

    /// Adds a level to the path.
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

    /// The identity of the rules at this path; the plans of one descriptor share it.
    pub(crate) fn of_rule(&self) -> u64 {
        xxh3_64_with_seed(&self.parts, SEED)
    }

    /// The identity of a limit at this path, by its name, or else by its index among the rule's limits.
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

/// The version of rules: a hash of the texts that they were compiled from.
pub(crate) fn version_of<'t>(texts: impl IntoIterator<Item = &'t str>) -> u64 {
    let mut whole = xxhash_rust::xxh3::Xxh3::with_seed(SEED);
    for text in texts {
        whole.update(&(text.len() as u64).to_le_bytes());
        whole.update(text.as_bytes());
    }
    whole.digest()
}

/// The version of rules with rows that were given beside the texts.
pub(crate) fn version_with_rows(texts: u64, rows: &Rows) -> u64 {
    let mut whole = xxhash_rust::xxh3::Xxh3::with_seed(texts);
    for terms in &rows.terms {
        whole.update(terms.text.as_bytes());
        whole.update(&[0]);
    }
    whole.update(&rows.table.hash_key().to_le_bytes());
    whole.update(&rows.table.base().0.to_le_bytes());
    whole.update(rows.table.bytes());
    whole.digest()
}
