//! Callers of one target wait in line for their turn.
//!
//! One caller at a time computes when it may leave; the others wait in order behind it. So there is one timer for each
//! target, a wake-up wakes one caller, and a caller that is dropped leaves the line.

use parking_lot::Mutex;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_response_fields::ResponseFields;
use tokio::sync::{Mutex as QueueMutex, Notify};
use tokio::time::{sleep, timeout};

use crate::slices::{SliceAnswer, SliceError, SliceExchange, SliceSource, SliceState};
use crate::target::{AnswerKind, Step, TargetState};

/// Timers round to a millisecond: this much later is never early.
const TIMER_MARGIN: Nanos = Nanos::from_millis(1);

/// A target with its line of callers.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    state: Mutex<TargetState>,
    line: QueueMutex<()>,
    slice: QueueMutex<SliceState>,
    /// An answer arrived: what is left, or in flight, may have changed.
    answered: Notify,
}

/// A call without a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoTurn {
    /// When there may be one.
    pub(crate) after: Nanos,
}

impl Target {
    pub(crate) fn new(name: String, now: Timestamp) -> Self {
        Target {
            name,
            state: Mutex::new(TargetState::new(now)),
            line: QueueMutex::new(()),
            slice: QueueMutex::default(),
            answered: Notify::new(),
        }
    }

    /// Waits until a call may leave, and counts it.
    pub(crate) async fn wait_turn(
        &self,
        is_first_attempt: bool,
        wait_max: Nanos,
        now: impl Fn() -> Timestamp,
    ) -> Result<CallInFlight<'_>, NoTurn> {
        let started = now();
        let _first_in_line = match self.line.try_lock() {
            Ok(first) => first,
            Err(_) => timeout(wait_max.into(), self.line.lock())
                .await
                .map_err(|_| NoTurn { after: self.state.lock().held_for(now()) })?,
        };
        loop {
            let answered = self.answered.notified();
            let at = now();
            let left = Nanos::new(wait_max.get().saturating_sub(at.since(started).get()));
            let step = self.state.lock().plan(at, left);
            match step {
                Step::Send => {
                    let sequence = self.state.lock().count_send(is_first_attempt, at);
                    return Ok(CallInFlight { target: self, sequence, is_open: true });
                }
                Step::Wait(wait) => {
                    let wait = Nanos::new(wait.get().saturating_add(TIMER_MARGIN.get()));
                    // The end of the wait and an answer both lead to another look.
                    let _ = timeout(wait.into(), answered).await;
                }
                Step::WaitForAnswer => {
                    if timeout(left.into(), answered).await.is_err() {
                        return Err(NoTurn { after: Nanos::ZERO });
                    }
                }
                Step::Held(after) => return Err(NoTurn { after }),
            }
        }
    }

    /// Waits until a unit of the target's limit can be spent. Callers take turns, so that one of them asks for units.
    /// Returns whether a unit was spent: there is none while the source does not answer.
    pub(crate) async fn spend_unit(
        &self,
        source: &dyn SliceSource,
        wait_max: Nanos,
        now: impl Fn() -> Timestamp,
    ) -> Result<bool, NoTurn> {
        let started = now();
        let mut slice = timeout(wait_max.into(), self.slice.lock())
            .await
            .map_err(|_| NoTurn { after: Nanos::ZERO })?;
        loop {
            let asked = now();
            if slice.spend(asked) {
                return Ok(true);
            }
            let wait = slice.wait(asked);
            if wait > Nanos::ZERO {
                let left = wait_max.get().saturating_sub(asked.since(started).get());
                if wait.get() > left {
                    return Err(NoTurn { after: wait });
                }
                self.pause(wait).await;
            }
            let asked = now();
            let Some(exchange) = slice.exchange(&self.name, asked) else { return Ok(false) };
            match source.exchange(exchange).await {
                Ok(SliceAnswer::Taken { slice: token, units, life }) => {
                    slice.keep(token, units, life, asked);
                }
                Ok(SliceAnswer::Refused { retry_after }) => slice.refuse(retry_after, now()),
                Err(SliceError(_)) => {
                    slice.fail(now());
                    return Ok(false);
                }
            }
        }
    }

    /// What to give back of the target's slice.
    pub(crate) async fn unspent(&self, now: Timestamp) -> Option<SliceExchange> {
        self.slice.lock().await.give_back(&self.name, now)
    }

    pub(crate) fn drops(&self, now: Timestamp, random: u64) -> bool {
        self.state.lock().drops(now, random)
    }

    pub(crate) fn spend_retry(&self, stated: bool, now: Timestamp) -> bool {
        self.state.lock().spend_retry(stated, now)
    }

    pub(crate) fn used_at(&self) -> Timestamp {
        self.state.lock().used_at()
    }

    /// Waits before a retry. The turn comes after it, so that other calls are not held up.
    pub(crate) async fn pause(&self, pause: Nanos) {
        sleep(Nanos::new(pause.get().saturating_add(TIMER_MARGIN.get())).into()).await;
    }
}

/// A call that has left. Dropping it means that its caller went away.
#[derive(Debug)]
#[must_use = "record its answer"]
pub(crate) struct CallInFlight<'a> {
    target: &'a Target,
    sequence: u64,
    is_open: bool,
}

impl CallInFlight<'_> {
    /// Applies the answer. Returns how long the target is closed now.
    pub(crate) fn record(
        mut self,
        kind: AnswerKind,
        fields: &ResponseFields,
        now: Timestamp,
        random: u64,
    ) -> Nanos {
        self.is_open = false;
        let mut state = self.target.state.lock();
        state.record_answer(self.sequence, kind, fields, now, random);
        let held = state.held_for(now);
        drop(state);
        self.target.answered.notify_waiters();
        held
    }
}

impl Drop for CallInFlight<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.target.state.lock().record_cancellation();
            self.target.answered.notify_waiters();
        }
    }
}
