//! `tidegate rules`: check, explain and describe rule files.

pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod load;
pub(crate) mod report;
