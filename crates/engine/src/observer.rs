//! Who is told of every verdict.

use tidegate_stores::Verb;

use crate::request::Request;
use crate::verdict::Verdict;

/// Is told of every verdict, on the thread that made it. Must not wait.
pub trait Observer: Send + Sync {
    /// One request was answered; `verb` is what it asked for.
    fn observe(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict);
}
