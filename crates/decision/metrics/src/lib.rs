//! Counters of requests and their durations, as every door keeps them.
//!
//! [`Meter`] counts what one door answers. Names and labels of metrics are not here: the admin port adds them.

mod meter;

pub use meter::{Answered, DURATION_BOUNDS_MICROS, Meter, MeterReading};
