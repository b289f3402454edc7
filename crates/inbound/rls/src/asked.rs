//! What a call asks, and how it is put to the engine.

use smallvec::SmallVec;
use thiserror::Error;
use tidegate_engine::{
    DESCRIPTORS_MAX, Descriptor, Entry, FixedWindow, Limit, Period, Request, Unit, Window,
};

use super::unit::UnitNumber;

/// What a call asks, borrowed from what the client sent.
#[derive(Debug, Default)]
pub(super) struct Asked<'b> {
    pub(super) domain: &'b str,
    /// For descriptors that do not say; zero means one.
    pub(super) hits: u32,
    /// Those of all descriptors, one after the other.
    entries: SmallVec<[Entry<'b>; INLINE]>,
    parts: SmallVec<[Part; INLINE]>,
}

/// Descriptors, and entries, of a request that needs no allocation for them.
const INLINE: usize = 12;

/// One descriptor, without its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    begin: usize,
    end: usize,
    pub(super) limit: Option<OwnLimit>,
    pub(super) hits: Option<u64>,
    pub(super) negative: bool,
}

/// A limit that the client brings along, as sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnLimit {
    pub(super) requests_per_unit: u32,
    pub(super) unit: i32,
}

/// Why a request makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum AskError {
    #[error("rate limit domain must not be empty")]
    NoDomain,
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    #[error("a request may have up to {DESCRIPTORS_MAX} descriptors")]
    TooManyDescriptors,
    #[error("the limit of a descriptor has the unknown unit {0}")]
    UnknownUnit(i32),
}

impl<'b> Asked<'b> {
    /// Begins a descriptor; [`Asked::end`] ends it.
    #[inline]
    pub(super) fn begin(&self) -> Part {
        Part { begin: self.entries.len(), ..Part::default() }
    }

    /// Adds an entry to the descriptor that was begun.
    #[inline]
    pub(super) fn entry(&mut self, key: &'b str, value: &'b str) {
        self.entries.push(Entry { key, value });
    }

    /// Ends a descriptor.
    #[inline]
    pub(super) fn end(&mut self, part: Part) {
        // One too many is enough to know; the others would only take memory.
        if self.parts.len() > DESCRIPTORS_MAX {
            self.entries.truncate(part.begin);
        } else {
            self.parts.push(Part { end: self.entries.len(), ..part });
        }
    }

    /// The descriptors, in order.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The entries of a descriptor.
    #[inline]
    pub(super) fn entries(&self, part: &Part) -> &[Entry<'b>] {
        self.entries.get(part.begin..part.end).unwrap_or_default()
    }

    /// Whether the request makes sense; the limits that it brings along, one
    /// for each descriptor that has one.
    #[inline]
    pub(super) fn examine(&self, refused_hits: RefusedHits) -> Result<OwnLimits, AskError> {
        if self.domain.is_empty() {
            return Err(AskError::NoDomain);
        }
        match self.parts.len() {
            0 => return Err(AskError::NoDescriptors),
            1..=DESCRIPTORS_MAX => {}
            _ => return Err(AskError::TooManyDescriptors),
        }
        let brought = self.parts.iter().filter_map(|part| part.limit);
        brought.map(|limit| limit.usable(refused_hits)).collect()
    }

    /// The descriptors as the engine takes them.
    #[inline]
    pub(super) fn descriptors<'a>(&'a self, own: &'a OwnLimits) -> Descriptors<'a> {
        let mut own = own.iter();
        let parts = self.parts.iter().map(|part| Descriptor {
            entries: self.entries(part),
            cost: part.hits,
            refund: part.negative,
            limit: part.limit.and_then(|_| own.next()),
        });
        parts.collect()
    }

    /// The request as the engine takes it.
    #[inline]
    pub(super) fn request<'a>(&'a self, descriptors: &'a [Descriptor<'a>]) -> Request<'a> {
        Request { domain: self.domain, descriptors, cost: u64::from(self.hits.max(1)) }
    }
}

/// The limits that a request brings along.
pub(super) type OwnLimits = Vec<Limit>;
/// The descriptors of a request, as the engine takes them.
pub(super) type Descriptors<'a> = SmallVec<[Descriptor<'a>; INLINE]>;

/// Whether hits that a limit refuses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusedHits {
    Count,
    Drop,
}

impl OwnLimit {
    fn usable(self, refused_hits: RefusedHits) -> Result<Limit, AskError> {
        let unit = UnitNumber::read(self.unit).ok_or(AskError::UnknownUnit(self.unit))?;
        let window = FixedWindow::new(u64::from(self.requests_per_unit), window(unit));
        Ok(Limit::new(window.counting_refused(refused_hits == RefusedHits::Count)))
    }
}

fn window(unit: Unit) -> Window {
    let period: Period = unit.period();
    Window::Every(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(descriptors: usize) -> Asked<'static> {
        let mut asked = Asked { domain: "api", ..Asked::default() };
        for _ in 0..descriptors {
            let part = asked.begin();
            asked.entry("user", "7");
            asked.end(part);
        }
        asked
    }

    #[test]
    fn descriptors_beyond_the_maximum_take_no_memory() {
        let asked = asking(5 * DESCRIPTORS_MAX);
        assert_eq!(asked.parts().len(), DESCRIPTORS_MAX + 1);
        assert_eq!(asked.entries.len(), DESCRIPTORS_MAX + 1);
        let error = asked.examine(RefusedHits::Drop).unwrap_err();
        assert_eq!(error, AskError::TooManyDescriptors);
        assert!(asking(DESCRIPTORS_MAX).examine(RefusedHits::Drop).is_ok());
    }

    #[test]
    fn own_limits_go_to_the_descriptors_that_brought_them() {
        let mut asked = asking(1);
        for requests_per_unit in [5, 6] {
            let mut part = asked.begin();
            part.limit = Some(OwnLimit { requests_per_unit, unit: 7 });
            asked.end(part);
        }
        let own = asked.examine(RefusedHits::Drop).unwrap();
        let quotas: Vec<Option<u64>> = asked
            .descriptors(&own)
            .iter()
            .map(|descriptor| descriptor.limit.map(|limit| limit.algorithm().quota()))
            .collect();
        assert_eq!(quotas, [None, Some(5), Some(6)]);
    }

    #[test]
    fn an_unknown_unit_is_an_error() {
        for unit in [0, 8, -1, i32::MIN, i32::MAX] {
            let mut asked = asking(0);
            let mut part = asked.begin();
            part.limit = Some(OwnLimit { requests_per_unit: 1, unit });
            asked.end(part);
            assert_eq!(asked.examine(RefusedHits::Drop).unwrap_err(), AskError::UnknownUnit(unit));
        }
    }
}
