//! Requests of one second, described and waiting for their turn.
//!
//! All texts of a second are in one string and all entries in one list, so that a request costs no allocation.

use std::ops::Range;

use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_engine::{Descriptor, Entry, Request};
use tidegate_insight::{RecordedVerb, RecordedVerdict};

use super::logged_request::TimeResolution;

/// The requests of one second.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingRequests {
    text: String,
    entries: Vec<PendingEntry>,
    /// Entries that belong to a descriptor already.
    closed_entries: usize,
    descriptors: Vec<PendingDescriptor>,
    closed_descriptors: usize,
    requests: Vec<PendingRequest>,
}

/// The texts of an entry: where its key and its value begin, and where the value ends.
#[derive(Clone, Copy, Debug)]
struct PendingEntry {
    key: u32,
    value: u32,
    end: u32,
}

#[derive(Clone, Debug)]
struct PendingDescriptor {
    entries: Range<u32>,
    cost: Option<u64>,
    refund: bool,
}

/// One request, with indexes into the lists.
#[derive(Clone, Debug)]
struct PendingRequest {
    descriptors: Range<u32>,
    terms: RequestTerms,
}

/// What is known of a request beside its descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTerms {
    pub(crate) time: Timestamp,
    pub(crate) resolution: TimeResolution,
    pub(crate) duration: Option<Nanos>,
    pub(crate) cost: u64,
    /// The index of its domain in the list of all domains.
    pub(crate) domain: u16,
    pub(crate) verb: RecordedVerb,
    /// The answer in the log.
    pub(crate) logged: Option<RecordedVerdict>,
    /// Whether the log says that a rate limit refused it.
    pub(crate) refused: bool,
}

impl PendingRequests {
    pub(crate) fn push_entry(&mut self, key: &str, value: &str) {
        let at = |text: &String| u32::try_from(text.len()).unwrap_or(u32::MAX);
        let begin = at(&self.text);
        self.text.push_str(key);
        let middle = at(&self.text);
        self.text.push_str(value);
        self.entries.push(PendingEntry { key: begin, value: middle, end: at(&self.text) });
    }

    pub(crate) fn drop_entries(&mut self) {
        self.entries.truncate(self.closed_entries);
    }

    pub(crate) fn end_descriptor(&mut self, cost: Option<u64>, refund: bool) {
        let entries = number(self.closed_entries)..number(self.entries.len());
        self.closed_entries = self.entries.len();
        self.descriptors.push(PendingDescriptor { entries, cost, refund });
    }

    pub(crate) fn end_request(&mut self, terms: RequestTerms) {
        self.drop_entries();
        let descriptors = number(self.closed_descriptors)..number(self.descriptors.len());
        self.closed_descriptors = self.descriptors.len();
        self.requests.push(PendingRequest { descriptors, terms });
    }

    pub(crate) fn descriptor_count(&self) -> usize {
        self.descriptors.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Sets the time of all requests.
    pub(crate) fn set_time(&mut self, time: Timestamp) {
        for request in &mut self.requests {
            request.terms.time = time;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.entries.clear();
        self.descriptors.clear();
        self.requests.clear();
        (self.closed_entries, self.closed_descriptors) = (0, 0);
    }

    /// Puts the requests in the order of their times. Those with whole seconds are spread evenly over their second, in
    /// the order in which they were added.
    pub(crate) fn sort(&mut self, second: u64) {
        let coarse = |request: &PendingRequest| request.terms.resolution == TimeResolution::Second;
        let coarse_count = self.requests.iter().filter(|request| coarse(request)).count();
        if coarse_count > 0 {
            let count = u64::try_from(coarse_count).unwrap_or(u64::MAX).max(1);
            let mut index: u64 = 0;
            for request in &mut self.requests {
                if coarse(request) {
                    let part = 1_000_000_000_u64.saturating_mul(index) / count;
                    let nanos = second.saturating_mul(1_000_000_000).saturating_add(part);
                    request.terms.time = Timestamp::from_nanos(nanos);
                    index += 1;
                }
            }
        }
        // Stable, so that equal times keep the order of the file.
        self.requests.sort_by_key(|request| request.terms.time);
    }

    /// The requests in their order.
    pub(crate) fn requests(&self) -> impl Iterator<Item = RequestRef<'_>> {
        self.requests.iter().map(|request| RequestRef { pending: self, request })
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// One request of a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRef<'p> {
    pending: &'p PendingRequests,
    request: &'p PendingRequest,
}

/// The entries of a request.
pub(crate) type Entries<'p> = SmallVec<[Entry<'p>; 4]>;

impl<'p> RequestRef<'p> {
    pub(crate) const fn terms(&self) -> &'p RequestTerms {
        &self.request.terms
    }

