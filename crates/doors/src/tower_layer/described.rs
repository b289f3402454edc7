//! Who asks for what, owned, so that a closure can return it.

use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;
use tidegate_engine::{Clock, CounterStore, Descriptor, Engine, Entry, Permit, Request, Verdict};

/// What a request is limited by. Short keys and values are kept in place.
///
/// ```
/// use tidegate_doors::Described;
///
/// let upload = Described::new()
///     .descriptor([("user", "42"), ("path", "/upload")])
///     .descriptor([("address", "192.0.2.7")])
///     .cost(3);
/// # assert!(format!("{upload:?}").contains("192.0.2.7"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Those of all descriptors, one after the other.
    entries: SmallVec<[(CompactString, CompactString); 2]>,
    descriptors: SmallVec<[Part; 2]>,
    cost: u64,
}

/// One descriptor: the entries up to `end` that are not an earlier one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    end: usize,
    cost: Option<u64>,
}

impl Described {
    /// A request of cost one without descriptors, which no rule limits yet.
    pub fn new() -> Self {
        Described { entries: SmallVec::new(), descriptors: SmallVec::new(), cost: 1 }
    }

    /// Adds a descriptor: ordered keys and values, as rules nest them.
    #[must_use]
    pub fn descriptor<K, V>(self, entries: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        self.add(entries, None)
    }

    /// Adds a descriptor with a cost of its own.
    #[must_use]
    pub fn descriptor_costing<K, V>(
        self,
        cost: u64,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Self
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        self.add(entries, Some(cost))
    }

    /// How much the request uses, where a descriptor does not say.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        Described { cost, ..self }
    }

    /// Asks something about the request that is described.
    pub(super) fn ask<R>(&self, domain: &str, question: impl FnOnce(&Request<'_>) -> R) -> R {
        let entries = self.entries();
        let descriptors = self.descriptors(&entries);
        question(&Request { domain, descriptors: &descriptors, cost: self.cost })
    }

    /// Asks an engine whose store has to be waited for.
    pub(super) async fn admit<S, C>(
        &self,
        domain: &str,
        engine: &Arc<Engine<S, C>>,
    ) -> (Verdict, Permit<S, C>)
    where
        S: CounterStore + 'static,
        C: Clock + 'static,
    {
        let entries = self.entries();
        let descriptors = self.descriptors(&entries);
        engine.admit(&Request { domain, descriptors: &descriptors, cost: self.cost }).await
    }

    fn entries(&self) -> SmallVec<[Entry<'_>; 4]> {
        self.entries.iter().map(|(key, value)| Entry { key, value }).collect()
    }

    fn descriptors<'e>(&self, entries: &'e [Entry<'e>]) -> SmallVec<[Descriptor<'e>; 4]> {
        let mut begin = 0;
        let mut descriptors = SmallVec::new();
        for part in &self.descriptors {
            let entries = entries.get(begin..part.end).unwrap_or_default();
            descriptors.push(Descriptor { cost: part.cost, ..Descriptor::new(entries) });
            begin = part.end;
        }
        descriptors
    }

    fn add<K, V>(mut self, entries: impl IntoIterator<Item = (K, V)>, cost: Option<u64>) -> Self
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        for (key, value) in entries {
            let (key, value) = (key.as_ref(), value.as_ref());
            self.entries.push((CompactString::new(key), CompactString::new(value)));
        }
        self.descriptors.push(Part { end: self.entries.len(), cost });
        self
    }
}

impl Default for Described {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_descriptor_has_its_own_entries_and_cost() {
        let described = Described::new()
            .descriptor([("user", "7"), ("path", "/")])
            .descriptor_costing(5, [("address", String::from("192.0.2.1"))])
            .cost(2);
        let seen = described.ask("api", |request| format!("{request:?}"));
        let user = [Entry { key: "user", value: "7" }, Entry { key: "path", value: "/" }];
        let address = [Entry { key: "address", value: "192.0.2.1" }];
        let expected = Request {
            domain: "api",
            descriptors: &[
                Descriptor::new(&user),
                Descriptor { cost: Some(5), ..Descriptor::new(&address) },
            ],
            cost: 2,
        };
        assert_eq!(seen, format!("{expected:?}"));
    }
}
