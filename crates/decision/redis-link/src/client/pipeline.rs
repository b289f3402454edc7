//! The commands of one write: `EVALSHA` with the script calls of many jobs, and single commands.
//!
//! On one server all script calls of a pipeline share one `EVALSHA`, and with it one reading of the clock. In a cluster
//! the keys of one `EVALSHA` must lie in one slot, so there is one for each tag, all in the same write.

use std::time::Instant;

use redis::{Cmd, Pipeline, Value, cmd};

use super::figures::Counters;
use super::job::{Job, Payload};
use super::job_group::Membership;
use crate::error;
use crate::script::ScriptReply;

/// Bytes of a command that are neither keys nor bodies.
const COMMAND_BYTES: usize = 96;

/// The script, and its hash on a server where it was loaded.
#[derive(Clone, Copy)]
pub(super) struct Script<'a> {
    pub(super) text: &'a str,
    pub(super) hash: &'a str,
}

/// Whether script calls of several slots may share an `EVALSHA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandSharing {
    All,
    SameTag,
}

/// Commands that were sent in one write, and have no replies yet.
pub(super) struct PipelineInFlight {
    pub(super) number: u64,
    pub(super) sent: Instant,
    pub(super) commands: Vec<CommandInFlight>,
}

impl PipelineInFlight {
    /// The jobs that it was sent with, including those that expired since.
    pub(super) fn jobs(&self) -> usize {
        self.commands.iter().map(|command| command.jobs.len()).sum()
    }
}

/// One command in flight. Jobs that expire are taken out, and leave a gap.
pub(super) struct CommandInFlight {
    kind: CommandKind,
    /// The index of its reply among those of the pipeline.
    reply_index: usize,
    pub(super) jobs: Vec<Option<Job>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandKind {
    Script,
    Single,
}

/// What a reply means for the jobs of its command.
pub(super) enum ReplyOutcome {
    /// All jobs are answered; `error` is a server error that one of them got.
    Delivered { error: Option<redis::ServerError> },
    /// The server replied with an error, and these jobs are not answered yet.
    Rejected { error: redis::ServerError, jobs: Vec<Job> },
}

/// Builds one pipeline of all jobs: single commands in their order, then the script calls. `reload` loads the script
/// first.
pub(super) fn build(
    jobs: Vec<Job>,
    script: Script<'_>,
    sharing: CommandSharing,
    reload: bool,
    instant: &[u8],
) -> (Pipeline, Vec<CommandInFlight>) {
    let mut pipeline = Pipeline::with_capacity(2);
    if reload {
        pipeline.add_command(load_command(script.text));
    }
    let mut commands: Vec<CommandInFlight> = Vec::new();
    let mut add = |command: Cmd, kind: CommandKind, jobs: Vec<Job>| {
        if jobs.iter().any(|job| job.asking) {
            pipeline.add_command(cmd("ASKING"));
        }
        let (reply_index, jobs) = (pipeline.len(), jobs.into_iter().map(Some).collect());
        pipeline.add_command(command);
        commands.push(CommandInFlight { kind, reply_index, jobs });
    };
    let mut calls: Vec<Job> = Vec::with_capacity(jobs.len());
    for job in jobs {
        match &job.payload {
            Payload::Script { .. } => calls.push(job),
            Payload::Command { command, .. } => {
                add(command.clone(), CommandKind::Single, vec![job]);
            }
        }
    }
    if sharing == CommandSharing::SameTag {
        calls.sort_by_key(shared_key);
    }
    while let Some(first) = calls.first().map(shared_key) {
        let others = match sharing {
            CommandSharing::All => None,
            CommandSharing::SameTag => calls.iter().position(|job| shared_key(job) != first),
        };
        let rest = calls.split_off(others.unwrap_or(calls.len()));
        let shared = std::mem::replace(&mut calls, rest);
        add(script_command(script.hash, instant, &shared), CommandKind::Script, shared);
    }
    (pipeline, commands)
}

/// The tag of a script call, and whether `ASKING` precedes it: in a cluster, calls with equal ones may share an
/// `EVALSHA`.
fn shared_key(job: &Job) -> Option<(u16, bool)> {
    match &job.payload {
        Payload::Script { call, .. } => Some((call.tag, job.asking)),
        Payload::Command { .. } => None,
    }
}

pub(super) fn load_command(text: &str) -> Cmd {
    let mut command = cmd("SCRIPT");
    command.arg("LOAD").arg(text);
    command
}

fn script_command(hash: &str, instant: &[u8], jobs: &[Job]) -> Cmd {
    let calls = || {
        jobs.iter().filter_map(|job| match &job.payload {
            Payload::Script { call, .. } => Some(call),
            Payload::Command { .. } => None,
        })
    };
    let keys: usize = calls().map(|call| call.keys.len()).sum();
    let bytes: usize = jobs.iter().map(Job::bytes).sum();
    let mut command = Cmd::with_capacity(4 + keys + jobs.len(), COMMAND_BYTES + bytes);
    command.arg("EVALSHA").arg(hash).arg(keys);
    for key in calls().flat_map(|call| &call.keys) {
        command.arg(key.as_slice());
    }
    command.arg(instant);
    for call in calls() {
        command.arg(call.body.as_slice());
    }
    command
}

impl PipelineInFlight {
    /// Jobs that still wait for a reply.
    pub(super) fn into_jobs(self) -> impl Iterator<Item = Job> {
        self.commands.into_iter().flat_map(|command| command.jobs).flatten()
    }
}

impl CommandInFlight {
    pub(super) fn take_reply(&self, replies: &mut [Value]) -> Value {
        let reply = replies.get_mut(self.reply_index);
        reply.map_or(Value::Nil, |reply| std::mem::replace(reply, Value::Nil))
    }

