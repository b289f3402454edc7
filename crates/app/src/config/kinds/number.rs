//! Counts, sizes, lengths of time and shares. Integers inside; a share is kept
//! in millionths, so that what is written comes back as it was.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use tidegate_document::{PlainValue, Scalar, parse_duration};

use super::{Bounds, Shape, Single, Wrong, wrong_scalar};

/// How many parts one is made of.
const MILLION: u32 = 1_000_000;

const SIZE_UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl Single for bool {
    const SHAPE: Shape = Shape::Flag;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        match written.plain() {
            PlainValue::Bool(flag) => Ok(flag),
            _ => Err(wrong_scalar(Self::SHAPE, written)),
        }
    }

    fn shown(&self) -> Value {
        Value::from(*self)
    }
}

impl Single for u32 {
    const SHAPE: Shape = Shape::Count;

    fn read(written: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Wrong> {
        count(written, bounds, Self::SHAPE)
    }

    fn shown(&self) -> Value {
        Value::from(*self)
    }
}

fn count(written: &Scalar<'_>, bounds: &Bounds, shape: Shape) -> Result<u32, Wrong> {
    let PlainValue::Integer(number) = written.plain() else {
        return Err(wrong_scalar(shape, written));
    };
    let (least, most) = bounds.range();
    let most = most.min(u64::from(u32::MAX));
    let within = u32::try_from(number).ok().filter(|n| (least..=most).contains(&u64::from(*n)));
    within.ok_or_else(|| {
        Wrong::new("out_of_range", format!("{number} is not between {least} and {most}"))
    })
}

/// How many threads serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// One per core.
    #[default]
    Auto,
    /// So many.
    Count(u32),
}

impl Single for Workers {
    const SHAPE: Shape = Shape::CountOrAuto;

    fn read(written: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Wrong> {
        if written.text == "auto" {
            return Ok(Workers::Auto);
        }
        count(written, bounds, Self::SHAPE).map(Workers::Count)
    }

    fn shown(&self) -> Value {
        match self {
            Workers::Auto => Value::from("auto"),
            Workers::Count(count) => Value::from(*count),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// So many bytes.
    pub const fn new(bytes: u64) -> Self {
        Size(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, bytes): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*bytes);
        let (unit, bytes) = SIZE_UNITS.iter().find(whole).copied().unwrap_or(("B", 1));
        write!(out, "{}{unit}", self.0 / bytes)
    }
}

impl Single for Size {
    const SHAPE: Shape = Shape::Size;

    fn read(written: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Wrong> {
        let text = &*written.text;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = SIZE_UNITS.iter().find(|(name, _)| *name == unit);
        let (Some((_, bytes)), Ok(number)) = (unit, number.parse::<u64>()) else {
            return Err(Wrong::new("invalid_size", format!("`{text}` is no size"))
                .hint("write a whole number and `B`, `KiB`, `MiB` or `GiB`, such as `64MiB`"));
        };
        let size = number.saturating_mul(*bytes);
        bounds.check(size, |bytes| Size(bytes).to_string()).map(Size)
    }

    fn shown(&self) -> Value {
        Value::from(self.to_string())
    }
}

impl Single for Duration {
    const SHAPE: Shape = Shape::Duration;

    fn read(written: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Wrong> {
        let length = parse_duration(&written.text).map_err(|message| {
            Wrong::new("invalid_duration", message)
                .hint("write a whole number and `ms`, `s`, `m`, `h` or `d`, such as `5m`")
        })?;
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let millis = bounds.check(millis, |ms| show_duration(Duration::from_millis(ms)))?;
        Ok(Duration::from_millis(millis))
    }

    fn shown(&self) -> Value {
        Value::from(show_duration(*self))
    }
}

/// A length of time as it would be written: in the largest unit that divides it.
pub(in crate::config) fn show_duration(length: Duration) -> String {
    let millis = length.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    match units.iter().find(|(_, unit)| millis > 0 && millis.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", millis / unit),
        None if millis == 0 => "0s".to_owned(),
        None => format!("{millis}ms"),
    }
}

/// A share of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ratio(u32);

impl Ratio {
    /// In millionths; at most a million.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

impl Single for Ratio {
    const SHAPE: Shape = Shape::Ratio;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        let text = &*written.text;
        let millionths = match text.strip_suffix('%') {
            Some(percent) => decimal(percent, 4),
            None => decimal(text, 6),
        };
        millionths.filter(|millionths| *millionths <= MILLION).map(Ratio).ok_or_else(|| {
            Wrong::new("invalid_share", format!("`{text}` is no share of one"))
                .hint("write a number from 0 to 1 such as `0.8`, or a percentage such as `80%`")
        })
    }

    fn shown(&self) -> Value {
        show_decimal(self.0, MILLION)
    }
}

/// A percentage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u32);

impl Percent {
    /// In millionths of the whole; at most a million.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

impl Single for Percent {
    const SHAPE: Shape = Shape::Percent;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        let text = &*written.text;
        let millionths = decimal(text.strip_suffix('%').unwrap_or(text), 4);
        millionths.filter(|millionths| *millionths <= MILLION).map(Percent).ok_or_else(|| {
            Wrong::new("invalid_share", format!("`{text}` is no percentage"))
                .hint("write a number from 0 to 100")
        })
    }

    fn shown(&self) -> Value {
        show_decimal(self.0, MILLION / 100)
    }
}

/// A decimal number as a count of its smallest parts; digits beyond those are
/// dropped. None when the text is no such number, or too large to be a share.
fn decimal(text: &str, places: usize) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || whole.len() > 3 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let kept: String = fraction.chars().chain("000000".chars()).take(places).collect();
    format!("{whole}{kept}").parse().ok()
}

fn show_decimal(parts: u32, one: u32) -> Value {
    if parts.is_multiple_of(one) {
        return Value::from(parts / one);
    }
    Value::from(f64::from(parts) / f64::from(one))
}
