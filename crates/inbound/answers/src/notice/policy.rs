//! One limit, as clients see it.

use std::fmt::{self, Write};

use tidegate_engine::{
    Algorithm, Decision, Nanos, RefusalStatus, Retry, Role, RuleLimit, Ruling, Verdict, WhenOver,
};

use super::whole_seconds;

/// The most characters of a name that clients see.
pub const NAME_CHARS_MAX: usize = 128;

/// When to retry for a slot. A slot is free when its holder is done, which cannot be predicted; the time to live is for
/// holders that crashed.
const SLOT_WAIT: Nanos = Nanos::from_secs(1);

/// One limit of a notice.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'v> {
    name: PolicyName<'v>,
    limit: &'v RuleLimit,
    ruling: &'v Ruling,
    violated: bool,
}

impl<'v> Policy<'v> {
    pub(super) fn of(verdict: &'v Verdict, ruling: &'v Ruling, violated: bool) -> Option<Self> {
        let limit = verdict.limit(ruling)?;
        let name = match limit.name {
            Some(name) => PolicyName { text: verdict.snapshot().name(name), ordinal: 0 },
            None => {
                let rule = verdict.snapshot().rule(limit.rule)?;
                let ordinal = rule.limits().iter().position(|id| *id == limit.id);
                PolicyName { text: rule.path(), ordinal: ordinal.unwrap_or(0) }
            }
        };
        Some(Policy { name, limit, ruling, violated })
    }

    /// The limit's name.
    pub const fn name(&self) -> PolicyName<'v> {
        self.name
    }

    /// The limit's decision.
    pub const fn decision(&self) -> &'v Decision {
        &self.ruling.decision
    }

    /// Whether it refused the request.
    pub const fn is_violated(&self) -> bool {
        self.violated
    }

    /// Whether it limits requests in flight.
    pub fn is_concurrency(&self) -> bool {
        self.algorithm().holds_slots()
    }

    /// The amount in its rule: per window, or in flight.
    pub fn quota(&self) -> u64 {
        self.algorithm().quota()
    }

    /// The window of the quota in whole seconds, rounded up; [`None`] if it is under a second, or there is no window.
    pub fn window_seconds(&self) -> Option<u64> {
        let period = self.period();
        (!self.is_concurrency() && period >= Nanos::from_secs(1)).then(|| period.as_secs_ceil())
    }

    /// The seconds that the remaining units have to last: until the refused request would pass, or else until the
    /// limit is as good as unused.
    pub fn effective_window_seconds(&self) -> Option<u64> {
        whole_seconds(self.retry()).or_else(|| self.reset_after().map(Nanos::as_secs_ceil))
    }

    /// When the limit is as good as unused; [`None`] for requests in flight, which cannot be predicted.
    pub fn reset_after(&self) -> Option<Nanos> {
        (!self.is_concurrency()).then_some(self.decision().reset_after)
    }

    /// When to retry, as far as this limit is concerned.
    pub fn retry(&self) -> Retry {
        match self.decision().retry {
            _ if !self.violated => Retry::Now,
            Retry::After(_) if self.is_concurrency() => Retry::After(SLOT_WAIT),
            retry => retry,
        }
    }

    /// Identifies the limit's counters: stable as long as it is the same limit.
    pub const fn identity(&self) -> u64 {
        self.limit.identity
    }

    /// What its rule does with requests over the limit.
    pub const fn when_over(&self) -> WhenOver {
        self.limit.when_over
    }

    /// The status of its refusals, if its rule chooses one.
    pub fn refusal_status(&self) -> Option<RefusalStatus> {
        self.limit.refusal_status
    }

    /// Which of the request's descriptors met it.
    pub fn descriptor(&self) -> usize {
        usize::try_from(self.ruling.descriptor).unwrap_or(usize::MAX)
    }

    /// The time that the quota is for.
    pub fn period(&self) -> Nanos {
        self.algorithm().period()
    }

    /// Identifies the limit within its verdict.
    pub const fn limit_id(&self) -> usize {
        self.limit.id.index()
    }

    /// Orders limits by how much a client needs to know them: refusals that count by themselves, the longest first;
    /// alternatives that all refuse, the shortest first, because one admission is enough; then the least remaining.
    /// Concurrency limits come last: slots are free again soon, so few of them are no news.
    pub(super) fn looseness(&self) -> (u8, u64) {
        let wait = match self.retry() {
            Retry::Now => 0,
            Retry::After(wait) => wait.get(),
            Retry::Never => u64::MAX,
        };
        match (self.violated, self.ruling.role) {
            (true, Role::Alternative) => (1, wait),
            (true, _) => (0, u64::MAX - wait),
            (false, _) if !self.is_concurrency() => (2, self.decision().remaining),
            (false, _) => (3, self.decision().remaining),
        }
    }

    fn algorithm(&self) -> &'v Algorithm {
        self.limit.limit.algorithm()
    }
}

/// The name of a limit that clients see: its own, or else the path of its rule, with a number from the rule's second
/// nameless limit on.
///
/// Displayed in printable ASCII, which structured fields require; other characters become question marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyName<'v> {
    text: &'v str,
    ordinal: usize,
}

impl<'v> PolicyName<'v> {
    /// The name as written in the rules.
    pub const fn text(&self) -> &'v str {
        self.text
    }

    /// The index among the limits of its rule, if it has no own name.
    pub const fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The characters in printable ASCII, without the number.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'v> {
        let printable = |text: char| {
            let byte = u8::try_from(text).unwrap_or(b'?');
            if matches!(byte, b' '..=b'~') { byte } else { b'?' }
        };
        self.text.chars().take(NAME_CHARS_MAX).map(printable)
    }

    /// The number after the name, if any.
    pub fn number(&self) -> Option<u64> {
        let number = u64::try_from(self.ordinal).unwrap_or(u64::MAX).saturating_add(1);
        (number > 1).then_some(number)
    }

    #[cfg(test)]
    pub(crate) const fn new(text: &'v str, ordinal: usize) -> Self {
        PolicyName { text, ordinal }
    }
}

impl fmt::Display for PolicyName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().try_for_each(|byte| f.write_char(char::from(byte)))?;
        match self.number() {
            Some(number) => write!(f, "#{number}"),
            None => Ok(()),
        }
    }
}
