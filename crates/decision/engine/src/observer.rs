//! A hook that sees every verdict.

use tidegate_stores::Verb;

use crate::request::Request;
use crate::verdict::Verdict;

/// Sees every verdict, on the thread that made it. Must not block.
pub trait Observer: Send + Sync {
    /// One request was answered; `verb` is what it asked for.
    fn observe(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict);

    /// A request that was observed as admitted is refused after all, because it would have to wait too long. The verdict
    /// is the refusal.
    fn observe_turned_away(&self, _request: &Request<'_>, _verdict: &Verdict) {}
}
