//! Calls the script until it has decided a request; usually once.
//!
//! The script can neither settle a state that was written under other parameters nor find a calendar's window. It then
//! does nothing and reports the states. Rust settles them and calls again with a compare-and-swap: "if the key still
//! holds these bytes, read them as those". If another process wrote in between, the script uses what it finds, and may
//! report once more that it cannot settle it.

use std::borrow::Cow;
use std::time::Duration;

use tidegate_algorithms::{Limit, Nanos, State, Timestamp};
use tidegate_redis_link::ScriptReply;
use tokio::time::Instant;

use super::RedisStore;
use super::codec::{
    NodeReports, Reply, Request, ScriptVerb, SettledState, charged_units, decode_state,
    reported_state,
};
use super::error::{protocol_error, script_error};
use super::replay::{Replay, States, is_list};
use super::rounded_limit::MICRO;
use crate::batch::{Batch, Check};
use crate::check_all::Decisions;
use crate::counter_store::StoreError;
use crate::fingerprint::Fingerprint;
use crate::shared::{CountReport, DueCharge, ReportAnswer};

/// Each further round means that another process wrote in between.
const ROUNDS_MAX: usize = 16;

/// One request, called until it is decided.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    store: &'a RedisStore,
    pub(super) verb: ScriptVerb,
    checks: &'a [Check<'a>],
    limits: &'a [Cow<'a, Limit>],
    /// The caller's clock.
    now: Timestamp,
    within: Duration,
    until: Instant,
    reports: NodeReports<'a>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        store: &'a RedisStore,
        batch: &'a Batch<'a>,
        limits: &'a [Cow<'a, Limit>],
    ) -> Self {
        let within = batch.within.unwrap_or(store.deadline);
        let verb = match ScriptVerb::of(batch) {
            // For one check both charge alike, and the script has a fast path for this one.
            ScriptVerb::Always if batch.checks.len() == 1 => ScriptVerb::All,
            verb => verb,
        };
        Exchange {
            store,
            verb,
            checks: batch.checks,
            limits,
            now: batch.now,
            within,
            until: Instant::now() + within,
            reports: NodeReports::NONE,
        }
    }

    /// The exchange of a node's reports; `batch` has a check for each.
    pub(super) fn of_reports(
        store: &'a RedisStore,
        batch: &'a Batch<'a>,
        limits: &'a [Cow<'a, Limit>],
        reports: NodeReports<'a>,
    ) -> Self {
        let exchange = Exchange::new(store, batch, limits);
        Exchange { verb: ScriptVerb::Report, reports, ..exchange }
    }

    /// Calls the script until the reports are charged.
    pub(super) async fn report(&self) -> Result<Vec<ReportAnswer>, StoreError> {
        let mut expected = self.store.server_time(self.now);
        let mut settled = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let reply = self.send(self.verb, expected, &settled).await?;
            let decided_at = clock(&reply);
            match self.read(&reply)? {
                Reply::Decided { states, .. } => {
                    let answers = self.report_answers(&states, decided_at);
                    return answers.ok_or_else(|| malformed(&reply));
                }
                Reply::Stale(raws) => settled = self.settle(&raws, decided_at),
                Reply::Conflicting(_) => return Err(protocol_error("one key was reported twice")),
                Reply::Failed(words) => return Err(script_error(&words)),
            }
            expected = decided_at;
        }
        Err(written_meanwhile())
    }

    fn report_answers(&self, parts: &[&[u8]], now: Timestamp) -> Option<Vec<ReportAnswer>> {
        let reports = self.reports.counts.iter().zip(self.limits);
        let answer = |((report, limit), part): ((&&CountReport, &Cow<'_, Limit>), &&[u8])| {
            let (units, lost, bytes) = charged_units(part)?;
            let mut state = reported_state(bytes, limit)?;
            let age = if lost { Nanos::ZERO } else { report.age };
            Some(report.charge(&mut state, DueCharge { units, age }, now))
        };
        reports.zip(parts).map(answer).collect()
    }

    /// Extends the expiry of slots; returns whether the holder had them.
    pub(super) async fn renew(&self) -> Result<bool, StoreError> {
        if !self.limits.iter().all(|limit| limit.algorithm().holds_slots()) {
            return Ok(false);
        }
        let reply = self.send(ScriptVerb::Renew, self.store.server_time(self.now), &[]).await?;
        match Reply::read(&reply.body, 1, false) {
            Some(Reply::Decided { states, .. }) => Ok(states.first() == Some(&&b"1"[..])),
            Some(Reply::Failed(words)) => Err(script_error(&words)),
            _ => Err(malformed(&reply)),
        }
    }

    /// Calls the script until the checks are decided.
    pub(super) async fn decide(&self) -> Result<Decisions, StoreError> {
        let mut expected = self.store.server_time(self.now);
        let mut settled = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let reply = self.send(self.verb, expected, &settled).await?;
            let decided_at = clock(&reply);
            let replay = self.replay(decided_at);
            match self.read(&reply)? {
                Reply::Decided { charged, states } => {
                    let decided = replay.decisions(&states).ok_or_else(|| malformed(&reply))?;
                    return self.agree(decided, charged);
                }
                Reply::Stale(raws) => settled = self.settle(&raws, decided_at),
                Reply::Conflicting(raws) => {
                    if let Some(decisions) = self.swap(&raws, &replay).await? {
                        return Ok(decisions);
                    }
                }
                Reply::Failed(words) => return Err(script_error(&words)),
            }
            expected = decided_at;
        }
        Err(written_meanwhile())
    }

    async fn send(
        &self,
        verb: ScriptVerb,
        expected: Timestamp,
        settled: &[SettledState],
    ) -> Result<ScriptReply, StoreError> {
        let (checks, limits) = (self.checks, self.limits);
        let request = Request { verb, checks, limits, expected, settled, reports: self.reports };
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StoreError::Timeout { waited: self.within });
        }
        let reply = self.store.client.send(request.call(&self.store.prefix), left).await?;
        self.store.note_server_time(self.now, clock(&reply));
        Ok(reply)
    }

    fn read<'r>(&self, reply: &'r ScriptReply) -> Result<Reply<'r>, StoreError> {
        let lone_bucket = self.verb == ScriptVerb::All && self.is_lone_bucket();
        let read = Reply::read(&reply.body, self.checks.len(), lone_bucket);
        read.ok_or_else(|| malformed(reply))
    }

    const fn replay(&self, now: Timestamp) -> Replay<'a> {
        Replay { verb: self.verb, checks: self.checks, limits: self.limits, now }
    }

    /// Whether there is one check, of a bucket without soft limit.
    fn is_lone_bucket(&self) -> bool {
        let [limit] = self.limits else { return false };
        limit.algorithm().bucket_terms().is_some() && limit.soft().is_none()
    }

    /// Verifies that the script and Rust agree on whether the request is charged.
    fn agree(&self, decided: (Decisions, bool), charged: bool) -> Result<Decisions, StoreError> {
        let (decisions, charges) = decided;
        if charges == charged || self.is_lone_bucket() {
            return Ok(decisions);
        }
        Err(protocol_error("the script's decision does not follow from its states"))
    }

    /// Settles the reported states at this instant.
    fn settle(&self, raws: &[&[u8]], now: Timestamp) -> Vec<SettledState> {
        let mut settled: Vec<SettledState> = Vec::new();
        for (index, (raw, limit)) in raws.iter().zip(self.limits).enumerate() {
            let key = self.checks[index].key;
            let is_duplicate = self.checks[..index].iter().any(|other| other.key == key);
            if raw.is_empty() || is_duplicate || is_list(limit) {
                continue;
            }
            let mut state = decode_state(raw);
            limit.settle(&mut state, now);
            let new = SettledState::new(index, raw, &state, now);
            if new.becomes != new.was {
                settled.push(new);
            }
        }
        settled
    }

    /// Decides in Rust, and swaps in the new states if the keys are unchanged; `None` if another process wrote.
    async fn swap(
        &self,
        raws: &[&[u8]],
        replay: &Replay<'a>,
    ) -> Result<Option<Decisions>, StoreError> {
        if self.limits.iter().any(|limit| is_list(limit)) {
            return Err(protocol_error(
                "a request has two limits of different shape on one key, and a sliding log or a \
                 concurrency limit; give each limit its own counter",
            ));
        }
        let states = replay.states(raws).ok_or_else(|| protocol_error("a state is missing"))?;
        let ((decisions, _), after) = replay.judge(states);
        let swapped = self.swapped_states(raws, &after, replay.now);
        let reply = self.send(ScriptVerb::Swap, replay.now, &swapped).await?;
        match self.read(&reply)? {
            Reply::Decided { .. } => Ok(Some(decisions)),
            Reply::Failed(words) => Err(script_error(&words)),
            Reply::Stale(_) | Reply::Conflicting(_) => Ok(None),
        }
    }

    fn swapped_states(&self, raws: &[&[u8]], after: &States, now: Timestamp) -> Vec<SettledState> {
        let outcome = |(key, state): (&Fingerprint, &State)| {
            let index = self.checks.iter().position(|check| check.key.fingerprint == *key)?;
            Some(SettledState::new(index, raws.get(index)?, state, now))
        };
        after.iter().filter_map(outcome).collect()
    }
}

/// The server's clock when the script ran.
fn clock(reply: &ScriptReply) -> Timestamp {
    Timestamp::from_nanos(reply.server_micros.saturating_mul(MICRO))
}

fn written_meanwhile() -> StoreError {
    protocol_error(format!(
        "other processes wrote to the same key {ROUNDS_MAX} times while its state was adapted to a changed limit"
    ))
}

fn malformed(reply: &ScriptReply) -> StoreError {
    protocol_error(format!("the script's reply of {} bytes is malformed", reply.body.len()))
}
