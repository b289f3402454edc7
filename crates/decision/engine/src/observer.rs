//! Who is told of every verdict.

use tidegate_stores::Verb;

use crate::request::Request;
use crate::verdict::Verdict;

/// Is told of every verdict, on the thread that made it. Must not wait.
pub trait Observer: Send + Sync {
    /// One request was answered; `verb` is what it asked for.
    fn observe(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict);

    /// A request that was observed as admitted is refused after all: it would have to wait for
    /// longer than it may. The verdict is the refusal.
    fn observe_turned_away(&self, _request: &Request<'_>, _verdict: &Verdict) {}
}
