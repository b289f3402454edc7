//! Plays recordings through rules.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

use foldhash::fast::FixedState;
use tidegate_algorithms::Timestamp;
use tidegate_engine::{ConfigError, Snapshot};
use tidegate_insight::{DecisionRecord, RecordedVerdict};

use super::describe::{DescriptorWriter, RequestDescriber};
use super::flips::Flips;
use super::habits::{CallerKeys, ClientHabits};
use super::logged_request::{LoggedRequest, TimeResolution};
use super::obedient::ObedientClients;
use super::order::RequestOrder;
use super::pending::{PendingRequests, RequestRef, RequestTerms};
use super::read::{LineReader, LogLine, LogReader, NextLine};
use super::report::{LogSummary, ReplayReport};
use super::rule_set::{Detail, RuleSet};
use super::timeline::Timeline;

/// The most recordings of one replay.
pub const LOGS_MAX: usize = 1_000;
/// The most domains of a decision log; requests of further ones are left out and counted.
const DOMAINS_MAX: usize = 10_000;
/// Examples of unreadable lines that are kept for each log.
const EXAMPLES_MAX: usize = 3;
/// The longest example, in bytes.
const EXAMPLE_BYTES_MAX: usize = 120;
/// Lines between two reports of progress.
const PROGRESS_LINES: u64 = 65_536;

/// One recording.
pub struct Recording {
    name: String,
    lines: LineReader,
    /// How it is read; [`None`] until its first line shows it.
    reader: Option<LogReader>,
    /// The second of the last request.
    second: u64,
    ended: bool,
    summary: LogSummary,
    /// The sequence of the next decision.
    sequence: Option<u64>,
}

impl Recording {
    /// A recording with a name for the report. The reader is found by the first line unless it is given.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub fn new(
        name: &str,
        input: impl Read + 'static,
        reader: Option<LogReader>,
    ) -> io::Result<Self> {
        Ok(Recording {
            name: name.to_owned(),
            lines: LineReader::new(input)?,
            reader,
            second: 0,
            ended: false,
            summary: LogSummary { name: name.to_owned(), ..LogSummary::default() },
            sequence: None,
        })
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Recording").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How refused clients behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientModel {
    /// Every line as it was logged: the bound from above.
    AsLogged,
    /// Both bounds.
    #[default]
    Both,
}

/// What to play.
pub struct ReplayOptions<'o> {
    /// The rules to try.
    pub rules: Arc<Snapshot>,
    /// The rules to compare with.
    pub against: Option<Arc<Snapshot>>,
    /// How requests of access logs become descriptors; decision logs have them.
    pub describer: Option<&'o mut dyn RequestDescriber>,
    /// How refused clients behave.
    pub clients: ClientModel,
    /// Whether callers are shown as hashes.
    pub anonymise: bool,
    /// Called now and then with the number of lines read.
    pub progress: &'o mut dyn FnMut(u64),
}

impl std::fmt::Debug for ReplayOptions<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ReplayOptions").field("clients", &self.clients).finish_non_exhaustive()
    }
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A recording cannot be read.
    #[error("`{name}` cannot be read: {error}")]
    Read {
        /// Its name.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// The format of a recording is not known.
    #[error("the format of `{name}` is not known; its first line is `{line}`")]
    UnknownFormat {
        /// Its name.
        name: String,
        /// The line.
        line: String,
    },
    /// An access log without a description of its requests.
    #[error("`{name}` is an access log: what its requests are limited by is not known")]
    NoDescriber {
        /// Its name.
        name: String,
    },
    /// Memory for counters.
    #[error(transparent)]
    Store(#[from] ConfigError),
    /// Too many recordings.
    #[error("there are more than {LOGS_MAX} recordings")]
    TooManyLogs,
}

/// Everything that decides.
pub(crate) struct Sides {
    pub(crate) new: RuleSet,
    pub(crate) old: Option<RuleSet>,
    pub(crate) obedient: Option<ObedientClients>,
    /// Clients that wait or insist as they did under the old rules.
    pub(crate) expected: Option<ObedientClients>,
    pub(crate) habits: ClientHabits,
    pub(crate) flips: Flips,
    pub(crate) timeline: Timeline,
    pub(crate) domains: Vec<String>,
    pub(crate) log: LogComparison,
    pub(crate) logged_refused: u64,
    pub(crate) first: Option<Timestamp>,
    pub(crate) last: Timestamp,
}

/// How verdicts compare with those of a decision log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogComparison {
    pub(crate) compared: u64,
    pub(crate) different: u64,
}

