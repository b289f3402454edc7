//! One limit, as clients are told of it.

use std::fmt::{self, Write};

use tidegate_engine::{Algorithm, Decision, Nanos, Retry, Role, RuleLimit, Ruling, Verdict};

/// The most characters of a name that are told.
pub const NAME_CHARS_MAX: usize = 128;

/// When to ask again for a slot. Slots come back when their holders are done,
/// which nobody can foretell; the time to live is for holders that crashed.
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

    /// What the limit is called.
    pub const fn name(&self) -> PolicyName<'v> {
        self.name
    }

    /// What it decided.
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

    /// The amount that its rule gives: per window, or in flight.
    pub fn quota(&self) -> u64 {
        self.algorithm().quota()
    }

    /// The window of the quota in whole seconds, rounded up; none when it is
    /// under a second, or when the limit has no window.
    pub fn window_seconds(&self) -> Option<u64> {
        let period = self.period();
        (!self.is_concurrency() && period >= Nanos::from_secs(1)).then(|| period.as_secs_ceil())
    }

    /// For how many seconds what remains has to do: until the refused request
    /// would pass, or else until the limit is as good as unused.
    pub fn effective_window_seconds(&self) -> Option<u64> {
        match self.retry() {
            Retry::After(wait) => Some(wait.as_secs_ceil().max(1)),
            Retry::Now | Retry::Never => self.reset_after().map(Nanos::as_secs_ceil),
        }
    }

    /// Until the limit is as good as unused; none for requests in flight,
    /// which nobody can foretell.
    pub fn reset_after(&self) -> Option<Nanos> {
        (!self.is_concurrency()).then_some(self.decision().reset_after)
    }

    /// When to ask again, as far as this limit goes.
    pub fn retry(&self) -> Retry {
        match self.decision().retry {
            _ if !self.violated => Retry::Now,
            Retry::After(_) if self.is_concurrency() => Retry::After(SLOT_WAIT),
            retry => retry,
        }
    }

    /// What the limit's counters are kept under: the same for as long as it is the same limit.
    pub const fn identity(&self) -> u64 {
        self.limit.identity
    }

    /// What its rule wants for requests over it.
    pub const fn when_over(&self) -> tidegate_engine::WhenOver {
        self.limit.when_over
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

    /// Orders limits by how urgent they are to tell, the most urgent first: a
    /// refusal that counts by itself, the longest first; alternatives that all
    /// refuse, the shortest first, because one will do; then what remains.
    /// Slots in flight come last: they come back, so few of them is no news.
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

impl fmt::Display for Policy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The limit \"{}\" allows {}", self.name, self.quota())?;
        if self.is_concurrency() {
            f.write_str(" at once")
        } else {
            write!(f, " per {}", self.period())
        }
    }
}

/// What a limit is called: its name, or else the path of its rule, with a
/// number from the second of several limits without a name on.
///
/// Shown in printable ASCII, as structured fields want it; everything else
/// becomes a question mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyName<'v> {
    text: &'v str,
    ordinal: usize,
}

impl<'v> PolicyName<'v> {
    /// The name as it is written, whatever is shown of it.
    pub const fn text(&self) -> &'v str {
        self.text
    }

    /// Which of the rule's limits it is, if it is called by its rule.
    pub const fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The characters, printable ASCII all of them, without the number.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'v> {
        let printable = |text: char| {
            let byte = u8::try_from(text).unwrap_or(b'?');
            if matches!(byte, b' '..=b'~') { byte } else { b'?' }
        };
        self.text.chars().take(NAME_CHARS_MAX).map(printable)
    }

    /// The number behind the name, if any.
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
