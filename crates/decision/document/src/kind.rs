//! Kinds of scalars: how each is read, described and written.
//!
//! A kind is a Rust type, so that each text is parsed once. All kinds read the same text in a file, in an
//! environment variable and after a flag.

mod duration;
mod number;
mod size;
mod text;

use serde_json::Value;

use crate::bounds::Bounds;
use crate::problems::Fault;
use crate::yaml::{PlainValue, Scalar, ScalarStyle};

pub use duration::{DURATION_PATTERN, parse_duration, show_duration};
pub use number::Share;
pub use size::Size;
pub use text::{HeaderName, Network, Text};

/// A value that is written as one scalar.
pub trait Kind: Sized {
    /// What can be written, such as "a whole number".
    fn words() -> String;

    /// Its JSON Schema.
    fn schema(bounds: &Bounds) -> Value;

    /// Reads a scalar.
    ///
    /// # Errors
    /// When it is not of this kind, or out of bounds.
    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault>;

    /// A bound as it would be written.
    fn show_bound(bound: u64) -> String {
        bound.to_string()
    }
}

/// The fault of a scalar that is of another kind than `K`.
pub fn wrong_type<K: Kind>(scalar: &Scalar<'_>) -> Fault {
    let found = scalar.plain().describe();
    let fault = Fault::new("wrong_type", format!("expected {}, found {found}", K::words()));
    let unquoted = PlainValue::of(&scalar.text);
    let is_quoted = scalar.style == ScalarStyle::Text;
    if is_quoted && matches!(unquoted, PlainValue::Integer(_) | PlainValue::Bool(_)) {
        return fault.hint("remove the quotes");
    }
    fault
}

/// Implements [`Kind`] for a type: what it takes in words, its JSON Schema, and how it is read. `text |text|` reads one
/// line of text first. With `show`, the type is a [`SettingKind`](crate::SettingKind) too.
///
/// ```
/// use serde_json::json;
/// use tidegate_document::{Fault, Kind, kind};
///
/// #[derive(Debug, PartialEq)]
/// struct Even(u64);
///
/// kind! {
///     Even: "an even number", json!({"multipleOf": 2}),
///     text |text| match text.parse() {
///         Ok(number) if number % 2 == 0 => Ok(Even(number)),
///         _ => Err(Fault::new("odd", format!("`{text}` is not even"))),
///     },
///     show |even| even.0
/// }
/// assert_eq!(Even::words(), "an even number");
/// ```
#[macro_export]
macro_rules! kind {
    ($type:ty: $words:expr, $schema:expr, |$scalar:ident| $read:expr $(, show $($shown:tt)+)?) => {
        impl $crate::Kind for $type {
            fn words() -> String {
                $words.to_owned()
            }

            fn schema(_: &$crate::Bounds) -> $crate::Json {
                $schema
            }

            fn parse(
                $scalar: &$crate::Scalar<'_>,
                _: &$crate::Bounds,
            ) -> Result<Self, $crate::Fault> {
                $read
            }
        }

        $($crate::kind!(@show $type, $($shown)+);)?
    };
    ($type:ty: $words:expr, $schema:expr, text |$text:ident| $read:expr $(, show $($shown:tt)+)?) => {
        $crate::kind! {
            $type: $words, $schema,
            |scalar| {
                let line = <String as $crate::Kind>::parse(scalar, &$crate::Bounds::NONE)?;
                let $text = line.as_str();
                $read
            }
            $(, show $($shown)+)?
        }
    };
    (@show $type:ty, |$value:ident| $shown:expr) => {
        $crate::kind!(@show $type, Open |$value| $shown);
    };
    (@show $type:ty, $secrecy:ident |$value:ident| $shown:expr) => {
        impl $crate::SettingKind for $type {
            const SECRECY: $crate::Secrecy = $crate::Secrecy::$secrecy;

            fn show(&self) -> $crate::Json {
                let $value = self;
                $crate::Json::from($shown)
            }
        }
    };
}
