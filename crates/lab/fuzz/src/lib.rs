//! A fuzzer for the readers of foreign input.
//!
//! A [`TargetName`] names a reader with the promises that hold for any input. A [`Fuzzer`] takes
//! inputs from a [`Corpus`], changes them and tries them; inputs with a new result are changed
//! further. Everything follows from one seed. The usual tools need a nightly compiler, so this is
//! a small fuzzer without them.
//!
//! The binary `tidegate-fuzz` runs for a time, the tests a fixed number of inputs. The binary
//! `soak` loads the whole service.

mod chance;
mod corpus;

mod mutation;
mod target;

mod fuzzer;

pub use chance::Chance;
pub use corpus::Corpus;
pub use fuzzer::{Finding, Fuzzer};
pub use target::TargetName;
