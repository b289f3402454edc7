//! What leaves together: calls of the script, each with its parcels, and single commands.
//!
//! On one server all parcels of a shipment share one call, and with it one
//! reading of the clock. In a cluster the keys of a call have to lie in one
//! slot, so there is a call for each tag, and all are sent in one write.

use std::time::Instant;

use redis::{Cmd, Pipeline, Value, cmd};
use tidegate_algorithms::Timestamp;

use super::job::{Job, Load};
use super::meter::Meter;
use crate::redis::failure;
use crate::redis::parcel::Receipt;

/// The words of a command that are neither keys nor bodies, in bytes.
const CALL_BYTES: usize = 96;

/// The script, and the name that a server knows it by once it was loaded there.
#[derive(Clone, Copy)]
pub(super) struct Script<'a> {
    pub(super) text: &'a str,
    pub(super) hash: &'a str,
}

/// Whether parcels of several slots may share a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    All,
    SameTag,
}

/// Calls that were sent in one write.
pub(super) struct Shipment {
    pub(super) number: u64,
    pub(super) sent: Instant,
    pub(super) calls: Vec<Call>,
}

impl Shipment {
    /// How many jobs it began with: those whose time is over count too.
    pub(super) fn jobs(&self) -> usize {
        self.calls.iter().map(|call| call.jobs.len()).sum()
    }
}

/// One command on its way. Jobs whose time is over are taken out, and leave a gap.
pub(super) struct Call {
    kind: CallKind,
    /// Where its answer is among those of the shipment.
    at: usize,
    pub(super) jobs: Vec<Option<Job>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    Script,
    Single,
}

/// What a call's answer means for its jobs.
pub(super) enum Settled {
    /// All jobs have their answers; perhaps with an error of the server for one of them.
    Done { error: Option<redis::ServerError> },
    /// The server answered with an error, and these jobs have no answer yet.
    Refused { error: redis::ServerError, jobs: Vec<Job> },
}

/// Makes one write of all jobs. `reload` loads the script first.
pub(super) fn pack(
    mut jobs: Vec<Job>,
    script: Script<'_>,
    sharing: Sharing,
    reload: bool,
    instant: &[u8],
) -> (Pipeline, Vec<Call>) {
    let mut commands = Pipeline::with_capacity(2);
    if reload {
        commands.add_command(load_command(script.text));
    }
    if sharing == Sharing::SameTag {
        // Stable, so that single commands stay in their order.
        jobs.sort_by_key(|job| match &job.load {
            Load::Parcel { parcel, .. } => Some((parcel.tag, job.asking)),
            Load::Command { .. } => None,
        });
    }
    let mut calls: Vec<Call> = Vec::new();
    let mut share: Vec<Job> = Vec::new();
    let close = |share: &mut Vec<Job>, commands: &mut Pipeline, calls: &mut Vec<Call>| {
        if share.is_empty() {
            return;
        }
        if share.iter().any(|job| job.asking) {
            commands.add_command(cmd("ASKING"));
        }
        let at = commands.len();
        commands.add_command(script_command(script.hash, instant, share));
        let jobs = share.drain(..).map(Some).collect();
        calls.push(Call { kind: CallKind::Script, at, jobs });
    };
    for mut job in jobs {
        if let Load::Command { command, .. } = &mut job.load {
            if job.asking {
                commands.add_command(cmd("ASKING"));
            }
            let at = commands.len();
            commands.add_command(command.clone());
            calls.push(Call { kind: CallKind::Single, at, jobs: vec![Some(job)] });
            continue;
        }
        if sharing == Sharing::SameTag && share.last().is_some_and(|last| !same_call(last, &job)) {
            close(&mut share, &mut commands, &mut calls);
        }
        share.push(job);
    }
    close(&mut share, &mut commands, &mut calls);
    (commands, calls)
}

