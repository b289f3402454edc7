//! Units of keys on their way to the remote or from it.

use tidegate_algorithms::Limit;

use crate::batch::{Check, Key};

/// Units of a key to take from the remote, to charge there, or to return to it.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) key: Key,
    /// The limit that the remote applies.
    pub(crate) limit: Limit,
    pub(crate) units: u64,
    /// Whether the remote has far more units than these, so that it will probably grant all.
    pub(crate) is_ample: bool,
}

impl Transfer {
    /// The check that transfers the units.
    pub(crate) fn check(&self) -> Check<'_> {
        Check::new(self.key, &self.limit, self.units)
    }
}
