//! Numbers of bytes.

use std::fmt;

use serde_json::{Value, json};

use super::Kind;
use crate::bounds::Bounds;
use crate::problems::Fault;
use crate::yaml::Scalar;

/// The largest first, so that a size is shown in the largest unit that divides it.
const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// A number of bytes, such as `64MiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// A number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Size(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes in memory.
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, bytes): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*bytes);
        let (unit, bytes) = UNITS.iter().find(divides).copied().unwrap_or(("B", 1));
        write!(out, "{}{unit}", self.0 / bytes)
    }
}

impl Kind for Size {
    fn words() -> String {
        "a size such as `64MiB`".to_owned()
    }

    fn schema(_: &Bounds) -> Value {
        json!({"type": "string", "pattern": "^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TiB)$"})
    }

    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
        let text = &*scalar.text;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let (Some((_, bytes)), Ok(number)) = (unit, number.parse::<u64>()) else {
            return Err(Fault::new("invalid_size", format!("`{text}` is not a size"))
                .hint("write a whole number and `B`, `KiB`, `MiB` or `GiB`, such as `64MiB`"));
        };
        bounds.check(number.saturating_mul(*bytes), Self::show_bound).map(Size)
    }

    fn show_bound(bound: u64) -> String {
        Size(bound).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::ScalarStyle;

    fn read(text: &str, bounds: &Bounds) -> Result<Size, String> {
        let scalar = Scalar { text: text.into(), style: ScalarStyle::Plain };
        Size::parse(&scalar, bounds).map_err(|fault| fault.message().to_owned())
    }

    #[test]
    fn the_pattern_of_the_schema_has_every_unit() {
        let schema = Size::schema(&Bounds::NONE);
        for (unit, _) in UNITS {
            assert!(schema["pattern"].as_str().unwrap().contains(unit), "{unit}");
        }
    }

    #[test]
    fn sizes_are_read_in_every_unit_and_shown_in_the_largest() {
        for (text, bytes) in [
            ("512B", 512),
            ("64MiB", 64 << 20),
            ("1GiB", 1 << 30),
            ("2kB", 2_000),
            ("3MB", 3_000_000),
        ] {
            let size = read(text, &Bounds::NONE).unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, text));
        }
        assert_eq!(read("1024KiB", &Bounds::NONE).unwrap().to_string(), "1MiB");
        assert_eq!(read("0B", &Bounds::NONE).unwrap().to_string(), "0B");
        for text in ["", "5", "MiB", "1.5GiB", "-1B", "1 MiB", "1mib", "99999999999999999999B"] {
            assert!(read(text, &Bounds::NONE).is_err(), "{text}");
        }
        assert_eq!(read("18446744073709551615TiB", &Bounds::NONE).unwrap().bytes(), u64::MAX);
    }

    #[test]
    fn bounds_are_shown_in_the_unit_of_the_key() {
        let outside = read("2MiB", &Bounds::of(1_024..=1_048_576)).unwrap_err();
        assert_eq!(outside, "2MiB is not between 1KiB and 1MiB");
    }
}
