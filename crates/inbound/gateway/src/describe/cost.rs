//! The cost of a request: charged upfront, and corrected when it has ended.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use smallvec::SmallVec;

use crate::encode::Fault;
use crate::settings::CostSettings;

/// How the cost of a request is determined.
#[derive(Clone, Debug)]
pub(crate) enum Cost {
    Fixed(u64),
    Header { name: HeaderName, min: u64, max: u64 },
    BodyBytes { min: u64 },
    Reported { name: HeaderName, max: u64 },
}

/// A charge to one descriptor that is due when the cost is known.
#[derive(Clone, Debug)]
pub(crate) struct DeferredCharge {
    /// The index of the descriptor.
    pub(crate) descriptor: usize,
    /// The units charged upfront.
    charged: u64,
    source: DeferredCost,
}

pub(crate) type DeferredCharges = SmallVec<[DeferredCharge; 1]>;

/// Where a deferred cost comes from.
#[derive(Clone, Debug)]
enum DeferredCost {
    Body,
    Response { name: HeaderName, max: u64 },
}

impl Cost {
    pub(super) fn of(settings: &CostSettings) -> Self {
        match settings {
            CostSettings::Fixed(cost) => Cost::Fixed(*cost),
            CostSettings::Header { name, min, max } => {
                Cost::Header { name: name.clone(), min: *min, max: *max }
            }
            CostSettings::BodyBytes { min } => Cost::BodyBytes { min: *min },
            CostSettings::Reported { name, max } => {
                Cost::Reported { name: name.clone(), max: *max }
            }
        }
    }

    /// The units charged before the request is forwarded: one if the cost is not known yet, so that a limit without
    /// units left refuses.
    pub(super) fn upfront(&self, head: &Parts, body_bytes: Option<u64>) -> Result<u64, Fault> {
        Ok(match self {
            Cost::Fixed(cost) => *cost,
            Cost::Header { name, min, max } => {
                let mut values = head.headers.get_all(name).iter();
                let first = values.next();
                // A list is several values, in one line or in several.
                let is_list = first.is_some_and(|value| value.as_bytes().contains(&b','));
                if is_list || values.next().is_some() {
                    return Err(Fault::AmbiguousValue);
                }
                number(first).map_or(1, |cost| cost.min(*max)).max(*min)
            }
            Cost::BodyBytes { min } => body_bytes.unwrap_or(1).max(*min),
            Cost::Reported { .. } => 1,
        })
    }

    /// The charge that is due later, if the cost is not known yet.
    pub(super) fn deferred(
        &self,
        body_bytes: Option<u64>,
        descriptor: usize,
        charged: u64,
    ) -> Option<DeferredCharge> {
        let source = match self {
            Cost::BodyBytes { .. } if body_bytes.is_none() => DeferredCost::Body,
            Cost::Reported { name, max } => {
                DeferredCost::Response { name: name.clone(), max: *max }
            }
            Cost::Fixed(_) | Cost::Header { .. } | Cost::BodyBytes { .. } => return None,
        };
        Some(DeferredCharge { descriptor, charged, source })
    }
}

impl DeferredCharge {
    /// The units due for a body of this length.
    pub(crate) fn due_for_body(&self, bytes: u64) -> u64 {
        match self.source {
            DeferredCost::Body => bytes.saturating_sub(self.charged),
            DeferredCost::Response { .. } => 0,
        }
    }

    /// The units due by the cost that the response reports.
    pub(crate) fn due_by_response(&self, headers: &HeaderMap) -> u64 {
        match &self.source {
            DeferredCost::Body => 0,
            DeferredCost::Response { name, max } => {
                let cost = number(headers.get(name)).map_or(self.charged, |cost| cost.min(*max));
                cost.saturating_sub(self.charged)
            }
        }
    }

    /// The field of the response that reports the cost, which the client must not see.
    pub(crate) fn field(&self) -> Option<&HeaderName> {
        match &self.source {
            DeferredCost::Body => None,
            DeferredCost::Response { name, .. } => Some(name),
        }
    }
}

fn number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}
