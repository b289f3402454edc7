//! Damaged input for everything that reads what others wrote.
//!
//! A [`TargetName`] is a reader and what must hold of it whatever it is given.
//! A [`Fuzzer`] draws inputs from a kept [`Corpus`], damages them and tries
//! them; inputs that lead somewhere new are damaged further. Everything follows
//! from one seed. Our own few hundred lines, since the usual tools need a
//! compiler that we do not build with.
//!
//! The binary `tidegate-fuzz` runs for as long as it is told; the tests run a
//! fixed number of inputs. The binary `soak` loads the whole service instead.

mod chance;
mod corpus;

mod mutation;
mod target;

mod fuzzer;

pub use chance::Chance;
pub use corpus::Corpus;
pub use fuzzer::{Finding, Fuzzer};
pub use target::TargetName;