    /// The index of its domain.
    pub(crate) const fn domain_index(&self) -> u16 {
        self.request.terms.domain
    }

    /// Its domain.
    pub(crate) fn domain<'d>(&self, domains: &'d [String]) -> &'d str {
        domains.get(usize::from(self.request.terms.domain)).map_or("", |name| name)
    }

    /// A copy of this request alone.
    pub(crate) fn alone(&self) -> PendingRequests {
        let mut copy = PendingRequests::default();
        let entries = self.all_entries();
        let mut rest = entries.iter();
        for descriptor in self.descriptors() {
            let count = descriptor.entries.end.saturating_sub(descriptor.entries.start);
            for entry in rest.by_ref().take(index(count)) {
                copy.push_entry(entry.key, entry.value);
            }
            copy.end_descriptor(descriptor.cost, descriptor.refund);
        }
        copy.end_request(self.request.terms);
        copy
    }

    fn descriptors(&self) -> &'p [PendingDescriptor] {
        let Range { start, end } = self.request.descriptors;
        self.pending.descriptors.get(index(start)..index(end)).unwrap_or_default()
    }

    /// The entries of all descriptors, one after the other.
    fn all_entries(&self) -> Entries<'p> {
        let (Some(first), Some(last)) = (self.descriptors().first(), self.descriptors().last())
        else {
            return Entries::new();
        };
        let range = index(first.entries.start)..index(last.entries.end);
        let text =
            |from: u32, to: u32| self.pending.text.get(index(from)..index(to)).unwrap_or_default();
        let entries = self.pending.entries.get(range).unwrap_or_default();
        let entry = |entry: &PendingEntry| Entry {
            key: text(entry.key, entry.value),
            value: text(entry.value, entry.end),
        };
        entries.iter().map(entry).collect()
    }

    /// Keys and values of all descriptors.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> Vec<(&'p str, &'p str)> {
        self.all_entries().iter().map(|entry| (entry.key, entry.value)).collect()
    }

    /// Calls `act` with the request for an engine.
    pub(crate) fn with_request<R>(&self, domain: &str, act: impl FnOnce(&Request<'_>) -> R) -> R {
        let entries = self.all_entries();
        let descriptors = self.descriptors();
        let first = descriptors.first().map_or(0, |descriptor| descriptor.entries.start);
        let descriptors: SmallVec<[Descriptor<'_>; 2]> = descriptors
            .iter()
            .map(|descriptor| {
                let range = index(descriptor.entries.start.saturating_sub(first))
                    ..index(descriptor.entries.end.saturating_sub(first));
                Descriptor {
                    cost: descriptor.cost,
                    refund: descriptor.refund,
                    ..Descriptor::new(entries.get(range).unwrap_or_default())
                }
            })
            .collect();
        act(&Request { domain, descriptors: &descriptors, cost: self.request.terms.cost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(pending: &mut PendingRequests, name: &str, nanos: u64, resolution: TimeResolution) {
        pending.push_entry("name", name);
        pending.end_descriptor(None, false);
        let time = Timestamp::from_nanos(nanos);
        pending.end_request(RequestTerms { time, resolution, ..RequestTerms::default() });
    }

    fn order(pending: &PendingRequests) -> Vec<(String, u64)> {
        let name = |request: RequestRef<'_>| {
            (request.entries()[0].1.to_owned(), request.terms().time.as_nanos())
        };
        pending.requests().map(name).collect()
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it_in_the_order_of_the_file() {
        let mut pending = PendingRequests::default();
        for name in ["a", "b", "c", "d"] {
            add(&mut pending, name, 5_000_000_000, TimeResolution::Second);
        }
        pending.sort(5);
        let named = |name: &str, nanos| (name.to_owned(), nanos);
        let expected = [
            named("a", 5_000_000_000),
            named("b", 5_250_000_000),
            named("c", 5_500_000_000),
            named("d", 5_750_000_000),
        ];
        assert_eq!(order(&pending), expected);
    }

    #[test]
    fn exact_times_are_sorted_and_kept() {
        let mut pending = PendingRequests::default();
        add(&mut pending, "late", 5_900_000_000, TimeResolution::Exact);
        add(&mut pending, "early", 5_100_000_000, TimeResolution::Exact);
        pending.sort(5);
        let expected = [("early".to_owned(), 5_100_000_000), ("late".to_owned(), 5_900_000_000)];
        assert_eq!(order(&pending), expected);
    }
}
