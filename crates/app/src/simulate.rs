//! `tidegate simulate`: load and recorded traffic in virtual time.

pub(crate) mod recordings;
pub(crate) mod traffic;
