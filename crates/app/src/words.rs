//! Limits, durations and counts in words.

use std::time::Duration;

use tidegate_document::parse_duration;
use tidegate_engine::{Algorithm, Nanos, Retry, RuleLimit, Window};
use tidegate_rules::{RoundingMode, Unit};

const MILLI: u64 = 1_000_000;

/// "1 rule", "2 rules".
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A duration, rounded up: to milliseconds below a minute, otherwise to seconds.
pub(crate) fn span(span: Nanos) -> String {
    let nanos = span.get();
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < MILLI {
        return format!("{:?}", Duration::from_micros(nanos.div_ceil(1_000)));
    }
    let millis = nanos.div_ceil(MILLI);
    if millis < 60_000 {
        return format!("{:?}", Duration::from_millis(millis));
    }
    let mut seconds = span.as_secs_ceil();
    let mut text = String::new();
    for (length, name) in [(86_400, 'd'), (3_600, 'h'), (60, 'm'), (1, 's')] {
        if seconds >= length {
            text.push_str(&format!("{}{name}", seconds / length));
            seconds %= length;
        }
    }
    text
}

/// The time after which a refused request may be repeated.
pub(crate) fn retry(retry: Retry) -> String {
    match retry {
        Retry::Now => String::new(),
        Retry::After(wait) => span(wait),
        Retry::Never => "never".to_owned(),
    }
}

/// What a limit allows, in a few words.
pub(crate) fn terms(limit: &RuleLimit) -> String {
    let algorithm = limit.limit.algorithm();
    let amount = algorithm.quota();
    let per = per(limit);
    match algorithm {
        Algorithm::TokenBucket(bucket) => {
            format!("{amount} per {per}, up to {} at once", bucket.burst())
        }
        Algorithm::LeakyBucket(bucket) => {
            format!("{amount} per {per} at an even pace, up to {} waiting", bucket.queue())
        }
        Algorithm::FixedWindow(_) => format!("{amount} per {per}"),
        Algorithm::SlidingLog(_) => format!("{amount} in any {per}"),
        Algorithm::SlidingWindow(_) => format!("about {amount} in any {per}"),
        Algorithm::Concurrency(_) => format!("{amount} at once"),
    }
}

/// The other properties of a limit that are not the default.
pub(crate) fn details(limit: &RuleLimit) -> Vec<String> {
    let mut details = Vec::new();
    match limit.limit.algorithm() {
        Algorithm::SlidingWindow(window) => {
            details.push(format!("counted in {}", count(usize::from(window.slices()), "bucket")));
            if window.rounding() == RoundingMode::Down {
                details.push("use rounded down".to_owned());
            }
        }
        Algorithm::Concurrency(slots) => {
            let life = span(slots.time_to_live().as_span());
            details.push(format!("a slot that is not released expires after {life}"));
        }
        _ => {}
    }
    if let Some(soft) = limit.limit.soft() {
        let lasting = span(soft.lasting.as_span());
        details.push(format!("may be exceeded by {}% for {lasting}", soft.over_percent));
    }
    if limit.cost != 1 {
        details.push(format!("one hit costs {}", limit.cost));
    }
    if limit.quota {
        details.push("one of several quotas: refuses only when all are used up".to_owned());
    }
    if limit.mode.enforce_percent() < 100 {
        details.push(format!("enforced for {}% of the keys", limit.mode.enforce_percent()));
    }
    details
}

fn per(limit: &RuleLimit) -> String {
    if let Algorithm::FixedWindow(window) = limit.limit.algorithm()
        && let Window::Calendar(unit, zone) = window.window()
    {
        let zone = zone.iana_name().unwrap_or("UTC");
        return format!("calendar {} in {zone}", unit.as_str());
    }
    match limit.unit {
        Some(Unit::Month) => "month of 30 days".to_owned(),
        Some(Unit::Year) => "year of 365 days".to_owned(),
        Some(unit) => unit.as_str().to_owned(),
        None => match limit.limit.algorithm().period() {
            period if period == Nanos::from_secs(1) => "second".to_owned(),
            period if period == Nanos::from_secs(60) => "minute".to_owned(),
            period => span(period),
        },
    }
}

