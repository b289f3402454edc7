//! Reads when a throttled service says to return.
//!
//! Pure: takes header fields and the time. Services write hints in many forms, and some write nonsense; a hint that
//! cannot be read is no hint, and a hint is at most [`HOLD_MAX`] unless the caller allows more.
//!
//! | Field | Form |
//! |---|---|
//! | `Retry-After` | seconds, also with a fraction; a date in any form of HTTP |
//! | `Retry-After-Ms`, `X-Ms-Retry-After-Ms` | milliseconds; they win because they are more exact |
//! | `RateLimit` | `"name";r=0;t=30`, or the older `limit=9, remaining=0, reset=30` |
//! | `RateLimit-Reset`, `X-RateLimit-Reset`, `X-Rate-Limit-Reset` | seconds, or a Unix time in seconds or milliseconds; only if the field for what remains says 0 |

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;
use tidegate_queue::Timestamp;

/// The longest hold that a service may ask for unless its caller says otherwise.
pub const HOLD_MAX: Duration = Duration::from_mins(5);

const MILLISECOND_FIELDS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];
const RESET_FIELDS: [(&str, &str); 3] = [
    ("ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-rate-limit-remaining", "x-rate-limit-reset"),
];
/// Numbers above this are Unix times: as a wait it would be thirty years.
const UNIX_SECONDS_MIN: f64 = 1e9;
/// Numbers above this are Unix times in milliseconds.
const UNIX_MILLIS_MIN: f64 = 1e11;

/// How long the service asks to wait, at most `max`. `now` is the wall clock.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use http::HeaderMap;
/// use tidegate_delivery::hints::{HOLD_MAX, read_hold};
/// use tidegate_queue::Timestamp;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", "7".parse().unwrap());
/// let hold = read_hold(&headers, Timestamp::from_secs(1_700_000_000), HOLD_MAX);
/// assert_eq!(hold, Some(Duration::from_secs(7)));
/// ```
pub fn read_hold(headers: &HeaderMap, now: Timestamp, max: Duration) -> Option<Duration> {
    let millis = MILLISECOND_FIELDS.iter().find_map(|name| number(text(headers, name)?));
    let hold = millis
        .map(|millis| seconds(millis / 1_000.0))
        .or_else(|| read_retry_after(text(headers, "retry-after")?, now))
        .or_else(|| read_rate_limit(text(headers, "ratelimit")?))
        .or_else(|| RESET_FIELDS.iter().find_map(|fields| read_reset(headers, *fields, now)))?;
    Some(hold.min(max))
}

/// Whether the service says when to return, in `Retry-After` or its variants in milliseconds.
pub fn has_retry_after(headers: &HeaderMap) -> bool {
    headers.contains_key("retry-after")
        || MILLISECOND_FIELDS.iter().any(|name| headers.contains_key(*name))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// A number that is neither negative nor infinite.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse::<f64>().ok().filter(|number| plain && number.is_finite())
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn read_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    if let Some(number) = number(text) {
        return Some(read_wait_or_time(number, now));
    }
    let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(Duration::from_nanos(now.as_nanos())))
}

/// A wait in seconds, or a Unix time.
fn read_wait_or_time(number: f64, now: Timestamp) -> Duration {
    let now = Duration::from_nanos(now.as_nanos());
    if number >= UNIX_MILLIS_MIN {
        seconds(number / 1_000.0).saturating_sub(now)
    } else if number >= UNIX_SECONDS_MIN {
        seconds(number).saturating_sub(now)
    } else {
        seconds(number)
    }
}

/// The longest wait among policies of which nothing is left.
fn read_rate_limit(text: &str) -> Option<Duration> {
    let parameter = |part: &str, names: [&str; 2]| -> Option<f64> {
        let pairs = part.split([';', ',']).filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter(|(name, _)| names.contains(&name.trim()));
        number(values.next()?.1.trim())
    };
    // The older form has one policy, whose parameters are separated by commas.
    let policies: Vec<&str> =
        if text.contains(';') { text.split(',').collect() } else { vec![text] };
    let spent = policies.into_iter().filter(|policy| {
        parameter(policy, ["r", "remaining"]).is_some_and(|remaining| remaining < 1.0)
    });
    spent.filter_map(|policy| parameter(policy, ["t", "reset"])).map(seconds).max()
}