/// Plays recordings through rules.
///
/// # Errors
/// When a recording cannot be read or its format is not known.
pub fn replay(
    mut recordings: Vec<Recording>,
    options: ReplayOptions<'_>,
) -> Result<ReplayReport, ReplayError> {
    if recordings.len() > LOGS_MAX {
        return Err(ReplayError::TooManyLogs);
    }
    let ReplayOptions { rules, against, describer, clients, anonymise, progress } = options;
    let mut sides = Sides::new(rules, against, clients)?;
    let mut intake = Intake::new(describer, &sides);
    let mut order = RequestOrder::default();
    let mut lines = 0_u64;
    // The recording that is furthest behind comes next, so that all advance together.
    while let Some(at) = furthest_behind(&recordings) {
        if let Some(recording) = recordings.get_mut(at) {
            intake.read_line(recording, &mut order)?;
        }
        lines += 1;
        if lines.is_multiple_of(PROGRESS_LINES) {
            progress(lines);
        }
        let reached = recordings.iter().filter(|one| !one.ended).map(|one| one.second).min();
        if let Some(reached) = reached {
            order.play(reached, |bucket| sides.play(bucket, &intake.domains));
        }
    }
    order.finish(|bucket| sides.play(bucket, &intake.domains));
    progress(lines);
    let missing = intake.describer.as_ref().map(|one| one.missing()).unwrap_or_default();
    sides.domains = std::mem::take(&mut intake.domains);
    let logs = recordings.into_iter().map(|recording| recording.summary).collect();
    Ok(ReplayReport::new(&sides, logs, &missing, order.late(), &intake.notes(), anonymise))
}

fn furthest_behind(recordings: &[Recording]) -> Option<usize> {
    let open = recordings.iter().enumerate().filter(|(_, recording)| !recording.ended);
    open.min_by_key(|(_, recording)| recording.second).map(|(index, _)| index)
}

/// What the lines said beside requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IntakeNotes {
    pub(crate) without_descriptors: u64,
    pub(crate) own_limits: u64,
    pub(crate) lost: u64,
    pub(crate) one_of: u64,
    pub(crate) hashed: bool,
    pub(crate) has_durations: bool,
    pub(crate) coarse: bool,
    pub(crate) domains_beyond: u64,
}

/// Turns lines into requests that wait for their turn.
struct Intake<'o> {
    describer: Option<&'o mut dyn RequestDescriber>,
    domains: Vec<String>,
    known: HashMap<String, u16, FixedState>,
    /// The versions of the rules whose verdicts can be compared.
    version: String,
    notes: IntakeNotes,
}

impl<'o> Intake<'o> {
    fn new(describer: Option<&'o mut dyn RequestDescriber>, sides: &Sides) -> Self {
        let compared = sides.old.as_ref().unwrap_or(&sides.new);
        let version = version_text(compared.snapshot().version());
        let mut intake = Intake {
            describer,
            domains: Vec::new(),
            known: HashMap::default(),
            version,
            notes: IntakeNotes { one_of: 1, ..IntakeNotes::default() },
        };
        let domain = intake.describer.as_ref().map(|one| one.domain().to_owned());
        if let Some(domain) = domain {
            intake.domain_index(&domain);
        }
        intake
    }

    fn notes(&self) -> IntakeNotes {
        self.notes.clone()
    }

