//! Who asks for what, owned, so that a closure can return it.

use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;
use tidegate_engine::{
    Clock, CounterStore, Descriptor, Engine, Entry, Permit, Request, Tenure, Verb, Verdict,
};

/// What a request is limited by. Short keys and values are kept in place.
///
/// ```
/// use tidegate_admission::Described;
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

/// The entries of all descriptors of a request.
pub type Entries<'e> = SmallVec<[Entry<'e>; 4]>;
/// The descriptors of a request.
pub type Descriptors<'e> = SmallVec<[Descriptor<'e>; 4]>;

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
    pub fn ask<R>(&self, domain: &str, question: impl FnOnce(&Request<'_>) -> R) -> R {
        let (entry, descriptor);
        let (entries, several);
        let descriptors: &[Descriptor<'_>] = match (&*self.entries, &*self.descriptors) {
            // What most requests have, and nothing that takes a list.
            ([(key, value)], [part]) if part.end == 1 => {
                entry = [Entry { key, value }];
                descriptor = [Descriptor { cost: part.cost, ..Descriptor::new(&entry) }];
                &descriptor
            }
            _ => {
                entries = self.entries();
                several = self.descriptors(&entries);
                &several
            }
        };
        question(&Request { domain, descriptors, cost: self.cost })
    }

    /// Asks an engine whose store has to be waited for.
    pub async fn admit<S, C>(
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
        let request = Request { domain, descriptors: &descriptors, cost: self.cost };
        engine.admit(&request, Tenure::Held).await
    }

    /// Applies a verb to the limits that the request meets.
    pub async fn apply<S, C>(&self, verb: Verb, domain: &str, engine: &Engine<S, C>) -> Verdict
    where
        S: CounterStore,
        C: Clock,
    {
        let entries = self.entries();
        let descriptors = self.descriptors(&entries);
        engine.apply(verb, &Request { domain, descriptors: &descriptors, cost: self.cost }).await
    }

    /// The entries of all descriptors, as [`Described::descriptors`] wants them.
    #[inline]
    pub fn entries(&self) -> Entries<'_> {
        let mut entries = Entries::new();
        for (key, value) in &self.entries {
            entries.push(Entry { key, value });
        }
        entries
    }

    /// The descriptors, over the entries of this same value.
    #[inline]
    pub fn descriptors<'e>(&self, entries: &'e [Entry<'e>]) -> Descriptors<'e> {
        let mut begin = 0;
        let mut descriptors = Descriptors::new();
        for part in &self.descriptors {
            let entries = entries.get(begin..part.end).unwrap_or_default();
            descriptors.push(Descriptor { cost: part.cost, ..Descriptor::new(entries) });
            begin = part.end;
        }
        descriptors
    }

    /// How many descriptors there are.
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// The entries of the descriptor at this place.
    pub fn entries_of(&self, place: usize) -> &[(CompactString, CompactString)] {
        let end = self.descriptors.get(place).map_or(0, |part| part.end);
        let before = place.checked_sub(1).and_then(|before| self.descriptors.get(before));
        let begin = before.map_or(0, |part| part.end);
        self.entries.get(begin..end).unwrap_or_default()
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

/// Piece by piece, for descriptors that may turn out to be incomplete.
impl Described {
    /// How many entries there are.
    pub fn mark(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry to the descriptor that is next to be closed.
    pub fn entry(&mut self, key: &CompactString, value: CompactString) {
        self.entries.push((key.clone(), value));
    }

    /// Forgets the entries since a mark.
    pub fn forget_since(&mut self, mark: usize) {
        self.entries.truncate(mark);
    }

    /// Makes a descriptor of the entries since the last one. Says its place.
    pub fn close(&mut self, cost: Option<u64>) -> usize {
        self.descriptors.push(Part { end: self.entries.len(), cost });
        self.descriptors.len() - 1
    }

    /// Whether no rule can limit it.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// One of the descriptors alone, with another cost.
    pub fn only(&self, place: usize, cost: u64) -> Described {
        let mut only = Described::new();
        only.entries.extend(self.entries_of(place).iter().cloned());
        only.close(Some(cost));
        only
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
