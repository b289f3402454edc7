//! Who is told of every verdict.

use crate::request::Request;
use crate::verdict::Verdict;

/// Is told of every verdict, on the thread that made it. Must not wait.
pub trait Observer: Send + Sync {
    /// One request was answered.
    fn observe(&self, request: &Request<'_>, verdict: &Verdict);
}
