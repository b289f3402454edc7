//! The decision log: a line for each decision, with everything that is needed to decide it again.
//!
//! The observer of the engine copies the request into a bounded queue; a thread writes. Nothing waits: when the queue is
//! full, the line is dropped and counted, and the gap in the sequence shows it. Of several callers, all decisions of some
//! are logged rather than some decisions of all, so that their limits can be replayed.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hash, Hasher};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::quality::FixedState;
use tidegate_engine::{
    Clock, Descriptor, Entry, Request, Role, Rule, Ruling, SystemClock, Verb, Verdict,
};
use tidegate_gateway::{CallerFormat, LogQueue, show_caller};
use tidegate_insight::{
    DecisionRecord, RecordedDescriptor, RecordedLimit, RecordedVerb, RecordedVerdict,
};
use tidegate_metrics::{Collector, Exposition};
use tidegate_rules::ShownValue;

use crate::config::{Decisions, RecordedValues, count};
use crate::exit::{Complaint, Failure};

/// How long the end of the service waits for lines that are not written yet.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

tidegate_metrics::metrics! {
    /// The metrics of the decision log.
    pub DECISION_METRICS:
    LOGGED = Counter "tidegate_decisions_logged_total" []
        "Decisions put into the queue of the decision log.";
    DROPPED = Counter "tidegate_decisions_dropped_total" []
        "Decisions that are missing in the decision log, because its queue was full.";
}

/// The decision log.
#[derive(Debug)]
pub(super) struct DecisionLog {
    lines: LogQueue<DecisionRecord<'static>>,
    values: RecordedValues,
    one_of: u64,
    sequence: AtomicU64,
    /// For decisions that met no limit, which have no instant of their own.
    clock: SystemClock,
}

impl DecisionLog {
    /// Opens the log, if the configuration asks for one.
    pub(super) fn start(settings: &Decisions) -> Result<Option<Self>, Failure> {
        let out: Box<dyn Write + Send> = match &settings.to {
            None => return Ok(None),
            Some(path) if path == "stdout" => Box::new(io::stdout()),
            Some(path) if path == "stderr" => Box::new(io::stderr()),
            Some(path) => {
                let file = OpenOptions::new().append(true).create(true).open(path);
                Box::new(file.map_err(|error| {
                    let message = format!("`{}` cannot be written: {error}", path.display());
                    Complaint::new(message, "check `decisions.to`")
                })?)
            }
        };
        let lines = LogQueue::start("decision-log", count(settings.waiting_max), out, write_line)
            .map_err(|error| {
            super::system_failure("the decision log cannot be started", &error)
        })?;
        Ok(Some(DecisionLog {
            lines,
            values: settings.values,
            one_of: u64::from(settings.one_of).max(1),
            sequence: AtomicU64::new(0),
            clock: SystemClock::new(),
        }))
    }

    /// Logs a decision, if its caller is among those that are logged. Never waits.
    pub(super) fn observe(&self, verb: Verb, request: &Request<'_>, verdict: &Verdict) {
        let Some(verb) = recorded_verb(verb) else { return };
        if self.one_of > 1 && !caller_hash(request).is_multiple_of(self.one_of) {
            return;
        }
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let time = verdict.decided_at().unwrap_or_else(|| self.clock.now());
        let rules = verdict.matched_rules().chain(std::iter::repeat(None));
        let descriptors = request.descriptors.iter().zip(rules);
        let record = DecisionRecord {
            time_ns: time.as_nanos(),
            sequence,
            domain: Cow::Owned(request.domain.to_owned()),
            descriptors: descriptors.map(|(one, rule)| self.descriptor(one, rule)).collect(),
            cost: request.cost,
            verb,
            rules: Cow::Owned(format!("{:016x}", verdict.snapshot().version())),
            verdict: recorded_verdict(verdict),
            refused_by: refused_by(verdict),
            one_of: self.one_of,
            hashed: self.values == RecordedValues::Hashed,
        };
        self.lines.push(record);
    }

