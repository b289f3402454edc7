//! `tidegate simulate`: load and recorded traffic in virtual time.

mod gateway_describer;
pub(crate) mod progress;
pub(crate) mod recordings;
pub(crate) mod traffic;
