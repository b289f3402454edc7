//! One script call or command to send, and where its reply goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Arg, Cmd, Value};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::figures::Counters;
use super::job_group::Membership;
use super::now;
use crate::cluster_slots::slot_of;
use crate::error::{FailureKind, LinkError, unavailable};
use crate::script::{ScriptCall, ScriptReply};

/// Keeps instants far from overflow.
const WITHIN_MAX: Duration = Duration::from_secs(3_600);

pub(super) type ReplySender<T> = oneshot::Sender<Result<T, LinkError>>;

/// The jobs of one caller: one script call, or several commands.
pub(super) type JobBatch = SmallVec<[Job; 1]>;

/// One script call or command to send.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) payload: Payload,
    pub(super) deadline: Deadline,
    /// How often the server refused to run it and it was sent again.
    pub(super) resends: u8,
    /// Whether `ASKING` precedes it: the node takes it although another one owns the slot.
    pub(super) asking: bool,
    /// The group that it was sent with, if any.
    pub(super) membership: Option<Membership>,
}

#[derive(Debug)]
pub(super) enum Payload {
    Script {
        call: ScriptCall,
        /// None if the caller does not wait; the call is sent nevertheless.
        reply: Option<ReplySender<ScriptReply>>,
    },
    Command {
        command: Cmd,
        index: usize,
        replies: Arc<Mutex<CommandReplies>>,
    },
}

/// When a job fails, and how long its caller was willing to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    within: Duration,
}

/// Collects the replies to the commands of one caller.
#[derive(Debug)]
pub(super) struct CommandReplies {
    values: Vec<Value>,
    missing: usize,
    sender: Option<ReplySender<Vec<Value>>>,
}

impl Deadline {
    pub(super) fn after(within: Duration) -> Self {
        let within = within.min(WITHIN_MAX);
        Deadline { at: now() + within, within }
    }

    /// When the caller began to wait.
    pub(super) fn began(&self) -> Instant {
        self.at.checked_sub(self.within).unwrap_or(self.at)
    }
}

impl Job {
    /// One job for each command, in order; they answer as one.
    pub(super) fn commands(
        commands: Vec<Cmd>,
        sender: ReplySender<Vec<Value>>,
        deadline: Deadline,
    ) -> JobBatch {
        let missing = commands.len();
        let values = vec![Value::Nil; missing];
        let replies = CommandReplies { values, missing, sender: Some(sender) };
        let replies = Arc::new(Mutex::new(replies));
        let job = |(index, command)| {
            let replies = Arc::clone(&replies);
            Job::new(Payload::Command { command, index, replies }, deadline)
        };
        commands.into_iter().enumerate().map(job).collect()
    }

    pub(super) fn new(payload: Payload, deadline: Deadline) -> Self {
        Job { payload, deadline, resends: 0, asking: false, membership: None }
    }

    /// Whether the job is to be sent: its caller waits, or never meant to.
    pub(super) fn is_wanted(&self) -> bool {
        match &self.payload {
            Payload::Script { reply, .. } => reply.as_ref().is_none_or(|reply| !reply.is_closed()),
            Payload::Command { replies, .. } => {
                replies.lock().sender.as_ref().is_some_and(|sender| !sender.is_closed())
            }
        }
    }

    /// About how many bytes it adds to a pipeline.
    pub(super) fn bytes(&self) -> usize {
        match &self.payload {
            Payload::Script { call, .. } => {
                call.body.len() + call.keys.iter().map(|key| key.len()).sum::<usize>()
            }
            Payload::Command { command, .. } => command
                .args_iter()
                .map(|arg| if let Arg::Simple(bytes) = arg { bytes.len() } else { 0 })
                .sum(),
        }
    }

    /// The cluster slot of its first key; slot 0 without a key.
    pub(super) fn slot(&self) -> u16 {
        match &self.payload {
            Payload::Script { call, .. } => call.keys.first().map_or(0, |key| slot_of(key)),
            Payload::Command { command, .. } => first_key(command).map_or(0, slot_of),
        }
    }

    /// Answers the caller with an error.
    pub(super) fn fail(self, error: &LinkError, counters: &Counters) {
        let heard = match self.payload {
            Payload::Script { reply, .. } => {
                reply.is_none_or(|reply| reply.send(Err(error.clone())).is_ok())
            }
            Payload::Command { replies, .. } => {
                let sender = replies.lock().sender.take();
                sender.is_some_and(|sender| sender.send(Err(error.clone())).is_ok())
            }
        };
        if heard {
            counters.failed(error.kind());
        }
    }

    /// Answers the caller that its deadline has passed. The server may run the call.
    pub(super) fn expire(self, counters: &Counters) {
        let waited = self.deadline.within;
        self.fail(&LinkError::Timeout { waited }, counters);
    }

    /// Answers the caller that its deadline has passed before the call was sent: it certainly did not run.
    pub(super) fn expire_unsent(self, counters: &Counters) {
        let reason = format!("the call could not be sent within {:?}", self.deadline.within);
        self.fail(&unavailable(FailureKind::Timeout, reason), counters);
    }

    /// Whether a caller waits for the reply.
    pub(super) fn has_caller(&self) -> bool {
        !matches!(&self.payload, Payload::Script { reply: None, .. })
    }
}

impl CommandReplies {
    /// Stores one reply; sends all of them to the caller once none is missing.
    pub(super) fn put(&mut self, index: usize, value: Value) {
        if let Some(slot) = self.values.get_mut(index) {
            *slot = value;
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0
            && let Some(sender) = self.sender.take()
        {
            // An error means that the caller's future was dropped.
            let _ = sender.send(Ok(std::mem::take(&mut self.values)));
        }
    }
}

/// The first key of a command: its first argument, or the first after the key count of a script.
fn first_key(command: &Cmd) -> Option<&[u8]> {
    let mut args = command.args_iter().filter_map(|arg| match arg {
        Arg::Simple(bytes) => Some(bytes),
        _ => None,
    });
    let name = args.next()?;
    let is_script = [&b"EVAL"[..], b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO"]
        .iter()
        .any(|script| name.eq_ignore_ascii_case(script));
    args.nth(if is_script { 2 } else { 0 })
}

#[cfg(test)]
mod tests {
    use redis::cmd;

    use super::*;

    #[test]
    fn a_commands_first_key_follows_its_name_or_its_script() {
        let mut get = cmd("GET");
        get.arg("a").arg("b");
        assert_eq!(first_key(&get), Some(&b"a"[..]));
        let mut eval = cmd("evalsha");
        eval.arg("sha").arg(1).arg("key").arg("x");
        assert_eq!(first_key(&eval), Some(&b"key"[..]));
        assert_eq!(first_key(&cmd("PING")), None);
    }

    #[test]
    fn commands_answer_together_and_in_order() {
        let (sender, mut received) = oneshot::channel();
        let mut replies =
            CommandReplies { values: vec![Value::Nil; 2], missing: 2, sender: Some(sender) };
        replies.put(1, Value::Int(1));
        assert!(received.try_recv().is_err());
        replies.put(0, Value::Int(0));
        assert_eq!(received.try_recv().unwrap(), Ok(vec![Value::Int(0), Value::Int(1)]));
    }
}
