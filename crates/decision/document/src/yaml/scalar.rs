//! The values of unquoted scalars.
//!
//! Follows the YAML library that envoyproxy/ratelimit uses, so that a rule file means the same: `yes` and `on` are
//! booleans, `010` is eight, `1_000` is a thousand.

/// The value of an unquoted scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlainValue {
    /// Null.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number within 64 bits, signed or not.
    Integer(i128),
    /// A number with a fraction, or one beyond 64 bits.
    Float(f64),
    /// Everything else.
    Text,
}

impl PlainValue {
    /// What it is, for messages.
    pub const fn describe(self) -> &'static str {
        match self {
            PlainValue::Null => "nothing",
            PlainValue::Bool(_) => "a boolean",
            PlainValue::Integer(_) => "a number",
            PlainValue::Float(_) => "a number with a fraction",
            PlainValue::Text => "text",
        }
    }

    /// The value of this text when it is not quoted.
    pub fn of(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return PlainValue::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return PlainValue::Bool(true);
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => return PlainValue::Bool(false),
            ".nan" | ".NaN" | ".NAN" => return PlainValue::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
                return PlainValue::Float(f64::INFINITY);
            }
            "-.inf" | "-.Inf" | "-.INF" => return PlainValue::Float(f64::NEG_INFINITY),
            _ => {}
        }
        // Most scalars are words: skip the attempts to read a number.
        let number_like = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.');
        if !text.as_bytes().first().is_some_and(number_like) {
            return PlainValue::Text;
        }
        let digits = text.replace('_', "");
        if let Some(integer) = integer(&digits) {
            return PlainValue::Integer(integer);
        }
        match float(&digits) {
            Some(float) => PlainValue::Float(float),
            None => PlainValue::Text,
        }
    }
}

/// A decimal, `0x`, `0o`, `0b` or zero-led octal number within 64 bits, signed or not.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
}

/// A decimal with an optional fraction and exponent.
fn float(text: &str) -> Option<f64> {
    let shaped = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E'));
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    if shaped && has_digit { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_booleans_of_older_yaml() {
        assert_eq!(PlainValue::of("yes"), PlainValue::Bool(true));
        assert_eq!(PlainValue::of("on"), PlainValue::Bool(true));
        assert_eq!(PlainValue::of("Off"), PlainValue::Bool(false));
        assert_eq!(PlainValue::of("yEs"), PlainValue::Text);
    }

    #[test]
    fn reads_numbers_in_every_base() {
        assert_eq!(PlainValue::of("10"), PlainValue::Integer(10));
        assert_eq!(PlainValue::of("010"), PlainValue::Integer(8));
        assert_eq!(PlainValue::of("0o10"), PlainValue::Integer(8));
        assert_eq!(PlainValue::of("0x10"), PlainValue::Integer(16));
        assert_eq!(PlainValue::of("-0b11"), PlainValue::Integer(-3));
        assert_eq!(PlainValue::of("1_000"), PlainValue::Integer(1000));
        assert_eq!(
            PlainValue::of("18446744073709551615"),
            PlainValue::Integer(i128::from(u64::MAX))
        );
    }

    #[test]
    fn reads_fractions_as_floats_and_not_as_text() {
        assert_eq!(PlainValue::of("1.5"), PlainValue::Float(1.5));
        assert_eq!(PlainValue::of(".5"), PlainValue::Float(0.5));
        assert_eq!(PlainValue::of("1e3"), PlainValue::Float(1000.0));
        assert_eq!(PlainValue::of("09"), PlainValue::Float(9.0));
    }

    #[test]
    fn leaves_addresses_durations_and_words_as_text() {
        for text in ["10.0.0.1", "5m", "-", "+", ".", "1:30", "0x", "2020-01-01", "e3", "*"] {
            assert_eq!(PlainValue::of(text), PlainValue::Text, "{text}");
        }
    }
}
