//! What can stand after a key: how each kind of value is read, bounded and shown.
//!
//! A kind is a type of its own where its text has a meaning of its own, so that
//! nobody has to read it twice. All kinds read the same text in the file, in
//! the environment and after a flag. Nothing here does I/O.

mod address;
mod choice;
mod mode;
mod number;
mod text;

use std::any::Any;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;
use tidegate_document::{PlainValue, Scalar, ScalarStyle, one_of};

pub use address::Address;
pub use choice::{
    AccessLogFormat, Compat, ErrorCodes, FailureMode, KeyLayout, LogFormat, LogLevel, Switches,
    TraceProtocol, WhenFull,
};
pub use mode::{LogTo, Network};
pub(super) use number::show_duration;
pub use number::{Percent, Ratio, Size, Workers};
pub use text::{HeaderName, Password, RedisUrl, San, Secret, Url, UrlPath};

/// What a list holds at most: a configuration with more is a mistake.
pub(super) const ITEMS_MAX: usize = 1_000;

/// What stands for "none" where a value may be left out.
pub(super) const OFF: &str = "off";

/// What is wrong with a value, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// A stable word for this kind of problem.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
    /// Which item of a list is meant.
    pub item: Option<usize>,
}

impl Wrong {
    /// What is wrong.
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Wrong { code, message: message.into(), hint: None, item: None }
    }

    /// What would be right.
    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Wrong { hint: Some(hint.into()), ..self }
    }
}

/// The least and the most that a number may be, in the unit of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds(Option<RangeInclusive<u64>>);

impl Bounds {
    /// Any number.
    pub(super) const NONE: Bounds = Bounds(None);

    pub(super) const fn of(range: RangeInclusive<u64>) -> Self {
        Bounds(Some(range))
    }

    /// The least and the most.
    pub fn range(&self) -> (u64, u64) {
        self.0.as_ref().map_or((0, u64::MAX), |range| (*range.start(), *range.end()))
    }

    /// The bounds in words, if there are any.
    pub fn in_words(&self, shape: Shape) -> Option<String> {
        let range = self.0.as_ref()?;
        let show = |number: u64| match shape {
            Shape::Size => Size::new(number).to_string(),
            Shape::Duration => show_duration(Duration::from_millis(number)),
            _ => number.to_string(),
        };
        Some(format!("{} to {}", show(*range.start()), show(*range.end())))
    }

    /// The number, if it is within; `show` says the bounds in words.
    pub(super) fn check(&self, number: u64, show: impl Fn(u64) -> String) -> Result<u64, Wrong> {
        let (least, most) = self.range();
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        let message = format!("{} is not between {} and {}", show(number), show(least), show(most));
        Err(Wrong::new("out_of_range", message))
    }
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count,
    /// A whole number, or `auto`.
    CountOrAuto,
    /// A number of bytes, such as `64MiB`.
    Size,
    /// A length of time, such as `5m`.
    Duration,
    /// A share of one, such as `0.8` or `80%`.
    Ratio,
    /// A number from 0 to 100.
    Percent,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Text that must not be empty.
    Text,
    /// A path of a file or a directory.
    Path,
    /// Where to listen.
    Address,
    /// The name of a header field.
    HeaderName,
    /// An `http` or `https` address.
    Url,
    /// Where a Redis is.
    RedisUrl,
    /// A path that begins with `/`.
    UrlPath,
    /// What a limiter does.
    Mode,
    /// A network.
    Network,
}

impl Shape {
    /// The kind in words.
    pub fn words(self) -> String {
        match self {
            Shape::Flag => "`true` or `false`".to_owned(),
            Shape::Count => "a whole number".to_owned(),
            Shape::CountOrAuto => "a whole number or `auto`".to_owned(),
            Shape::Size => "a size such as `64MiB`".to_owned(),
            Shape::Duration => "a length of time such as `5m`".to_owned(),
            Shape::Ratio => "a share such as `0.8` or `80%`".to_owned(),
            Shape::Percent => "a percentage from 0 to 100".to_owned(),
            Shape::Choice(words) => one_of(words),
            Shape::Text => "text".to_owned(),
            Shape::Path => "a path".to_owned(),
            Shape::Address => "`ADDRESS:PORT` or `unix:PATH`".to_owned(),
            Shape::HeaderName => "the name of a header field".to_owned(),
            Shape::Url => "an `http` or `https` address".to_owned(),
            Shape::RedisUrl => "an address such as `redis://localhost:6379`".to_owned(),
            Shape::UrlPath => "a path that begins with `/`".to_owned(),
            Shape::Mode => tidegate_engine::Mode::SYNTAX.to_owned(),
            Shape::Network => "a network such as `10.0.0.0/8`".to_owned(),
        }
    }
}

/// How many values a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plurality {
    /// Exactly one.
    One,
    /// One, or `off`.
    Optional,
    /// A list, which may be empty.
    Many,
}

/// The value of a field, whatever its kind.
pub trait Setting: fmt::Debug {
    /// How one value is written.
    fn shape(&self) -> Shape;

    /// How many there are.
    fn plurality(&self) -> Plurality;