/// A duration as people type it: `500ms`, `2s`, `1m30s`. Not zero, and short enough for [`Nanos`].
pub(crate) fn parse_span(text: &str) -> Option<Nanos> {
    let nanos = u64::try_from(parse_duration(text).ok()?.as_nanos()).ok()?;
    (nanos > 0).then(|| Nanos::new(nanos))
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Options, Source, compile};

    use super::*;

    const SECOND: u64 = 1_000 * MILLI;

    fn words(limit: &str) -> String {
        let text = format!("{{domain: d, descriptors: [{{key: k, rate_limit: {{{limit}}}}}]}}");
        let snapshot = compile(&[Source::new("d.yaml", text)], &Options::default());
        let snapshot = snapshot.unwrap_or_else(|report| panic!("{report}"));
        let limit = &snapshot.limits()[0];
        let mut words = vec![terms(limit)];
        words.extend(details(limit));
        words.join("; ")
    }

    #[test]
    fn describes_every_limit_in_words() {
        for (limit, expected) in [
            ("unit: second, requests_per_unit: 5", "5 per second"),
            ("unit: month, requests_per_unit: 5", "5 per month of 30 days"),
            ("per: 90s, requests_per_unit: 5", "5 per 1m30s"),
            ("per: 60s, requests_per_unit: 5", "5 per minute"),
            (
                "unit: month, calendar: true, time_zone: Europe/Berlin, requests_per_unit: 5",
                "5 per calendar month in Europe/Berlin",
            ),
            ("unit: day, calendar: true, requests_per_unit: 5", "5 per calendar day in UTC"),
            (
                "algorithm: token_bucket, unit: second, requests_per_unit: 5, burst: 9",
                "5 per second, up to 9 at once",
            ),
            (
                "algorithm: leaky_bucket, unit: second, requests_per_unit: 5, queue: 9",
                "5 per second at an even pace, up to 9 waiting",
            ),
            ("algorithm: sliding_log, unit: hour, requests_per_unit: 5", "5 in any hour"),
            (
                "algorithm: sliding_window, unit: day, requests_per_unit: 5, buckets: 6",
                "about 5 in any day; counted in 6 buckets",
            ),
            (
                "algorithm: concurrency, requests_per_unit: 5, time_to_live: 90s",
                "5 at once; a slot that is not released expires after 1m30s",
            ),
            (
                "unit: second, requests_per_unit: 5, cost: 3, soft: {over: 20%, for: 30s}",
                "5 per second; may be exceeded by 20% for 30s; one hit costs 3",
            ),
            (
                "unit: second, requests_per_unit: 5, enforce_percent: 10",
                "5 per second; enforced for 10% of the keys",
            ),
        ] {
            assert_eq!(words(limit), expected);
        }
    }

    #[test]
    fn rounds_durations_up() {
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1µs"),
            (MILLI, "1ms"),
            (MILLI + 1, "2ms"),
            (999 * MILLI + 1, "1s"),
            (SECOND, "1s"),
            (SECOND * 3 / 2, "1.5s"),
            (12 * SECOND + 340 * MILLI, "12.34s"),
            (60 * SECOND, "1m"),
            (60 * SECOND - 1, "1m"),
            (90 * SECOND, "1m30s"),
            (86_400 * SECOND + 60 * SECOND + 1, "1d1m1s"),
            (u64::MAX, "213503d23h34m34s"),
        ] {
            assert_eq!(span(Nanos::new(nanos)), expected);
        }
    }

    #[test]
    fn reads_durations_as_people_type_them() {
        let millis = |text| parse_span(text).map(|span| span.get() / MILLI);
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("2s"), Some(2_000));
        assert_eq!(millis("1m30s"), Some(90_000));
        assert_eq!(millis("1h"), Some(3_600_000));
        assert_eq!(millis("2d"), Some(172_800_000));
    }

    #[test]
    fn text_that_is_not_a_duration_is_refused() {
        for text in ["", "5", "s", "5 s", "5x", "-5s", "0s", "99999999999999999999s", "999999d"] {
            assert_eq!(parse_span(text), None, "{text}");
        }
    }

    #[test]
    fn counts_one_thing_and_several() {
        assert_eq!(count(1, "rule"), "1 rule");
        assert_eq!(count(0, "rule"), "0 rules");
    }
}
