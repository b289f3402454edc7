//! Examples of refused requests of the decision service, for its log.
//!
//! Counters tell how many requests were refused; an example tells whose, and by which limit. At most one refusal per
//! interval is kept, the others cost a comparison. The gateway samples its own requests, so that those of its domain are
//! left out here.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_answers::{Cause, Notice};
use tidegate_engine::{Entry, Request, Verdict};
use tidegate_gateway::{CallerFormat, show_caller};
use tidegate_overload::Category;
use tidegate_spans::RefusalNote;
use tokio::time::Instant;

use super::refusals::REPORT_EVERY;
use crate::config::Log;

/// The longest caller in bytes: a descriptor may be as long as its sender likes.
const CALLER_BYTES_MAX: usize = 200;

/// The key of the descriptor entry that states a request's category, as the gateway's header field does.
const CATEGORY_KEY: &str = "category";

/// Samples of refusals.
#[derive(Debug)]
pub(super) struct DecisionSamples {
    caller: CallerFormat,
    /// The interval of samples; [`None`] for no samples.
    every: Option<Duration>,
    /// The domain of the gateway.
    gateway_domain: OnceLock<String>,
    state: Mutex<SampleState>,
}

#[derive(Debug, Default)]
struct SampleState {
    /// Refusals before this instant are not sampled.
    next: Option<Instant>,
    samples: Vec<DecisionSample>,
}

/// A refused request.
#[derive(Debug)]
struct DecisionSample {
    domain: String,
    rule: String,
    note: RefusalNote,
}

impl DecisionSamples {
    pub(super) fn new(log: &Log) -> Self {
        DecisionSamples {
            caller: log.caller,
            every: REPORT_EVERY.checked_div(log.refusal_samples),
            gateway_domain: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Leaves out the requests of this domain.
    pub(super) fn leave_out(&self, domain: &str) {
        let _ = self.gateway_domain.set(domain.to_owned());
    }

    /// Keeps a refusal, if one is due. Never waits for a lock.
    pub(super) fn offer(&self, request: &Request<'_>, verdict: &Verdict) {
        let Some(every) = self.every else { return };
        if self.gateway_domain.get().is_some_and(|domain| domain == request.domain) {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        let now = Instant::now();
        if state.next.is_some_and(|next| now < next) {
            return;
        }
        state.next = now.checked_add(every);
        let rule = verdict.refusal().map_or("", |refusal| refusal.path);
        state.samples.push(DecisionSample {
            domain: shortened(request.domain),
            rule: rule.to_owned(),
            note: self.note(request, verdict),
        });
    }

    /// The limit, the limiter, the category and the caller of a refusal.
    pub(super) fn note(&self, request: &Request<'_>, verdict: &Verdict) -> RefusalNote {
        let cause = Cause::of(&Notice::of(verdict));
        let ruling = verdict.rulings().iter().find(|ruling| !ruling.decision.is_admitted());
        let index = ruling.and_then(|ruling| usize::try_from(ruling.descriptor).ok()).unwrap_or(0);
        let entries = request.descriptors.get(index).map_or(&[][..], |found| found.entries);
        let limit = ruling.and_then(|ruling| {
            let (rule, limit) = (verdict.rule(ruling)?, verdict.limit(ruling)?);
            Some(verdict.snapshot().limit_name(rule, limit).into_owned())
        });
        RefusalNote {
            limit: limit.unwrap_or_default(),
            refused_by: cause.limiter(),
            code: cause.code(),
            category: stated_category(request).map(Category::as_str),
            caller: show_caller(&caller_name(entries), self.caller),
        }
    }

    /// Logs the samples since the last call. The maximum of their number is that of one report.
    pub(super) fn log(&self) {
        let samples = std::mem::take(&mut self.state.lock().samples);
        for DecisionSample { domain, rule, note } in samples {
            let RefusalNote { limit, refused_by, code, category, caller } = note;
            let caller = caller.unwrap_or_default();
            tracing::info!(
                domain,
                rule,
                limit,
                refused_by,
                code,
                category,
                caller,
                "example of a refused request"
            );
        }
    }
}

/// The category that an entry of the request states; other words are ignored.
fn stated_category(request: &Request<'_>) -> Option<Category> {
    let entries = request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
    entries.filter(|entry| entry.key == CATEGORY_KEY).find_map(|entry| {
        Category::ALL.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(entry.value))
    })
}

/// The entries of a descriptor, such as `user=7 path=/x`.
fn caller_name(entries: &[Entry<'_>]) -> String {
    let mut name = String::new();
    for Entry { key, value } in entries {
        let space = if name.is_empty() { "" } else { " " };
        let _ = write!(name, "{space}{}={}", shortened(key), shortened(value));
        if name.len() > CALLER_BYTES_MAX {
            break;
        }
    }
    shortened(&name)
}

fn shortened(text: &str) -> String {
    text.get(..text.floor_char_boundary(CALLER_BYTES_MAX)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Descriptor;

    use super::*;

    #[test]
    fn a_caller_is_named_by_its_entries_and_cut() {
        let entry = |key, value| Entry { key, value };
        assert_eq!(caller_name(&[entry("user", "7"), entry("path", "/x")]), "user=7 path=/x");
        let long = "x".repeat(1_000);
        assert_eq!(caller_name(&[entry("user", &long)]).len(), CALLER_BYTES_MAX);
    }

    #[test]
    fn the_category_is_the_first_entry_that_states_one() {
        let entry = |key, value| Entry { key, value };
        let (user, unknown) = ([entry("user", "7")], [entry("category", "best")]);
        let stated = [entry("path", "/x"), entry("category", "Critical")];
        let category = |entries: &[&[Entry<'_>]]| {
            let descriptors: Vec<_> =
                entries.iter().map(|entries| Descriptor::new(entries)).collect();
            stated_category(&Request::new("shop", &descriptors))
        };
        assert_eq!(category(&[&user, &unknown, &stated]), Some(Category::Critical));
        assert_eq!(category(&[&user, &unknown]), None);
    }
}