pub(super) fn load_command(text: &str) -> Cmd {
    let mut command = cmd("SCRIPT");
    command.arg("LOAD").arg(text);
    command
}

fn same_call(one: &Job, other: &Job) -> bool {
    match (&one.load, &other.load) {
        (Load::Parcel { parcel: a, .. }, Load::Parcel { parcel: b, .. }) => {
            a.tag == b.tag && one.asking == other.asking
        }
        _ => false,
    }
}

fn script_command(hash: &str, instant: &[u8], jobs: &[Job]) -> Cmd {
    let parcels = || {
        jobs.iter().filter_map(|job| match &job.load {
            Load::Parcel { parcel, .. } => Some(parcel),
            Load::Command { .. } => None,
        })
    };
    let keys: usize = parcels().map(|parcel| parcel.keys.len()).sum();
    let bytes: usize = jobs.iter().map(Job::bytes).sum();
    let mut command = Cmd::with_capacity(4 + keys + jobs.len(), CALL_BYTES + bytes);
    command.arg("EVALSHA").arg(hash).arg(keys);
    for key in parcels().flat_map(|parcel| &parcel.keys) {
        command.arg(key.as_slice());
    }
    command.arg(instant);
    for parcel in parcels() {
        command.arg(parcel.body.as_slice());
    }
    command
}

impl Shipment {
    /// Jobs that still wait for this shipment's answers.
    pub(super) fn into_jobs(self) -> impl Iterator<Item = Job> {
        self.calls.into_iter().flat_map(|call| call.jobs).flatten()
    }
}

impl Call {
    pub(super) fn take_answer(&self, answers: &mut [Value]) -> Value {
        answers.get_mut(self.at).map_or(Value::Nil, |answer| std::mem::replace(answer, Value::Nil))
    }

    /// Whether it runs the script.
    pub(super) fn is_script(&self) -> bool {
        self.kind == CallKind::Script
    }

    /// Gives each job its part of the answer.
    pub(super) fn settle(self, answer: Value, meter: &Meter) -> Settled {
        match (self.kind, answer) {
            (_, Value::ServerError(error)) => {
                Settled::Refused { error, jobs: self.jobs.into_iter().flatten().collect() }
            }
            (CallKind::Single, value) => {
                for job in self.jobs.into_iter().flatten() {
                    if let Load::Command { at, gathered, .. } = job.load {
                        gathered.borrow_mut().put(at, value.clone());
                    }
                }
                Settled::Done { error: None }
            }
            (CallKind::Script, Value::Array(parts)) => {
                Settled::Done { error: self.hand_out(parts, meter) }
            }
            (CallKind::Script, _) => Settled::Done { error: self.hand_out(Vec::new(), meter) },
        }
    }

    /// The parts are seconds, microseconds, and one answer for each parcel.
    fn hand_out(self, parts: Vec<Value>, meter: &Meter) -> Option<redis::ServerError> {
        let mut met = None;
        let mut parts = parts.into_iter();
        let now = match (parts.next(), parts.next()) {
            (Some(seconds), Some(micros)) => timestamp(&seconds, &micros),
            _ => None,
        };
        for job in self.jobs {
            let part = parts.next();
            let Some(job) = job else { continue };
            match (now, part) {
                (Some(now), Some(Value::BulkString(body))) => deliver(job, Receipt { now, body }),
                (_, Some(Value::ServerError(error))) => {
                    job.fail(&failure::of_answer(&error), meter);
                    met = Some(error);
                }
                _ => job.fail(&failure::of_garbage(), meter),
            }
        }
        met
    }
}

fn deliver(job: Job, receipt: Receipt) {
    if let Load::Parcel { answer, .. } = job.load {
        // Who went away does not wait for it.
        let _ = answer.send(Ok(receipt));
    }
}

fn timestamp(seconds: &Value, micros: &Value) -> Option<Timestamp> {
    let nanos = number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?;
    nanos.checked_mul(1_000).map(Timestamp::from_nanos)
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