    fn descriptor(
        &self,
        descriptor: &Descriptor<'_>,
        rule: Option<&Rule>,
    ) -> RecordedDescriptor<'static> {
        let levels = rule.map(Rule::levels).unwrap_or_default();
        let entry = |(index, entry): (usize, &Entry<'_>)| {
            let is_written = levels.get(index).is_some_and(|level| match level.shown() {
                ShownValue::Written(value) => **value == *entry.value,
                ShownValue::KeyOnly | ShownValue::Shared(_) | ShownValue::Requested => false,
            });
            let value = match self.values {
                RecordedValues::Hashed if !is_written => {
                    show_caller(entry.value, CallerFormat::Hashed).unwrap_or_default()
                }
                RecordedValues::Plain | RecordedValues::Hashed => entry.value.to_owned(),
            };
            (Cow::Owned(entry.key.to_owned()), Cow::Owned(value))
        };
        RecordedDescriptor {
            entries: descriptor.entries.iter().enumerate().map(entry).collect(),
            cost: descriptor.cost,
            refund: descriptor.refund,
            own_limit: descriptor.limit.is_some(),
        }
    }

    /// Waits until all lines are written, but not for long.
    pub(super) fn flush(&self) {
        if !self.lines.flush(FLUSH_PATIENCE) {
            tracing::warn!("some lines of the decision log are not written");
        }
    }
}

impl Collector for DecisionLog {
    fn collect(&self, out: &mut Exposition) {
        out.single(LOGGED, self.lines.queued());
        out.single(DROPPED, self.lines.dropped());
    }
}

fn write_line(record: &DecisionRecord<'static>, out: &mut String) {
    // A record has only texts and numbers, which JSON can always hold.
    if let Ok(line) = serde_json::to_string(record) {
        out.push_str(&line);
        out.push('\n');
    }
}

/// The hash of the first descriptor: equal in every process, so that the same callers are logged everywhere.
fn caller_hash(request: &Request<'_>) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    request.domain.hash(&mut hasher);
    let entries = request.descriptors.first().map_or(&[][..], |descriptor| descriptor.entries);
    for Entry { key, value } in entries {
        (key, value).hash(&mut hasher);
    }
    hasher.finish()
}

/// The verb, if it changes or decides something.
const fn recorded_verb(verb: Verb) -> Option<RecordedVerb> {
    match verb {
        Verb::Check => Some(RecordedVerb::Check),
        Verb::Take => Some(RecordedVerb::Take),
        Verb::Charge => Some(RecordedVerb::Charge),
        Verb::Refund => Some(RecordedVerb::Refund),
        Verb::Reset => Some(RecordedVerb::Reset),
        Verb::Peek => None,
    }
}

fn recorded_verdict(verdict: &Verdict) -> RecordedVerdict {
    match (verdict.is_switched_off(), verdict.undecided(), verdict.is_admitted()) {
        (true, _, _) => RecordedVerdict::SwitchedOff,
        (false, Some(_), true) => RecordedVerdict::UndecidedAdmitted,
        (false, Some(_), false) => RecordedVerdict::UndecidedRefused,
        (false, None, true) => RecordedVerdict::Admitted,
        (false, None, false) => RecordedVerdict::Refused,
    }
}

fn refused_by(verdict: &Verdict) -> Vec<RecordedLimit<'static>> {
    let refused = verdict.rulings().iter().filter(|ruling| !ruling.decision.is_admitted());
    let name = |ruling: &Ruling| {
        let (rule, limit) = (verdict.rule(ruling)?, verdict.limit(ruling)?);
        Some(RecordedLimit {
            rule: Cow::Owned(rule.path().to_owned()),
            limit: Cow::Owned(verdict.snapshot().limit_name(rule, limit).into_owned()),
            shadow: ruling.role == Role::Observed,
        })
    };
    refused.filter_map(name).collect()
}
