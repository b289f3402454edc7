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
