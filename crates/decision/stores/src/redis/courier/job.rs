//! One thing to send, and whom to tell the answer.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use redis::{Arg, Cmd, Value};
use tokio::sync::oneshot;

use super::meter::Meter;
use crate::counter_store::StoreError;
use crate::redis::link::slots::slot_of;
use crate::redis::parcel::{Parcel, Receipt};

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What a caller hands to the thread.
#[derive(Debug)]
pub(super) enum Note {
    Parcel {
        parcel: Parcel,
        until: Instant,
        within: Duration,
        answer: Reply<Receipt>,
    },
    Commands {
        commands: Vec<Cmd>,
        until: Instant,
        within: Duration,
        answer: Reply<Vec<Value>>,
    },
    /// A parcel that nobody waits for and that is to go all the same.
    Posted {
        parcel: Parcel,
        until: Instant,
        within: Duration,
    },
}

/// One thing to send.
pub(super) struct Job {
    pub(super) load: Load,
    pub(super) until: Instant,
    within: Duration,
    /// Stands in for a caller that does not wait.
    _posted: Option<oneshot::Receiver<Result<Receipt, StoreError>>>,
    /// How often it was sent and not run.
    pub(super) hops: u8,
    /// Whether the node has to be told that it is sent there although the slot is elsewhere.
    pub(super) asking: bool,
}

pub(super) enum Load {
    Parcel { parcel: Parcel, answer: Reply<Receipt> },
    Command { command: Cmd, at: usize, gathered: Rc<RefCell<Gathered>> },
}

/// The answers to the commands of one caller, until all are there.
pub(super) struct Gathered {
    answers: Vec<Value>,
    missing: usize,
    answer: Option<Reply<Vec<Value>>>,
}

impl Note {
    /// The things to send, in order.
    pub(super) fn open(self, mut take: impl FnMut(Job)) {
        match self {
            Note::Parcel { parcel, until, within, answer } => {
                take(Job::new(Load::Parcel { parcel, answer }, until, within));
            }
            Note::Posted { parcel, until, within } => {
                let (answer, answered) = oneshot::channel();
                let job = Job::new(Load::Parcel { parcel, answer }, until, within);
                take(Job { _posted: Some(answered), ..job });
            }
            Note::Commands { commands, until, within, answer } => {
                let missing = commands.len();
                let answers = vec![Value::Nil; missing];
                let gathered = Gathered { answers, missing, answer: Some(answer) };
                let gathered = Rc::new(RefCell::new(gathered));
                for (at, command) in commands.into_iter().enumerate() {
                    let gathered = Rc::clone(&gathered);
                    take(Job::new(Load::Command { command, at, gathered }, until, within));
                }
            }
        }
    }
}

impl Job {
    fn new(load: Load, until: Instant, within: Duration) -> Self {
        Job { load, until, within, _posted: None, hops: 0, asking: false }
    }

    /// Whether anybody still waits for the answer.
    pub(super) fn is_wanted(&self) -> bool {
        match &self.load {
            Load::Parcel { answer, .. } => !answer.is_closed(),
            Load::Command { gathered, .. } => {
                gathered.borrow().answer.as_ref().is_some_and(|answer| !answer.is_closed())
            }
        }
    }

    /// About how many bytes it adds to a call.
    pub(super) fn bytes(&self) -> usize {
        match &self.load {
            Load::Parcel { parcel, .. } => {
                parcel.body.len() + parcel.keys.iter().map(|key| key.len()).sum::<usize>()
            }
            Load::Command { command, .. } => command
                .args_iter()
                .map(|arg| if let Arg::Simple(bytes) = arg { bytes.len() } else { 0 })
                .sum(),
        }
    }

    /// The slot that a cluster keeps it in; any will do for what has no key.
    pub(super) fn slot(&self) -> u16 {
        match &self.load {
            Load::Parcel { parcel, .. } => parcel.keys.first().map_or(0, |key| slot_of(key)),
            Load::Command { command, .. } => first_key(command).map_or(0, slot_of),
        }
    }

    /// Tells the caller that it failed.
    pub(super) fn fail(self, error: &StoreError, meter: &Meter) {
        match self.load {
            Load::Parcel { answer, .. } => {
                if answer.send(Err(error.clone())).is_ok() {
                    meter.failed(error.kind());
                }
            }
            Load::Command { gathered, .. } => {
                let answer = gathered.borrow_mut().answer.take();
                if answer.is_some_and(|answer| answer.send(Err(error.clone())).is_ok()) {
                    meter.failed(error.kind());
                }
            }
        }
    }

    /// Tells the caller that the time is over.
    pub(super) fn expire(self, meter: &Meter) {
        let waited = self.within;
        self.fail(&StoreError::Timeout { waited }, meter);
    }
}

impl Gathered {
    pub(super) fn put(&mut self, at: usize, value: Value) {
        if let Some(place) = self.answers.get_mut(at) {
            *place = value;
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0
            && let Some(answer) = self.answer.take()
        {
            // Who went away does not wait for it.
            let _ = answer.send(Ok(std::mem::take(&mut self.answers)));
        }
    }
}

/// The first key of a command: behind its name, or behind the count of keys of a script.
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
    fn a_commands_first_key_is_behind_its_name_or_its_script() {
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
        let (answer, mut answered) = oneshot::channel();
        let mut gathered =
            Gathered { answers: vec![Value::Nil; 2], missing: 2, answer: Some(answer) };
        gathered.put(1, Value::Int(1));
        assert!(answered.try_recv().is_err());
        gathered.put(0, Value::Int(0));
        assert_eq!(answered.try_recv().unwrap(), Ok(vec![Value::Int(0), Value::Int(1)]));
    }
}
