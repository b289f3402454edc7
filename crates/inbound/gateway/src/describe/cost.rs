//! The cost of a request: charged upfront, and corrected when it has ended.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use smallvec::SmallVec;

use crate::settings::CostSettings;

/// How the cost of a request is determined.
#[derive(Clone, Debug)]
pub(crate) enum Cost {
    Fixed(u64),
    Header { name: HeaderName, max: u64 },
    BodyBytes,
    Reported { name: HeaderName, max: u64 },
}

/// A charge to one descriptor that is due when the cost is known.
#[derive(Clone, Debug)]
pub(crate) struct DeferredCharge {
    /// The index of the descriptor.
    pub(crate) descriptor: usize,
    /// The units charged upfront.
    charged: u64,
    source: CostSource,
}

pub(crate) type DeferredCharges = SmallVec<[DeferredCharge; 1]>;

#[derive(Clone, Debug)]
enum CostSource {
    Body,
    Response { name: HeaderName, max: u64 },
}

impl Cost {
    pub(super) fn of(settings: &CostSettings) -> Self {
        match settings {
            CostSettings::Fixed(cost) => Cost::Fixed(*cost),
            CostSettings::Header { name, max } => Cost::Header { name: name.clone(), max: *max },
            CostSettings::BodyBytes => Cost::BodyBytes,
            CostSettings::Reported { name, max } => {
                Cost::Reported { name: name.clone(), max: *max }
            }
        }
    }

    /// The units charged before the request is forwarded: one if the cost is not known yet, so that a limit without
    /// units left refuses.
    pub(super) fn upfront(&self, head: &Parts, body_bytes: Option<u64>) -> u64 {
        match self {
            Cost::Fixed(cost) => *cost,
            Cost::Header { name, max } => {
                number(head.headers.get(name)).map_or(1, |cost| cost.min(*max))
            }
            Cost::BodyBytes => body_bytes.unwrap_or(1),
            Cost::Reported { .. } => 1,
        }
    }

    /// The charge that is due later, if the cost is not known yet.
    pub(super) fn deferred(
        &self,
        body_bytes: Option<u64>,
        descriptor: usize,
        charged: u64,
    ) -> Option<DeferredCharge> {
        let source = match self {
            Cost::BodyBytes if body_bytes.is_none() => CostSource::Body,
            Cost::Reported { name, max } => CostSource::Response { name: name.clone(), max: *max },
            Cost::Fixed(_) | Cost::Header { .. } | Cost::BodyBytes => return None,
        };
        Some(DeferredCharge { descriptor, charged, source })
    }
}

impl DeferredCharge {
    /// The units due for a body of this length.
    pub(crate) fn due_for_body(&self, bytes: u64) -> u64 {
        match self.source {
            CostSource::Body => bytes.saturating_sub(self.charged),
            CostSource::Response { .. } => 0,
        }
    }

    /// The units due by the cost that the response reports.
    pub(crate) fn due_by_response(&self, headers: &HeaderMap) -> u64 {
        match &self.source {
            CostSource::Body => 0,
            CostSource::Response { name, max } => {
                let cost = number(headers.get(name)).map_or(self.charged, |cost| cost.min(*max));
                cost.saturating_sub(self.charged)
            }
        }
    }

    /// The field of the response that reports the cost, which the client must not see.
    pub(crate) fn field(&self) -> Option<&HeaderName> {
        match &self.source {
            CostSource::Body => None,
            CostSource::Response { name, .. } => Some(name),
        }
    }
}

fn number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}
