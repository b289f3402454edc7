//! A verdict as plain data, so that tests of the checkers can build faulty ones.

use tidegate_engine::{Basis, Retry, Role, Verdict};

/// One answer of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenVerdict {
    pub(crate) admitted: bool,
    /// Path and name of the limit that the verdict names.
    pub(crate) refusal: Option<(String, String)>,
    pub(crate) retry: Retry,
    /// Why the request was not decided.
    pub(crate) undecided: Option<String>,
    pub(crate) switched_off: bool,
    pub(crate) rulings: Vec<SeenRuling>,
}

/// The ruling of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenRuling {
    pub(crate) descriptor: usize,
    pub(crate) path: String,
    pub(crate) limit: String,
    pub(crate) algorithm: &'static str,
    pub(crate) role: Role,
    pub(crate) basis: Basis,
    pub(crate) admitted: bool,
    pub(crate) taken: u64,
    pub(crate) remaining: u64,
    pub(crate) retry: Retry,
    pub(crate) delay: u64,
    pub(crate) soft: bool,
}

impl SeenVerdict {
    pub(crate) fn of(verdict: &Verdict) -> Self {
        let rulings = verdict.rulings().iter().map(|ruling| {
            let limit = verdict.limit(ruling);
            let name = limit.and_then(|limit| limit.name);
            let name = name.map_or("", |name| verdict.snapshot().name(name));
            let decision = &ruling.decision;
            SeenRuling {
                descriptor: ruling.descriptor as usize,
                path: verdict.rule(ruling).map_or("", |rule| rule.path()).to_owned(),
                limit: name.to_owned(),
                algorithm: limit.map_or("", |limit| limit.limit.algorithm().name()),
                role: ruling.role,
                basis: ruling.basis,
                admitted: decision.is_admitted(),
                taken: decision.taken,
                remaining: decision.remaining,
                retry: decision.retry,
                delay: decision.delay.get(),
                soft: decision.soft,
            }
        });
        let refusal = verdict.refusal();
        let named = |limit: Option<&str>| limit.unwrap_or_default().to_owned();
        SeenVerdict {
            admitted: verdict.is_admitted(),
            refusal: refusal.map(|refusal| (refusal.path.to_owned(), named(refusal.limit))),
            retry: verdict.retry(),
            undecided: verdict.undecided().map(ToString::to_string),
            switched_off: verdict.is_switched_off(),
            rulings: rulings.collect(),
        }
    }

    /// Whether every limit had its own counter.
    pub(crate) fn is_exact(&self) -> bool {
        self.rulings.iter().all(|ruling| ruling.basis == Basis::Exact)
    }
}