    /// Whether it runs the script.
    pub(super) fn is_script(&self) -> bool {
        self.kind == CommandKind::Script
    }

    /// Gives each job its part of the reply.
    pub(super) fn deliver(self, reply: Value, counters: &Counters) -> ReplyOutcome {
        match (self.kind, reply) {
            (_, Value::ServerError(error)) => {
                ReplyOutcome::Rejected { error, jobs: self.jobs.into_iter().flatten().collect() }
            }
            (CommandKind::Single, value) => {
                for job in self.jobs.into_iter().flatten() {
                    if let Payload::Command { index, replies, .. } = job.payload {
                        replies.lock().put(index, value.clone());
                    }
                }
                ReplyOutcome::Delivered { error: None }
            }
            (CommandKind::Script, Value::Array(parts)) => {
                ReplyOutcome::Delivered { error: self.distribute(parts, counters) }
            }
            (CommandKind::Script, _) => {
                ReplyOutcome::Delivered { error: self.distribute(Vec::new(), counters) }
            }
        }
    }

    /// The parts are seconds, microseconds, and one string for each script call.
    fn distribute(self, parts: Vec<Value>, counters: &Counters) -> Option<redis::ServerError> {
        let mut last_error = None;
        let mut parts = parts.into_iter();
        let clock = match (parts.next(), parts.next()) {
            (Some(seconds), Some(micros)) => clock_micros(&seconds, &micros),
            _ => None,
        };
        let mut group: Option<Membership> = None;
        for job in self.jobs {
            let part = parts.next();
            let Some(job) = job else { continue };
            match (clock, part) {
                (Some(server_micros), Some(Value::BulkString(body))) => {
                    let answered = reply_to(job, ScriptReply { server_micros, body });
                    // The jobs of a group are neighbours, so it is notified once.
                    if let (Some(group), Some(next)) = (&group, &answered)
                        && !group.is_same(next)
                    {
                        group.deliver();
                    }
                    group = answered.or(group);
                }
                (_, Some(Value::ServerError(error))) => {
                    job.fail(&error::of_server(&error), counters);
                    last_error = Some(error);
                }
                _ => job.fail(&error::not_redis(), counters),
            }
        }
        group.as_ref().into_iter().for_each(Membership::deliver);
        last_error
    }
}

/// Answers a job. The callers of a group have their replies once it is notified.
fn reply_to(job: Job, script_reply: ScriptReply) -> Option<Membership> {
    let Payload::Script { reply: Some(caller), .. } = job.payload else { return None };
    match &job.membership {
        Some(membership) => membership.put_reply(caller, script_reply),
        None => {
            // An error means that the caller's future was dropped.
            let _ = caller.send(Ok(script_reply));
        }
    }
    job.membership
}

fn clock_micros(seconds: &Value, micros: &Value) -> Option<u64> {
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
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