fn read_reset(
    headers: &HeaderMap,
    (remaining, reset): (&str, &str),
    now: Timestamp,
) -> Option<Duration> {
    number(text(headers, remaining)?).filter(|remaining| *remaining < 1.0)?;
    Some(read_wait_or_time(number(text(headers, reset)?)?, now))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2023-11-14T22:13:20Z.
    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn hold(fields: &[(&'static str, &str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        read_hold(&headers, NOW, Duration::from_hours(1))
    }

    #[test]
    fn every_form_of_retry_after_is_read() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(hold(&[("retry-after", "30")]), seconds(30));
        assert_eq!(hold(&[("retry-after", " 0 ")]), seconds(0));
        assert_eq!(hold(&[("retry-after", "1.5")]), Some(Duration::from_millis(1_500)));
        assert_eq!(hold(&[("retry-after", "Tue, 14 Nov 2023 22:13:50 GMT")]), seconds(30));
        assert_eq!(hold(&[("retry-after", "Tuesday, 14-Nov-23 22:13:50 GMT")]), seconds(30));
        assert_eq!(hold(&[("retry-after", "Tue Nov 14 22:13:50 2023")]), seconds(30));
        // A date that has passed, and a Unix time.
        assert_eq!(hold(&[("retry-after", "Tue, 14 Nov 2023 22:13:10 GMT")]), seconds(0));
        assert_eq!(hold(&[("retry-after", "1700000012")]), seconds(12));
        assert_eq!(
            hold(&[("retry-after-ms", "250"), ("retry-after", "1")]),
            Some(Duration::from_millis(250))
        );
        assert_eq!(hold(&[("x-ms-retry-after-ms", "12")]), Some(Duration::from_millis(12)));
    }

    #[test]
    fn a_reset_counts_only_when_nothing_remains() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(hold(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9")]), seconds(9));
        assert_eq!(hold(&[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "9")]), None);
        assert_eq!(hold(&[("x-ratelimit-reset", "9")]), None);
        let unix = [("ratelimit-remaining", "0"), ("ratelimit-reset", "1700000042")];
        assert_eq!(hold(&unix), seconds(42));
        let millis = [("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "1700000042000")];
        assert_eq!(hold(&millis), seconds(42));
        assert_eq!(
            hold(&[("ratelimit", "\"a\";r=5;t=3, \"b\";r=0;t=30, \"c\";r=0;t=8")]),
            seconds(30)
        );
        assert_eq!(hold(&[("ratelimit", "limit=9, remaining=0, reset=11")]), seconds(11));
        assert_eq!(hold(&[("ratelimit", "limit=9, remaining=2, reset=11")]), None);
    }

    #[test]
    fn nonsense_is_no_hint_and_a_long_hold_is_capped() {
        for text in ["", "soon", "-5", "inf", "NaN", "1e9", "0x10", "1,5", "Tue, 99 Nov 2023"] {
            assert_eq!(hold(&[("retry-after", text)]), None, "{text}");
        }
        assert_eq!(hold(&[("retry-after", "999999999")]), Some(Duration::from_hours(1)));
        assert_eq!(hold(&[("retry-after", &"9".repeat(400))]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_ignored_and_never_exceeds_the_maximum(
            name in prop::sample::select(vec![
                "retry-after", "retry-after-ms", "ratelimit", "x-ratelimit-reset",
            ]),
            value in "[ -~]{0,40}",
        ) {
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-remaining", "0".parse().unwrap());
            headers.insert(name, value.parse().unwrap());
            let hold = read_hold(&headers, NOW, HOLD_MAX);
            prop_assert!(hold.is_none_or(|hold| hold <= HOLD_MAX));
        }
    }
}
