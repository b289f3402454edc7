//! Booleans, counts and shares.

use serde_json::{Value, json};

use super::{Kind, wrong_type};
use crate::bounds::Bounds;
use crate::problems::Fault;
use crate::yaml::{PlainValue, Scalar};

crate::kind! {
    bool: "`true` or `false`", json!({"type": "boolean"}),
    |scalar| match scalar.plain() {
        PlainValue::Bool(flag) => Ok(flag),
        _ => Err(wrong_type::<Self>(scalar)),
    }
}

macro_rules! count_kind {
    ($($number:ty),+) => {$(
        impl Kind for $number {
            fn words() -> String {
                "a whole number".to_owned()
            }

            fn schema(bounds: &Bounds) -> Value {
                match bounds.get() {
                    Some((min, max)) => json!({"type": "integer", "minimum": min, "maximum": max}),
                    None => json!({"type": "integer", "minimum": 0}),
                }
            }

            fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
                let (min, max) = bounds.range();
                let largest = u64::try_from(<$number>::MAX).unwrap_or(u64::MAX);
                let count = count::<Self>(scalar, &Bounds::of(min..=max.min(largest)))?;
                Ok(<$number>::try_from(count).unwrap_or(<$number>::MAX))
            }
        }
    )+};
}

count_kind!(u32, u64, usize);

fn count<K: Kind>(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<u64, Fault> {
    let (min, max) = bounds.range();
    let out_of_range =
        || Fault::new("out_of_range", format!("{} is not between {min} and {max}", scalar.text));
    match scalar.plain() {
        PlainValue::Integer(number) => u64::try_from(number)
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(out_of_range),
        // A whole number of more than 64 bits reads like one with a fraction.
        PlainValue::Float(_) if scalar.text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(out_of_range())
        }
        _ => Err(wrong_type::<K>(scalar)),
    }
}

/// A share of one in millionths, so that it is shown as it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// One.
    const ONE: u32 = 1_000_000;

    /// In millionths; at most a million.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// Reads a decimal number that counts `unit` millionths each.
    pub fn parse_decimal(text: &str, unit: u32) -> Option<Self> {
        let digits_kept = unit.ilog10() as usize;
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_empty = whole.len() + fraction.len() == 0;
        if is_empty || whole.len() > 3 || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        // Further digits are dropped.
        let kept: String = fraction.chars().chain("000000".chars()).take(digits_kept).collect();
        format!("{whole}{kept}").parse().ok().filter(|share| *share <= Share::ONE).map(Share)
    }

    /// The share as a number that counts `unit` millionths each.
    pub fn show_decimal(self, unit: u32) -> Value {
        if self.0.is_multiple_of(unit) {
            return Value::from(self.0 / unit);
        }
        Value::from(f64::from(self.0) / f64::from(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::ScalarStyle;

    fn read<K: Kind>(text: &str, bounds: &Bounds) -> Result<K, String> {
        let scalar = Scalar { text: text.into(), style: ScalarStyle::Plain };
        K::parse(&scalar, bounds).map_err(|fault| fault.message().to_owned())
    }

    #[test]
    fn counts_are_whole_numbers_within_their_bounds() {
        assert_eq!(read::<u32>("7", &Bounds::of(1..=10)), Ok(7));
        let outside = read::<u32>("0", &Bounds::of(1..=10));
        assert_eq!(outside, Err("0 is not between 1 and 10".to_owned()));
        assert!(read::<u32>("4294967296", &Bounds::NONE).is_err());
        assert!(
            read::<u64>("18446744073709551616", &Bounds::NONE).unwrap_err().contains("between")
        );
        let fraction = read::<u64>("1.5", &Bounds::NONE).unwrap_err();
        assert_eq!(fraction, "expected a whole number, found a number with a fraction");
    }

    #[test]
    fn a_quoted_boolean_is_refused_with_a_hint_to_remove_the_quotes() {
        let quoted = Scalar { text: "true".into(), style: ScalarStyle::Text };
        let fault = bool::parse(&quoted, &Bounds::NONE).unwrap_err();
        assert_eq!(fault.message(), "expected `true` or `false`, found text");
        assert_eq!(fault.hint_text(), Some("remove the quotes"));
    }
}
