//! What a request costs, before it goes on and afterwards.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use smallvec::SmallVec;

use crate::settings::CostSettings;

/// What a request costs.
#[derive(Clone, Debug)]
pub(crate) enum Cost {
    Fixed(u64),
    Header { name: HeaderName, max: u64 },
    BodyBytes,
    Reported { name: HeaderName, max: u64 },
}

/// What is charged of one descriptor when more is known.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    /// The descriptor's place.
    pub(crate) descriptor: usize,
    /// What has been charged already.
    charged: u64,
    from: From,
}

pub(crate) type Deferrals = SmallVec<[Deferred; 1]>;

#[derive(Clone, Debug)]
enum From {
    Body,
    Answer { name: HeaderName, max: u64 },
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

    /// What is charged before the request goes on. One where the cost is not known yet, so that
    /// a spent limit refuses.
    pub(super) fn before(&self, head: &Parts, body_bytes: Option<u64>) -> u64 {
        match self {
            Cost::Fixed(cost) => *cost,
            Cost::Header { name, max } => {
                number(head.headers.get(name)).map_or(1, |cost| cost.min(*max))
            }
            Cost::BodyBytes => body_bytes.unwrap_or(1),
            Cost::Reported { .. } => 1,
        }
    }

    /// What is left to charge afterwards.
    pub(super) fn deferred(
        &self,
        body_bytes: Option<u64>,
        descriptor: usize,
        charged: u64,
    ) -> Option<Deferred> {
        let from = match self {
            Cost::BodyBytes if body_bytes.is_none() => From::Body,
            Cost::Reported { name, max } => From::Answer { name: name.clone(), max: *max },
            Cost::Fixed(_) | Cost::Header { .. } | Cost::BodyBytes => return None,
        };
        Some(Deferred { descriptor, charged, from })
    }
}

impl Deferred {
    /// The rest, when so many bytes of the body have come.
    pub(crate) fn of_body(&self, bytes: u64) -> u64 {
        match self.from {
            From::Body => bytes.saturating_sub(self.charged),
            From::Answer { .. } => 0,
        }
    }

    /// The rest, as the answer tells it; the field is taken from the answer.
    pub(crate) fn of_answer(&self, headers: &HeaderMap) -> u64 {
        match &self.from {
            From::Body => 0,
            From::Answer { name, max } => {
                let told = number(headers.get(name)).map_or(self.charged, |cost| cost.min(*max));
                told.saturating_sub(self.charged)
            }
        }
    }

    /// The field of the answer that is for us alone.
    pub(crate) fn field(&self) -> Option<&HeaderName> {
        match &self.from {
            From::Body => None,
            From::Answer { name, .. } => Some(name),
        }
    }
}

fn number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}
