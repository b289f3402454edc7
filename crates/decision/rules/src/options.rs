//! How rule files become one snapshot.

use tidegate_algorithms::OnStoreError;
use tidegate_macros::defaults;

/// The largest rule file, in bytes. At about a hundred bytes a rule that is well over 100,000 rules, and a file of this
/// size is still read in a second.
pub const SOURCE_BYTES_MAX: usize = 16 * 1024 * 1024;

defaults! {
    /// How several files become one snapshot.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Options {
        /// Whether several files may add to one domain; otherwise a second file for a domain is an error.
        pub merge_domains: bool = true,
        /// Whether limits charge as envoyproxy/ratelimit does unless a file says otherwise: every limit of a request is
        /// charged whatever the others decide, and refused hits count.
        pub compat: bool,
        /// Whether the unit `month` means calendar months, in UTC.
        pub calendar_months: bool,
        /// What decides while the shared store is unavailable, for limits whose file does not say it.
        pub on_store_error: OnStoreError,
    }
}