    fn domain_index(&mut self, name: &str) -> Option<u16> {
        if let Some(index) = self.known.get(name) {
            return Some(*index);
        }
        let index = u16::try_from(self.domains.len()).ok()?;
        if self.domains.len() >= DOMAINS_MAX {
            return None;
        }
        self.domains.push(name.to_owned());
        self.known.insert(name.to_owned(), index);
        Some(index)
    }

    fn read_line(
        &mut self,
        recording: &mut Recording,
        order: &mut RequestOrder,
    ) -> Result<(), ReplayError> {
        let Recording { name, lines, reader, second, ended, summary, sequence } = recording;
        let next = lines.next();
        let next = next.map_err(|error| ReplayError::Read { name: name.clone(), error })?;
        let line = match next {
            NextLine::End => {
                *ended = true;
                return Ok(());
            }
            NextLine::CutOff => {
                (*ended, summary.cut_off) = (true, true);
                return Ok(());
            }
            NextLine::TooLong => {
                summary.lines += 1;
                summary.too_long += 1;
                return Ok(());
            }
            NextLine::Text(line) => line,
        };
        summary.lines += 1;
        if line.trim().is_empty() {
            summary.empty += 1;
            return Ok(());
        }
        if reader.is_none() {
            let found = LogReader::detect(line);
            let unknown = || ReplayError::UnknownFormat { name: name.clone(), line: cut(line) };
            *reader = Some(found.ok_or_else(unknown)?);
        }
        let Some(reader) = reader else { return Ok(()) };
        if summary.format.is_empty() {
            summary.format = reader.name();
            let needs_fields = self.describer.as_ref().is_some_and(|one| one.needs_fields());
            if !needs_fields {
                *reader = reader.clone().without_fields();
            }
        }
        match reader.read(line) {
            None => {
                summary.unreadable += 1;
                if summary.examples.len() < EXAMPLES_MAX {
                    summary.examples.push(cut(line));
                }
            }
            Some(LogLine::Request(request)) => {
                summary.read += 1;
                let terms = self.take_request(&request, order, name)?;
                *second = (*second).max(terms.time.as_nanos() / 1_000_000_000);
            }
            Some(LogLine::Decision(record)) => {
                summary.read += 1;
                if let Some(expected) = *sequence {
                    self.notes.lost += record.sequence.saturating_sub(expected);
                }
                *sequence = Some(record.sequence.saturating_add(1));
                *second = (*second).max(record.time_ns / 1_000_000_000);
                self.take_decision(&record, order);
            }
        }
        Ok(())
    }

    fn take_request(
        &mut self,
        request: &LoggedRequest<'_>,
        order: &mut RequestOrder,
        name: &str,
    ) -> Result<RequestTerms, ReplayError> {
        let no_describer = || ReplayError::NoDescriber { name: name.to_owned() };
        let describer = self.describer.as_mut().ok_or_else(no_describer)?;
        self.notes.has_durations |= request.duration.is_some();
        self.notes.coarse |= request.resolution == TimeResolution::Second;
        let terms = RequestTerms {
            time: request.began(),
            resolution: request.resolution,
            duration: request.duration,
            cost: 1,
            refused: request.refused,
            ..RequestTerms::default()
        };
        let (pending, placed) = order.bucket(terms);
        let before = pending.descriptor_count();
        describer.describe(request, &mut DescriptorWriter { pending: &mut *pending });
        self.notes.without_descriptors += u64::from(pending.descriptor_count() == before);
        pending.end_request(placed);
        Ok(terms)
    }

