//! The smallest and the largest number that a key takes.

use std::ops::RangeInclusive;

use crate::problems::Fault;

/// The smallest and the largest number, in the unit that the key counts in: bytes for sizes, milliseconds for
/// durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds(Option<(u64, u64)>);

impl Bounds {
    /// Any number.
    pub const NONE: Bounds = Bounds(None);

    /// A number in this range.
    pub const fn of(range: RangeInclusive<u64>) -> Self {
        Bounds(Some((*range.start(), *range.end())))
    }

    /// The smallest and the largest number, if the key has bounds.
    pub const fn get(&self) -> Option<(u64, u64)> {
        self.0
    }

    /// The smallest and the largest number.
    pub fn range(&self) -> (u64, u64) {
        self.0.unwrap_or((0, u64::MAX))
    }

    /// The number, if it is within the bounds; `show` renders numbers for the message.
    ///
    /// # Errors
    /// When it is out of bounds.
    pub fn check(&self, number: u64, show: impl Fn(u64) -> String) -> Result<u64, Fault> {
        let (min, max) = self.range();
        if (min..=max).contains(&number) {
            return Ok(number);
        }
        let message = format!("{} is not between {} and {}", show(number), show(min), show(max));
        Err(Fault::new("out_of_range", message))
    }
}
