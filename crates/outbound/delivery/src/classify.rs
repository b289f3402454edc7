//! What an answer means for its record.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tidegate_queue::Timestamp;
use tidegate_response_fields::ResponseFields;

use crate::processor::AttemptOutcome;

/// The longest hold that a service may ask for unless the operator says otherwise.
pub const HOLD_MAX: Duration = Duration::from_mins(5);

/// Which statuses mean what.
///
/// | Status | Outcome |
/// |---|---|
/// | 2xx | delivered |
/// | 429, 503 with `Retry-After`, and those in `throttled` | throttled |
/// | 502, 504 | ambiguous: a proxy lost the answer |
/// | 408, 425, other 5xx | failed |
/// | all others | rejected |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPolicy {
    /// More statuses that mean "slow down".
    pub throttled: Vec<u16>,
    /// Statuses that count as delivered, such as 409 of a service that has the record already.
    pub delivered: Vec<u16>,
    /// The longest hold that the target may ask for.
    pub hold_max: Duration,
}

impl Default for StatusPolicy {
    fn default() -> Self {
        StatusPolicy { throttled: Vec::new(), delivered: Vec::new(), hold_max: HOLD_MAX }
    }
}

impl StatusPolicy {
    /// The outcome of an answer. `now` is the wall clock.
    pub fn classify(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> AttemptOutcome {
        let code = status.as_u16();
        let fields = ResponseFields::read(headers, now);
        let asks_to_wait = code == 503 && fields.wait.is_some();
        if asks_to_wait || self.is_throttled(code) {
            return AttemptOutcome::Throttled { hold: self.hold(&fields) };
        }
        self.classify_code(code)
    }

    /// The outcome of a status without header fields.
    pub(crate) fn classify_code(&self, code: u16) -> AttemptOutcome {
        let detail = || format!("the target answered {code}");
        match code {
            _ if self.delivered.contains(&code) => AttemptOutcome::Delivered,
            _ if self.is_throttled(code) => AttemptOutcome::Throttled { hold: None },
            200..=299 => AttemptOutcome::Delivered,
            502 | 504 => AttemptOutcome::Ambiguous { detail: detail() },
            408 | 425 | 500..=599 => AttemptOutcome::Failed { detail: detail() },
            _ => AttemptOutcome::Rejected { detail: detail() },
        }
    }

    fn is_throttled(&self, code: u16) -> bool {
        code == 429 || self.throttled.contains(&code)
    }

    /// The wait that an answer asks for, or the longest reset of a quota that is spent.
    fn hold(&self, fields: &ResponseFields) -> Option<Duration> {
        let spent = fields.policies.iter().filter(|policy| policy.remaining == Some(0));
        let reset = spent.filter_map(|policy| policy.reset).max();
        let hold = Duration::from_nanos(fields.wait.or(reset)?.get());
        Some(hold.min(self.hold_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(policy: &StatusPolicy, code: u16, retry_after: Option<&str>) -> AttemptOutcome {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert("retry-after", text.parse().unwrap());
        }
        let status = StatusCode::from_u16(code).unwrap();
        policy.classify(status, &headers, Timestamp::from_secs(1_700_000_000))
    }

    #[test]
    fn each_status_has_its_outcome() {
        let policy = StatusPolicy::default();
        let name = |code, retry_after| match outcome(&policy, code, retry_after) {
            AttemptOutcome::Delivered => "delivered",
            AttemptOutcome::Throttled { .. } => "throttled",
            AttemptOutcome::Failed { .. } => "failed",
            AttemptOutcome::Ambiguous { .. } => "ambiguous",
            AttemptOutcome::Rejected { .. } => "rejected",
        };
        for code in [200, 201, 202, 204] {
            assert_eq!(name(code, None), "delivered", "{code}");
        }
        assert_eq!((name(429, None), name(503, Some("3"))), ("throttled", "throttled"));
        for code in [408, 425, 500, 501, 503, 507, 599] {
            assert_eq!(name(code, None), "failed", "{code}");
        }
        assert_eq!((name(502, None), name(504, None)), ("ambiguous", "ambiguous"));
        for code in [300, 302, 304, 400, 401, 403, 404, 409, 410, 413, 422] {
            assert_eq!(name(code, Some("3")), "rejected", "{code}");
        }
    }

    #[test]
    fn a_hold_is_read_and_capped() {
        let policy = StatusPolicy { hold_max: Duration::from_secs(20), ..StatusPolicy::default() };
        let hold = |text| outcome(&policy, 429, text);
        let seconds =
            |seconds| AttemptOutcome::Throttled { hold: Some(Duration::from_secs(seconds)) };
        assert_eq!((hold(Some("3")), hold(Some("3600"))), (seconds(3), seconds(20)));
        assert_eq!(hold(None), AttemptOutcome::Throttled { hold: None });
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", "0".parse().unwrap());
        headers.insert("x-ratelimit-reset", "9".parse().unwrap());
        let now = Timestamp::from_secs(1_700_000_000);
        let spent = policy.classify(StatusCode::TOO_MANY_REQUESTS, &headers, now);
        assert_eq!(spent, seconds(9));
    }

    #[test]
    fn operators_name_more_statuses() {
        let policy =
            StatusPolicy { throttled: vec![420], delivered: vec![409], ..StatusPolicy::default() };
        assert_eq!(outcome(&policy, 420, None), AttemptOutcome::Throttled { hold: None });
        assert_eq!(outcome(&policy, 409, None), AttemptOutcome::Delivered);
    }
}