    fn take_decision(&mut self, record: &DecisionRecord<'_>, order: &mut RequestOrder) {
        self.notes.one_of = self.notes.one_of.max(record.one_of);
        self.notes.hashed |= record.hashed;
        let Some(domain) = self.domain_index(&record.domain) else {
            self.notes.domains_beyond += 1;
            return;
        };
        let terms = RequestTerms {
            time: Timestamp::from_nanos(record.time_ns),
            resolution: TimeResolution::Exact,
            duration: None,
            cost: record.cost,
            domain,
            verb: record.verb,
            logged: Some(record.verdict).filter(|_| record.rules == self.version),
            refused: record.verdict == RecordedVerdict::Refused,
        };
        let (pending, terms) = order.bucket(terms);
        let mut own_limits = false;
        for descriptor in &record.descriptors {
            own_limits |= descriptor.own_limit;
            if descriptor.own_limit {
                continue;
            }
            for (key, value) in &descriptor.entries {
                pending.push_entry(key, value);
            }
            pending.end_descriptor(descriptor.cost, descriptor.refund);
        }
        self.notes.own_limits += u64::from(own_limits);
        let logged = terms.logged.filter(|_| !own_limits);
        pending.end_request(RequestTerms { logged, ..terms });
    }
}

/// A line as an example.
fn cut(line: &str) -> String {
    let end = line.floor_char_boundary(EXAMPLE_BYTES_MAX);
    let mark = if end < line.len() { "…" } else { "" };
    format!("{}{mark}", line.get(..end).unwrap_or_default().escape_debug())
}

/// The version of rules, as the decision log writes it.
pub fn version_text(version: u64) -> String {
    format!("{version:016x}")
}

impl Sides {
    fn new(
        rules: Arc<Snapshot>,
        against: Option<Arc<Snapshot>>,
        clients: ClientModel,
    ) -> Result<Self, ConfigError> {
        let old = against.map(|old| RuleSet::new(old, Detail::Counts)).transpose()?;
        let model = || -> Result<_, ConfigError> {
            Ok(ObedientClients::new(RuleSet::new(Arc::clone(&rules), Detail::Counts)?))
        };
        let both = clients == ClientModel::Both;
        let obedient = both.then(model).transpose()?;
        let expected = (both && old.is_some()).then(model).transpose()?;
        Ok(Sides {
            new: RuleSet::new(rules, Detail::Everything)?,
            old,
            obedient,
            expected,
            habits: ClientHabits::default(),
            flips: Flips::default(),
            timeline: Timeline::default(),
            domains: Vec::new(),
            log: LogComparison::default(),
            logged_refused: 0,
            first: None,
            last: Timestamp::default(),
        })
    }

    /// Plays the requests of one second.
    fn play(&mut self, bucket: &PendingRequests, domains: &[String]) {
        for request in bucket.requests() {
            self.play_request(&request, domains);
        }
    }

    fn play_request(&mut self, request: &RequestRef<'_>, domains: &[String]) {
        let terms = request.terms();
        self.first.get_or_insert(terms.time);
        self.last = self.last.max(terms.time);
        self.logged_refused += u64::from(terms.refused);
        let Sides { new, old, flips, timeline, log, habits, .. } = self;
        request.with_request(request.domain(domains), |decided| {
            let answer = new.decide(decided, terms);
            let before = old.as_mut().map(|old| old.decide(decided, terms));
            timeline.count(terms.time, !answer.admitted, before.is_some_and(|one| !one.admitted));
            if let Some(before) = before {
                flips.count(decided, &before, &answer, terms.time);
                habits.observe(&CallerKeys::of(decided), &before, terms.time);
            }
            let compared = before.unwrap_or(answer);
            let logged = match terms.logged {
                Some(RecordedVerdict::Admitted) => true,
                Some(RecordedVerdict::Refused) => false,
                // Nothing was decided.
                Some(
                    RecordedVerdict::UndecidedAdmitted
                    | RecordedVerdict::UndecidedRefused
                    | RecordedVerdict::SwitchedOff,
                )
                | None => return,
            };
            log.compared += 1;
            log.different += u64::from(logged != compared.admitted);
        });
        if let Some(obedient) = &mut self.obedient {
            obedient.send(request, domains, None);
        }
        if let Some(expected) = &mut self.expected {
            expected.send(request, domains, Some(&self.habits));
        }
    }
}
