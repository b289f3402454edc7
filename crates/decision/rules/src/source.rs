//! What comes in: rule files as text, and how to put them together.
//!
//! Reading the files is the caller's work; a [`Source`] is only a name for
//! messages and the text itself.

/// The largest rule file, in bytes. At about a hundred bytes a rule that is
/// well over 100,000 rules, and a file this size is still read in a second.
pub const SOURCE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One rule file as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What messages call it; usually a path.
    pub name: String,
    /// The YAML.
    pub text: String,
}

impl Source {
    /// A source with this name and text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Source { name: name.into(), text: text.into() }
    }
}

/// How several files become one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether several files may add to one domain; otherwise a second file
    /// for a domain is an error.
    pub merge_domains: bool,
    /// Whether limits charge as envoyproxy/ratelimit does where a file does not
    /// say otherwise: every limit of a request is charged whatever the others
    /// say, and refused hits count.
    pub compat: bool,
    /// Whether the unit `month` means months of the calendar, in UTC.
    pub calendar_months: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { merge_domains: true, compat: false, calendar_months: false }
    }
}
