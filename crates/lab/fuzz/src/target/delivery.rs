//! The readers of a target's answer: every answer has an outcome, a hold within its bound, and one result for each
//! record; a URL that is allowed names an allowed host.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use tidegate_delivery::signature::{SigningKey, verify};
use tidegate_delivery::{
    AttemptOutcome, AttemptResult, CostSource, DestinationPolicy, HOLD_MAX, HostRule, StatusPolicy,
    read_results,
};
use tidegate_queue::{COST_MAX, Timestamp};

use super::{Target, Trail};

pub(super) const WORDS: &[&str] = &[
    "429",
    "503",
    "200",
    "retry-after",
    "retry-after-ms",
    "ratelimit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-cost",
    "results",
    "id",
    "status",
    "cost",
    "error",
    "retry_after_ms",
    "http://",
    "https://",
    "api.test",
    "[::ffff:127.0.0.1]",
    "169.254.169.254",
    "@",
    "t=1700000000,v1=",
    "Tue, 14 Nov 2023 22:13:20 GMT",
];

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
/// The ids that an answer may name.
const IDS: [&str; 3] = ["a", "b", "c"];

/// An input is a status, header fields on lines of their own, an empty line, and a body.
pub(super) struct DeliveryTarget {
    statuses: StatusPolicy,
    destinations: DestinationPolicy,
    key: SigningKey,
    ids: Vec<String>,
}

impl DeliveryTarget {
    pub(super) fn new() -> Self {
        let hosts = vec!["api.test".parse::<HostRule>().expect("a host")];
        DeliveryTarget {
            statuses: StatusPolicy::default(),
            destinations: DestinationPolicy { hosts, networks: Vec::new(), plain_text: true },
            key: SigningKey::new("a secret of sixteen bytes").expect("long enough"),
            ids: IDS.map(str::to_owned).to_vec(),
        }
    }
}

impl Target for DeliveryTarget {
    fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
        let (status, headers, body) = split(input);
        let outcome = self.statuses.classify(status, &headers, NOW);
        let hold = check_outcome(&outcome)?;
        let results = read_results(body, &self.ids, &self.statuses);
        if results.len() != self.ids.len() {
            return Err(format!("{} results for {} records", results.len(), self.ids.len()));
        }
        for AttemptResult { outcome, real_cost, .. } in &results {
            check_outcome(outcome)?;
            check_cost(*real_cost)?;
        }
        let sources = [
            CostSource::Header(HeaderName::from_static("x-cost")),
            CostSource::JsonPointer("/cost".to_owned()),
        ];
        let costs = sources.map(|source| source.read(&headers, body));
        for cost in costs {
            check_cost(cost)?;
        }
        let text = std::str::from_utf8(body).unwrap_or_default();
        let allowed = text.parse::<Uri>().map(|url| {
            let allowed = self.destinations.check_url(&url).is_ok();
            (allowed, url.host().is_some_and(|host| host.eq_ignore_ascii_case("api.test")), url)
        });
        if let Ok((true, false, url)) = &allowed
            && !url.host().is_some_and(|host| host.eq_ignore_ascii_case("api.test."))
        {
            return Err(format!("{url} is allowed"));
        }
        if verify(text, b"", std::slice::from_ref(&self.key), NOW, Duration::from_secs(300)).is_ok()
        {
            return Err("a signature was guessed".to_owned());
        }
        let kinds = results.iter().map(|result| kind(&result.outcome)).collect::<Vec<_>>();
        let costs = costs.map(|cost| cost.is_some());
        Ok(Trail::of((
            kind(&outcome),
            hold.is_some(),
            kinds,
            costs,
            allowed.map(|(is, ..)| is).ok(),
        )))
    }
}

fn split(input: &[u8]) -> (StatusCode, HeaderMap, &[u8]) {
    let end = input.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = match end {
        Some(end) => (&input[..end], &input[end + 2..]),
        None => (input, input),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = lines.next().and_then(|line| StatusCode::from_bytes(line).ok());
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            let _ = headers.try_append(name, value);
        }
    }
    (status.unwrap_or(StatusCode::TOO_MANY_REQUESTS), headers, body)
}

fn check_outcome(outcome: &AttemptOutcome) -> Result<Option<Duration>, String> {
    match outcome {
        AttemptOutcome::Throttled { hold: Some(hold) } if *hold > HOLD_MAX => {
            Err(format!("a hold of {hold:?}"))
        }
        AttemptOutcome::Throttled { hold } => Ok(*hold),
        _ => Ok(None),
    }
}

fn check_cost(cost: Option<u64>) -> Result<(), String> {
    match cost {
        Some(cost) if cost > COST_MAX => Err(format!("a cost of {cost}")),
        _ => Ok(()),
    }
}

const fn kind(outcome: &AttemptOutcome) -> u8 {
    match outcome {
        AttemptOutcome::Delivered => 0,
        AttemptOutcome::Throttled { .. } => 1,
        AttemptOutcome::Failed { .. } => 2,
        AttemptOutcome::Ambiguous { .. } => 3,
        AttemptOutcome::Rejected { .. } => 4,
    }
}
