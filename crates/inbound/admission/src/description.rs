//! What a request is limited by: descriptors and costs, owned, so that a closure can return them.

use compact_str::CompactString;
use smallvec::SmallVec;
use tidegate_engine::{Descriptor, Entry, Request};

/// What a request is limited by. Short keys and values are stored inline.
///
/// ```
/// use tidegate_admission::RequestDescription;
///
/// let upload = RequestDescription::new()
///     .descriptor([("user", "42"), ("path", "/upload")])
///     .descriptor([("address", "192.0.2.7")])
///     .cost(3);
/// # assert!(format!("{upload:?}").contains("192.0.2.7"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestDescription {
    /// The entries of all descriptors, one after the other.
    entries: SmallVec<[(CompactString, CompactString); 2]>,
    descriptors: SmallVec<[DescriptorEnd; 2]>,
    cost: u64,
}

/// The entries of all descriptors of a request.
pub type Entries<'e> = SmallVec<[Entry<'e>; 4]>;
/// The descriptors of a request.
pub type Descriptors<'e> = SmallVec<[Descriptor<'e>; 4]>;

/// One descriptor: the entries from the end of the previous one up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DescriptorEnd {
    end: usize,
    cost: Option<u64>,
}

impl RequestDescription {
    /// A request of cost one without descriptors, which no rule limits yet.
    pub fn new() -> Self {
        RequestDescription { entries: SmallVec::new(), descriptors: SmallVec::new(), cost: 1 }
    }

    /// Adds a descriptor: ordered keys and values, as rules nest them.
    #[must_use]
    pub fn descriptor(
        self,
        entries: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
    ) -> Self {
        self.add(entries, None)
    }

    /// Adds a descriptor with a cost of its own.
    #[must_use]
    pub fn descriptor_costing(
        self,
        cost: u64,
        entries: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
    ) -> Self {
        self.add(entries, Some(cost))
    }

    /// The cost for descriptors without a cost of their own.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        RequestDescription { cost, ..self }
    }

    /// Calls `act` with the request for an engine. Allocates nothing for the usual single entry.
    pub fn with_request<R>(&self, domain: &str, act: impl FnOnce(&Request<'_>) -> R) -> R {
        let (entry, descriptor);
        let (entries, several);
        let descriptors: &[Descriptor<'_>] = match (&*self.entries, &*self.descriptors) {
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
        act(&self.request(domain, descriptors))
    }

    /// The request for an engine, with these descriptors.
    pub(crate) const fn request<'r>(
        &self,
        domain: &'r str,
        descriptors: &'r [Descriptor<'r>],
    ) -> Request<'r> {
        Request { domain, descriptors, cost: self.cost }
    }

    /// The entries of all descriptors, for [`RequestDescription::descriptors`].
    #[inline]
    pub fn entries(&self) -> Entries<'_> {
        let mut entries = Entries::new();
        for (key, value) in &self.entries {
            entries.push(Entry { key, value });
        }
        entries
    }

    /// The descriptors, made of the entries of this same description.
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

    /// The entries of the descriptor with this index.
    pub fn entries_of(&self, index: usize) -> &[(CompactString, CompactString)] {
        let end = self.descriptors.get(index).map_or(0, |part| part.end);
        let before = index.checked_sub(1).and_then(|before| self.descriptors.get(before));
        let begin = before.map_or(0, |part| part.end);
        self.entries.get(begin..end).unwrap_or_default()
    }

    fn add(
        mut self,
        entries: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
        cost: Option<u64>,
    ) -> Self {
        let entries = entries.into_iter();
        let owned =
            entries.map(|(key, value)| (CompactString::new(key), CompactString::new(value)));
        self.entries.extend(owned);
        self.close(cost);
        self
    }
}

/// Building it piece by piece, for descriptors that may turn out to be incomplete.
impl RequestDescription {
    /// How many entries there are: the argument of [`RequestDescription::truncate`].
    pub fn mark(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry to the open descriptor.
    pub fn entry(&mut self, key: &CompactString, value: CompactString) {
        self.entries.push((key.clone(), value));
    }

    /// Removes the entries since a mark.
    pub fn truncate(&mut self, mark: usize) {
        self.entries.truncate(mark);
    }

    /// Closes the open descriptor and returns its index.
    pub fn close(&mut self, cost: Option<u64>) -> usize {
        self.descriptors.push(DescriptorEnd { end: self.entries.len(), cost });
        self.descriptors.len() - 1
    }

    /// Whether there is no descriptor, so that no rule applies.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// One of the descriptors, with another cost.
    pub fn only(&self, index: usize, cost: u64) -> RequestDescription {
        let mut only = RequestDescription::new();
        only.entries.extend(self.entries_of(index).iter().cloned());
        only.close(Some(cost));
        only
    }
}

impl Default for RequestDescription {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_descriptor_has_its_own_entries_and_cost() {
        let description = RequestDescription::new()
            .descriptor([("user", "7"), ("path", "/")])
            .descriptor_costing(5, [("address", String::from("192.0.2.1"))])
            .cost(2);
        let seen = description.with_request("api", |request| format!("{request:?}"));
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
