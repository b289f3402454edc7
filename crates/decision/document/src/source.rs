//! A document as text.

/// One document: its text, and its name for messages. Reading the file is the caller's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name in messages; usually a path.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Source {
    /// A source with this name and text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Source { name: name.into(), text: text.into() }
    }
}
