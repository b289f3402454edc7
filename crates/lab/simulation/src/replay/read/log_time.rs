//! Times as logs write them.

use tidegate_algorithms::Timestamp;

/// A time, if the text is one.
type ReadTime = Option<Timestamp>;

/// Reads times of the common log format, and remembers the last one: neighbouring lines have the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommonTime {
    text: Vec<u8>,
    time: ReadTime,
}

impl CommonTime {
    /// Reads `10/Oct/2000:13:55:36 -0700`.
    pub(crate) fn read(&mut self, text: &str) -> ReadTime {
        if self.text != text.as_bytes() {
            self.time = common_time(text);
            self.text.clear();
            self.text.extend_from_slice(text.as_bytes());
        }
        self.time
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn common_time(text: &str) -> ReadTime {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let month = MONTHS.iter().position(|month| text.get(3..6) == Some(month))?;
    let separators = [(2, "/"), (6, "/"), (11, ":"), (14, ":"), (17, ":"), (20, " ")];
    if separators.iter().any(|(at, mark)| text.get(*at..*at + 1) != Some(mark)) {
        return None;
    }
    let month = i64::try_from(month).ok()? + 1;
    let seconds = civil_seconds(
        [number(7, 11)?, month, number(0, 2)?],
        [number(12, 14)?, number(15, 17)?, number(18, 20)?],
    )?;
    timestamp(seconds - offset(text.get(21..)?)?, 0)
}

/// Reads `2026-11-18T15:36:12.123456Z`, also with a space for the `T`, without parts of a second or with an offset.
pub(crate) fn iso_time(text: &str) -> ReadTime {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let separators = [(4, "-"), (7, "-"), (13, ":"), (16, ":")];
    if separators.iter().any(|(at, mark)| text.get(*at..*at + 1) != Some(mark)) {
        return None;
    }
    if !matches!(text.get(10..11), Some("T" | " " | "t")) {
        return None;
    }
    let seconds = civil_seconds(
        [number(0, 4)?, number(5, 7)?, number(8, 10)?],
        [number(11, 13)?, number(14, 16)?, number(17, 19)?],
    )?;
    let rest = text.get(19..)?;
    let (nanos, rest) = match rest.strip_prefix(['.', ',']) {
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            (fraction(rest.get(..digits)?)?, rest.get(digits..)?)
        }
        None => (0, rest),
    };
    timestamp(seconds - offset(rest.trim_start())?, nanos)
}

/// Reads seconds since 1970, with or without a fraction.
pub(crate) fn epoch_time(text: &str) -> ReadTime {
    let (seconds, part) = text.split_once('.').unwrap_or((text, ""));
    timestamp(seconds.parse().ok()?, fraction(part)?)
}

/// Digits after the point, as nanoseconds.
pub(crate) fn fraction(digits: &str) -> Option<u32> {
    if digits.is_empty() {
        return Some(0);
    }
    let kept = digits.get(..digits.len().min(9))?;
    let number: u32 = kept.parse().ok()?;
    let missing = u32::try_from(9 - kept.len()).ok()?;
    number.checked_mul(10_u32.checked_pow(missing)?)
}

/// `Z`, `+0200`, `-07:00` or nothing, in seconds.
fn offset(text: &str) -> Option<i64> {
    if matches!(text, "" | "Z" | "z") {
        return Some(0);
    }
    let sign = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let digits = text.get(1..)?;
    let minutes = digits.get(2..)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let (hours, minutes) = (digits.get(..2)?.parse::<i64>().ok()?, minutes.parse::<i64>().ok()?);
    let valid = (0..=23).contains(&hours) && (0..=59).contains(&minutes);
    valid.then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Seconds since 1970 of a date and a time in UTC; a leap second is the second after it.
fn civil_seconds([year, month, day]: [i64; 3], [hour, minute, second]: [i64; 3]) -> Option<i64> {
    let valid = (1_970..=2_500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..=23).contains(&hour)
        && (0..=59).contains(&minute)
        && (0..=60).contains(&second);
    if !valid {
        return None;
    }
    // Years begin in March, so that the leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

fn timestamp(seconds: i64, nanos: u32) -> ReadTime {
    let seconds = u64::try_from(seconds).ok()?;
    let nanos = seconds.checked_mul(1_000_000_000)?.checked_add(u64::from(nanos))?;
    Some(Timestamp::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(parsed: ReadTime) -> Option<u64> {
        parsed.map(Timestamp::as_nanos)
    }

    #[test]
    fn times_of_web_servers_are_read_with_their_offset() {
        let mut time = CommonTime::default();
        let expected = Some(971_211_336_000_000_000);
        assert_eq!(nanos(time.read("10/Oct/2000:13:55:36 -0700")), expected);
        assert_eq!(nanos(time.read("10/Oct/2000:20:55:36 +0000")), expected);
        assert_eq!(nanos(time.read("11/Oct/2000:02:25:36 +0530")), expected);
        assert_eq!(nanos(time.read("29/Feb/2024:00:00:00 +0000")), Some(1_709_164_800_000_000_000));
    }

    #[test]
    fn both_sides_of_a_change_of_daylight_saving_time_are_an_hour_apart() {
        let mut time = CommonTime::default();
        let summer = time.read("26/Oct/2025:02:30:00 +0200").unwrap();
        let winter = time.read("26/Oct/2025:02:30:00 +0100").unwrap();
        assert_eq!(winter.since(summer).get(), 3_600_000_000_000);
    }

    #[test]
    fn times_of_json_logs_are_read_with_their_fraction() {
        let expected = Some(1_784_203_200_123_000_000);
        assert_eq!(nanos(iso_time("2026-07-16T12:00:00.123Z")), expected);
        assert_eq!(nanos(iso_time("2026-07-16 14:00:00.123000000+02:00")), expected);
        assert_eq!(nanos(epoch_time("1784203200.123")), expected);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let mut time = CommonTime::default();
        for text in ["", "-", "10/Foo/2000:13:55:36 -0700", "99/Oct/2000:13:55:36 -0700", "ä/Oct"]
        {
            assert_eq!(time.read(text), None, "{text}");
            assert_eq!(iso_time(text), None, "{text}");
        }
        assert_eq!(iso_time("2026-07-16T12:00:00+99:99"), None);
        assert_eq!(epoch_time("-1"), None);
        assert_eq!(epoch_time("99999999999999999999"), None);
    }
}