    /// Takes what is written.
    ///
    /// # Errors
    /// When it is not of the kind; for a list, with all its items that are not.
    fn set(&mut self, written: &[Scalar<'_>], bounds: &Bounds) -> Result<(), Vec<Wrong>>;

    /// The value for people and programs. A secret says only that it is set.
    fn shown(&self) -> Value;

    /// Whether the value must not be shown.
    fn is_secret(&self) -> bool;

    /// The value itself, to be compared.
    fn as_any(&self) -> &dyn Any;

    /// Whether another value is the same, also where neither may be shown.
    fn is_same(&self, other: &dyn Setting) -> bool;

    /// Takes a text in which commas stand between the items of a list.
    ///
    /// # Errors
    /// When it is not of the kind.
    fn set_text(&mut self, text: &str, bounds: &Bounds) -> Result<(), Vec<Wrong>> {
        let written =
            |text| Scalar { text: std::borrow::Cow::Borrowed(text), style: ScalarStyle::Plain };
        if self.plurality() == Plurality::Many {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            let items: Vec<Scalar<'_>> = items.map(written).collect();
            return self.set(&items, bounds);
        }
        self.set(&[written(text)], bounds)
    }
}

/// One value of a kind.
pub(super) trait Single: Sized + fmt::Debug + PartialEq + 'static {
    const SHAPE: Shape;
    const SECRET: bool = false;

    fn read(written: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Wrong>;

    fn shown(&self) -> Value;
}

/// A list where one value is wanted, or nothing.
fn only<'s, 'w>(written: &'w [Scalar<'s>], shape: Shape) -> Result<&'w Scalar<'s>, Wrong> {
    match written {
        [one] => Ok(one),
        [] => Err(wrong_kind(shape, "an empty list")),
        _ => Err(wrong_kind(shape, "a list")),
    }
}

impl<T: Single> Setting for T {
    fn shape(&self) -> Shape {
        T::SHAPE
    }

    fn plurality(&self) -> Plurality {
        Plurality::One
    }

    fn set(&mut self, written: &[Scalar<'_>], bounds: &Bounds) -> Result<(), Vec<Wrong>> {
        let written = only(written, T::SHAPE).map_err(|wrong| vec![wrong])?;
        *self = T::read(written, bounds).map_err(|wrong| vec![wrong])?;
        Ok(())
    }

    fn shown(&self) -> Value {
        Single::shown(self)
    }

    fn is_secret(&self) -> bool {
        T::SECRET
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_same(&self, other: &dyn Setting) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }
}

impl<T: Single> Setting for Option<T> {
    fn shape(&self) -> Shape {
        T::SHAPE
    }

    fn plurality(&self) -> Plurality {
        Plurality::Optional
    }

    fn set(&mut self, written: &[Scalar<'_>], bounds: &Bounds) -> Result<(), Vec<Wrong>> {
        let written = only(written, T::SHAPE).map_err(|wrong| vec![wrong])?;
        // To YAML `off` is a boolean, so the text is what counts.
        let off = written.style == ScalarStyle::Plain && written.text == OFF;
        let read = || T::read(written, bounds).map_err(|wrong| vec![wrong]);
        *self = if off { None } else { Some(read()?) };
        Ok(())
    }

    fn shown(&self) -> Value {
        self.as_ref().map_or(Value::Null, Single::shown)
    }

    fn is_secret(&self) -> bool {
        T::SECRET
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_same(&self, other: &dyn Setting) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }
}

impl<T: Single> Setting for Vec<T> {
    fn shape(&self) -> Shape {
        T::SHAPE
    }

    fn plurality(&self) -> Plurality {
        Plurality::Many
    }

    fn set(&mut self, written: &[Scalar<'_>], bounds: &Bounds) -> Result<(), Vec<Wrong>> {
        if written.len() > ITEMS_MAX {
            let message = format!("{} items; the most is {ITEMS_MAX}", written.len());
            return Err(vec![Wrong::new("out_of_range", message)]);
        }
        let (mut items, mut wrong) = (Vec::new(), Vec::new());
        for (at, word) in written.iter().enumerate() {
            match T::read(word, bounds) {
                Ok(item) => items.push(item),
                Err(why) => wrong.push(Wrong { item: Some(at), ..why }),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        *self = items;
        Ok(())
    }

    fn shown(&self) -> Value {
        Value::Array(self.iter().map(Single::shown).collect())
    }

    fn is_secret(&self) -> bool {
        T::SECRET
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_same(&self, other: &dyn Setting) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }
}

/// Says that a value is not of its kind.
pub(super) fn wrong_kind(shape: Shape, found: &str) -> Wrong {
    Wrong::new("wrong_type", format!("this takes {}, not {found}", shape.words()))
}

/// Says that what is written is not of its kind.
fn wrong_scalar(shape: Shape, written: &Scalar<'_>) -> Wrong {
    let found = match written.plain() {
        PlainValue::Null => "nothing",
        PlainValue::Bool(_) => "a boolean",
        PlainValue::Integer(_) => "a number",
        PlainValue::Float(_) => "a number with a fraction",
        PlainValue::Text => "text",
    };
    let wrong = wrong_kind(shape, found);
    let unquoted = PlainValue::of(&written.text);
    if written.style == ScalarStyle::Text
        && matches!(unquoted, PlainValue::Integer(_) | PlainValue::Bool(_))
    {
        return wrong.hint("remove the quotes");
    }
    wrong
}

#[cfg(test)]
mod tests;
