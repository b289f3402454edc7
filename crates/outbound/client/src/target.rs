//! Everything known of one target, and when its next call may leave. Pure: time and chance come from the caller.

use compact_str::CompactString;
use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_response_fields::{POLICIES_MAX, PolicyUnit, ResponseFields};

use crate::in_flight::InFlightLimit;
use crate::retry::{RetryBudget, spread};
use crate::schedule::PolicySchedule;
use crate::share::ShareSearch;
use crate::throttle::CallThrottle;

/// The most by which the end of a hold is spread among processes that were refused together.
const HOLD_SPREAD: Nanos = Nanos::from_secs(1);

/// How an answer is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// The service did the work, or rejected it for its own reasons.
    Served,
    /// A quota is used up: 429, or gRPC status 8.
    Refused,
    /// The service is short of capacity: 503, or gRPC status 14.
    Short,
    /// The service failed: 502, 504, 408, or a call whose answer was lost.
    Failed,
}

/// What the next call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Leave now.
    Send,
    /// Wait this long, or until an answer arrives, and look again.
    Wait(Nanos),
    /// Wait for an answer: too many calls are in flight.
    WaitForAnswer,
    /// Give up: the target is closed for longer than the caller waits.
    Held(Nanos),
}

/// The state of one target.
#[derive(Clone, Debug)]
pub struct TargetState {
    schedules: SmallVec<[PolicySchedule; 2]>,
    share: ShareSearch,
    in_flight: InFlightLimit,
    throttle: CallThrottle,
    budget: RetryBudget,
    /// The target is closed until then.
    held_until: Timestamp,
    /// The number of the call that left last.
    last_sent: u64,
    /// When it was used last, for the map of targets.
    used_at: Timestamp,
}

impl TargetState {
    /// A target of which nothing is known.
    pub fn new(now: Timestamp) -> Self {
        TargetState {
            schedules: SmallVec::new(),
            share: ShareSearch::new(now),
            in_flight: InFlightLimit::default(),
            throttle: CallThrottle::new(),
            budget: RetryBudget::new(now),
            held_until: Timestamp::EPOCH,
            last_sent: 0,
            used_at: now,
        }
    }

    /// Decides about the next call. `wait_max` is the longest wait that its caller accepts.
    pub fn plan(&mut self, now: Timestamp, wait_max: Nanos) -> Step {
        self.used_at = now;
        let held = self.held_until.since(now);
        let last_sent = self.last_sent;
        let wait = self
            .schedules
            .iter_mut()
            .map(|schedule| schedule.wait(last_sent, now))
            .fold(held.max(self.share.wait(now)), Nanos::max);
        if wait > wait_max {
            return Step::Held(wait);
        }
        if wait > Nanos::ZERO {
            return Step::Wait(wait);
        }
        if self.in_flight.has_room() { Step::Send } else { Step::WaitForAnswer }
    }

    /// Whether a call is dropped before it waits, because the target is short of capacity.
    pub fn drops(&mut self, now: Timestamp, random: u64) -> bool {
        self.throttle.drops(now, random)
    }

    /// Counts a call that leaves now. Returns its number, for its answer.
    pub fn count_send(&mut self, is_first_attempt: bool, now: Timestamp) -> u64 {
        self.last_sent += 1;
        for schedule in &mut self.schedules {
            schedule.count_send(self.last_sent, now);
        }
        self.share.count_send(now);
        self.in_flight.count_send();
        if is_first_attempt {
            self.budget.count_call();
        }
        self.last_sent
    }

    /// Applies the answer to a call.
    pub fn record_answer(
        &mut self,
        sequence: u64,
        kind: AnswerKind,
        fields: &ResponseFields,
        now: Timestamp,
        random: u64,
    ) {
        let limited_in_flight = kind == AnswerKind::Refused && is_concurrency_refusal(fields);
        self.read_policies(sequence, fields, now);
        match kind {
            AnswerKind::Served => {
                self.share.count_accepted(now);
                self.in_flight.raise();
            }
            AnswerKind::Refused if limited_in_flight => self.in_flight.cut(),
            AnswerKind::Refused => self.share.cut(now),
            AnswerKind::Short | AnswerKind::Failed => {}
        }
        self.in_flight.count_answer();
        self.throttle.count(now, kind != AnswerKind::Short);
        // An end of a slot cannot be predicted: a limit of calls in flight closes nothing.
        if matches!(kind, AnswerKind::Refused | AnswerKind::Short) && !limited_in_flight {
            self.hold(fields, now, random);
        }
    }

    /// Forgets a call that got no answer because its caller went away.
    pub fn record_cancellation(&mut self) {
        self.in_flight.count_end();
    }

    /// Pays for a retry, if the budget has enough.
    pub fn spend_retry(&mut self, stated: bool, now: Timestamp) -> bool {
        self.budget.spend(stated, now)
    }

    /// How long the target is closed.
    pub fn held_for(&self, now: Timestamp) -> Nanos {
        self.held_until.since(now)
    }

    pub(crate) const fn used_at(&self) -> Timestamp {
        self.used_at
    }

    fn hold(&mut self, fields: &ResponseFields, now: Timestamp, random: u64) {
        if let Some(wait) = fields.wait {
            let jitter = spread(wait.min(HOLD_SPREAD), random);
            self.held_until = self.held_until.max(now.after(wait).after(jitter));
            self.share.skip_until(self.held_until);
            for schedule in &mut self.schedules {
                schedule.reopen(self.held_until);
            }
        }
    }

    fn read_policies(&mut self, sequence: u64, fields: &ResponseFields, now: Timestamp) {
        for reading in &fields.policies {
            match reading.unit {
                PolicyUnit::Requests => {}
                PolicyUnit::Concurrency => {
                    if let Some(quota) = reading.quota {
                        self.in_flight.state(quota);
                    }
                    continue;
                }
                PolicyUnit::Other => continue,
            }
            let known = self.schedules.iter_mut().find(|schedule| schedule.name == reading.name);
            if let Some(schedule) = known {
                schedule.apply(reading, sequence, self.last_sent, now);
            } else if let Some(schedule) = PolicySchedule::new(reading, sequence, now) {
                // A service that renames its quotas must not grow the list.
                if self.schedules.len() == POLICIES_MAX {
                    self.schedules.remove(0);
                }
                self.schedules.push(schedule);
            }
        }
        // An answer that names its quotas names all of them: others have gone.
        if fields
            .policies
            .iter()
            .any(|reading| reading.remaining.is_some() && reading.quota.is_some())
        {
            let names: SmallVec<[&CompactString; 4]> =
                fields.policies.iter().map(|reading| &reading.name).collect();
            self.schedules.retain(|schedule| names.contains(&&schedule.name));
        }
    }
}

/// Whether the refusal is of a limit of calls in flight: the only quota with nothing left is one.
fn is_concurrency_refusal(fields: &ResponseFields) -> bool {
    let mut exhausted =
        fields.policies.iter().filter(|reading| reading.remaining == Some(0)).peekable();
    exhausted.peek().is_some() && exhausted.all(|reading| reading.unit == PolicyUnit::Concurrency)
}

#[cfg(test)]
mod tests;
