//! A decoded `RateLimitRequest`, and its conversion to a request of the engine.

use smallvec::SmallVec;
use thiserror::Error;
use tidegate_engine::{
    DESCRIPTORS_MAX, Descriptor, Entry, FixedWindow, Limit, Period, Request, Unit, Window,
};

use crate::unit::UnitNumber;

/// A decoded request. Its texts are borrowed from the body.
#[derive(Debug)]
pub(crate) struct RateLimitRequest<'b> {
    pub(crate) domain: &'b str,
    /// The cost of descriptors that have none of their own; zero means one.
    pub(crate) hits: u32,
    /// The entries of all descriptors, one after the other.
    entries: SmallVec<[Entry<'b>; INLINE]>,
    descriptors: SmallVec<[RequestDescriptor; INLINE]>,
    descriptors_max: usize,
}

impl Default for RateLimitRequest<'_> {
    fn default() -> Self {
        RateLimitRequest::with_descriptors_max(DESCRIPTORS_MAX)
    }
}

/// How many descriptors, and how many entries, a request may have without an allocation.
const INLINE: usize = 12;

/// One descriptor, without its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestDescriptor {
    begin: usize,
    end: usize,
    pub(crate) limit: Option<LimitOverride>,
    pub(crate) hits: Option<u64>,
    pub(crate) negative: bool,
}

/// A limit that the client sent with a descriptor, as sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitOverride {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: i32,
}

/// Why a request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum RequestError {
    #[error("rate limit domain must not be empty")]
    NoDomain,
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    #[error("a request may have up to {max} descriptors")]
    TooManyDescriptors { max: usize },
    #[error("the limit of a descriptor has the unknown unit {0}")]
    UnknownUnit(i32),
}

impl<'b> RateLimitRequest<'b> {
    /// An empty request, for up to this many descriptors.
    pub(crate) fn with_descriptors_max(descriptors_max: usize) -> Self {
        RateLimitRequest {
            domain: "",
            hits: 0,
            entries: SmallVec::new(),
            descriptors: SmallVec::new(),
            descriptors_max,
        }
    }

    /// Starts a descriptor; [`RateLimitRequest::end_descriptor`] ends it.
    #[inline]
    pub(crate) fn start_descriptor(&self) -> RequestDescriptor {
        RequestDescriptor { begin: self.entries.len(), ..RequestDescriptor::default() }
    }

    /// Adds an entry to the descriptor that was started.
    #[inline]
    pub(crate) fn push_entry(&mut self, key: &'b str, value: &'b str) {
        self.entries.push(Entry { key, value });
    }

    /// Ends a descriptor.
    #[inline]
    pub(crate) fn end_descriptor(&mut self, descriptor: RequestDescriptor) {
        // One too many is enough to reject the request; more would only take memory.
        if self.descriptors.len() > self.descriptors_max {
            self.entries.truncate(descriptor.begin);
        } else {
            self.descriptors.push(RequestDescriptor { end: self.entries.len(), ..descriptor });
        }
    }

    /// The descriptors, in order.
    pub(crate) fn descriptors(&self) -> &[RequestDescriptor] {
        &self.descriptors
    }

    /// The entries of a descriptor.
    #[inline]
    pub(crate) fn entries(&self, descriptor: &RequestDescriptor) -> &[Entry<'b>] {
        self.entries.get(descriptor.begin..descriptor.end).unwrap_or_default()
    }

    /// Validates the request. Returns the limits that it carries, one for each descriptor that has one.
    #[inline]
    pub(crate) fn validate(
        &self,
        refused_hits: RefusedHits,
    ) -> Result<OverrideLimits, RequestError> {
        if self.domain.is_empty() {
            return Err(RequestError::NoDomain);
        }
        let max = self.descriptors_max;
        match self.descriptors.len() {
            0 => return Err(RequestError::NoDescriptors),
            found if found > max => return Err(RequestError::TooManyDescriptors { max }),
            _ => {}
        }
        let overrides = self.descriptors.iter().filter_map(|descriptor| descriptor.limit);
        overrides.map(|limit| limit.to_limit(refused_hits)).collect()
    }

    /// The descriptors as the engine takes them.
    #[inline]
    pub(crate) fn engine_descriptors<'a>(&'a self, limits: &'a OverrideLimits) -> Descriptors<'a> {
        let mut limits = limits.iter();
        let descriptors = self.descriptors.iter().map(|descriptor| Descriptor {
            entries: self.entries(descriptor),
            cost: descriptor.hits,
            refund: descriptor.negative,
            limit: descriptor.limit.and_then(|_| limits.next()),
        });
        descriptors.collect()
    }

    /// The request as the engine takes it.
    #[inline]
    pub(crate) fn engine_request<'a>(&'a self, descriptors: &'a [Descriptor<'a>]) -> Request<'a> {
        Request { domain: self.domain, descriptors, cost: u64::from(self.hits.max(1)) }
    }
}

/// The limits that a request carries.
pub(crate) type OverrideLimits = Vec<Limit>;
/// The descriptors of a request, as the engine takes them.
pub(crate) type Descriptors<'a> = SmallVec<[Descriptor<'a>; INLINE]>;

/// Whether hits that a limit refuses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedHits {
    Count,
    Drop,
}

impl LimitOverride {
    fn to_limit(self, refused_hits: RefusedHits) -> Result<Limit, RequestError> {
        let unit = UnitNumber::read(self.unit).ok_or(RequestError::UnknownUnit(self.unit))?;
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

    fn request_of(descriptors: usize) -> RateLimitRequest<'static> {
        let mut request = RateLimitRequest { domain: "api", ..RateLimitRequest::default() };
        for _ in 0..descriptors {
            let descriptor = request.start_descriptor();
            request.push_entry("user", "7");
            request.end_descriptor(descriptor);
        }
        request
    }

    #[test]
    fn descriptors_beyond_the_maximum_take_no_memory() {
        let request = request_of(5 * DESCRIPTORS_MAX);
        assert_eq!(request.descriptors().len(), DESCRIPTORS_MAX + 1);
        assert_eq!(request.entries.len(), DESCRIPTORS_MAX + 1);
        let error = request.validate(RefusedHits::Drop).unwrap_err();
        assert_eq!(error, RequestError::TooManyDescriptors { max: DESCRIPTORS_MAX });
        assert!(request_of(DESCRIPTORS_MAX).validate(RefusedHits::Drop).is_ok());
    }

    #[test]
    fn limits_go_to_the_descriptors_that_carry_them() {
        let mut request = request_of(1);
        for requests_per_unit in [5, 6] {
            let mut descriptor = request.start_descriptor();
            descriptor.limit = Some(LimitOverride { requests_per_unit, unit: 7 });
            request.end_descriptor(descriptor);
        }
        let limits = request.validate(RefusedHits::Drop).unwrap();
        let quotas: Vec<Option<u64>> = request
            .engine_descriptors(&limits)
            .iter()
            .map(|descriptor| descriptor.limit.map(|limit| limit.algorithm().quota()))
            .collect();
        assert_eq!(quotas, [None, Some(5), Some(6)]);
    }

    #[test]
    fn an_unknown_unit_is_an_error() {
        for unit in [0, 8, -1, i32::MIN, i32::MAX] {
            let mut request = request_of(0);
            let mut descriptor = request.start_descriptor();
            descriptor.limit = Some(LimitOverride { requests_per_unit: 1, unit });
            request.end_descriptor(descriptor);
            assert_eq!(
                request.validate(RefusedHits::Drop).unwrap_err(),
                RequestError::UnknownUnit(unit)
            );
        }
    }
}
