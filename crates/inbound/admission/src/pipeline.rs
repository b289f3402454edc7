//! The caller's own limits: pass, wait for a turn, wait in line, queue, or refuse.
//!
//! A request waits in two ways. Over a limit with `when_over: delay` it waits in line: it has been charged nothing, and
//! is decided again when it is in front. A leaky bucket admits it for later: it has been charged, and waits for its
//! turn. Both waits are bounded. A request that disconnects leaves its position in the line, or its turn, to the next
//! request, and is refunded.
//!
//! `when_over: queue` is the door's business: the pipeline returns [`Admission::WaitInLine`] in the mode
//! [`WaitMode::Queue`], and the gateway stores the request.

use std::sync::Arc;
use std::time::Duration;

use tidegate_answers::{Fields, HeaderSet, HeadersOn, Notice, Refusal};
use tidegate_engine::{Clock, CounterStore, Nanos, Permit, Retry, Verb, Verdict};
use tokio::time::Instant;

use crate::description::RequestDescription;
use crate::domain_engine::DomainEngine;
use crate::line::{DelaySettings, LineKey, Lines, WaitMode};
use crate::refund::Refund;
use crate::slots::{HeldSlots, HoldTime};
use crate::turns::{NoTurn, PendingTurn, TurnBounds, Turns};

/// When to retry if a line is full that would let others pass.
const FULL_LINE_WAIT: Nanos = Nanos::from_secs(1);

/// The requests that wait, shared by all requests of a door.
#[derive(Clone, Debug, Default)]
pub struct WaitingRoom {
    /// Requests over a limit that delays or queues.
    pub lines: Arc<Lines>,
    /// Requests that a leaky bucket admitted for later.
    pub turns: Arc<Turns>,
}

impl WaitingRoom {
    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.lines.waiting().saturating_add(self.turns.waiting())
    }
}

/// What a request that may pass takes along.
#[derive(Debug, Default)]
pub struct Grant {
    /// The slots that it holds.
    pub slots: Option<HeldSlots>,
    /// The fields of its response.
    pub fields: Fields,
    /// The turn that it has to wait for.
    pub turn: Option<Box<PendingTurn>>,
    /// Whether its limits could not be checked, and the failure mode admits.
    pub is_undecided: bool,
    /// What it gets back if it is shed.
    pub refund: Refund,
}

impl Grant {
    /// The grant of a request that no limit applies to.
    pub fn unlimited() -> Self {
        Grant::default()
    }

    /// Waits for the turn, if there is one.
    pub async fn wait_for_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.refund = turn.wait().await;
        }
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Admission {
    /// It may pass, now or at its turn.
    Pass(Grant),
    /// It has to wait in line, or in the queue.
    WaitInLine(Box<LineWait>),
    /// It is refused.
    Refused(Refusal),
}

/// A request that has to wait in line.
#[derive(Debug)]
pub struct LineWait {
    /// The line.
    pub line: LineKey,
    /// Whether the client waits, or the request is queued.
    pub mode: WaitMode,
    /// When to try again, and the refusal if that is too late. [`None`] if it joins others and was not decided yet.
    pub(crate) refused: Option<(Duration, Refusal)>,
}

/// Who waits for a request, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Patience<W> {
    /// Who waits.
    pub waiter: Waiter,
    /// Computes the longest wait: few requests need it.
    pub wait_max: W,
    /// Since when; [`None`] if the request has just arrived.
    pub since: Option<Instant>,
}

impl<W: Fn() -> Duration> Patience<W> {
    /// How long the request may still wait.
    fn remaining(&self) -> Duration {
        let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        (self.wait_max)().saturating_sub(waited)
    }
}

/// Who waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// No one: it passes before its turn, and is refused instead of waiting in line.
    Nobody,
    /// Its client. The door has no queue, so `when_over: queue` refuses.
    Client,
    /// Its client, unless the request is queued.
    ClientOrQueue,
    /// The request is in the queue, and its client has been answered.
    Queue,
}

impl Waiter {
    /// Whether the door takes over a request that waits in this mode, and queues it.
    fn leaves_to_queue(self, mode: WaitMode) -> bool {
        self == Waiter::ClientOrQueue && mode == WaitMode::Queue
    }
}

/// Decides requests by the limits of a domain. Borrowed for one request.
#[derive(Debug)]
pub struct Pipeline<'p, S, C> {
    /// The engine and the domain.
    pub limits: DomainEngine<'p, S, C>,
    /// Where requests wait.
    pub room: &'p WaitingRoom,
    /// How many wait, and for how long.
    pub delay: &'p DelaySettings,
    /// The fields of responses.
    pub headers: &'p HeaderSet,
    /// Which responses have them.
    pub headers_on: HeadersOn,
    /// Predicts when a slot is free; [`None`] says a second.
    pub hold_time: Option<&'p HoldTime>,
    /// Whether a later step may shed the request, so that it needs a refund.
    pub refunds: bool,
}

impl<S: CounterStore, C: Clock> Pipeline<'_, S, C> {
    /// Decides on the calling thread; [`None`] if the store has to be awaited.
    #[inline]
    pub fn decide_now(
        &self,
        description: &RequestDescription,
        patience: Patience<impl Fn() -> Duration + Copy>,
    ) -> Option<Admission> {
        // A request that came later must not take what others wait for.
        if patience.waiter != Waiter::Nobody
            && let Some((line, mode)) = self.room.lines.ahead_of(description)
        {
            let wait = LineWait { line, mode, refused: None };
            return Some(Admission::WaitInLine(Box::new(wait)));
        }
        let (verdict, permit) = self.limits.admit_now(description)?;
        Some(self.conclude(verdict, permit, description, patience))
    }

    /// Waits until the request may pass or is refused: for the store, if `decided` is [`None`], and in line. Returns
    /// [`Admission::WaitInLine`] for a request that is to be queued.
    pub async fn decide(
        &self,
        decided: Option<Admission>,
        description: &RequestDescription,
        patience: Patience<impl Fn() -> Duration + Copy>,
    ) -> Admission {
        let admission = match decided {
            Some(admission) => admission,
            None => self.ask_store(description, patience).await,
        };
        match admission {
            Admission::WaitInLine(wait) if !patience.waiter.leaves_to_queue(wait.mode) => {
                match self.wait_in_line(*wait, description, patience).await {
                    Ok(grant) => Admission::Pass(grant),
                    Err(refusal) => Admission::Refused(refusal),
                }
            }
            admission => admission,
        }
    }

    /// Waits in line until the limits admit the request, but no longer than it may.
    ///
    /// # Errors
    /// The refusal, if they do not.
    pub async fn wait_in_line(
        &self,
        wait: LineWait,
        description: &RequestDescription,
        patience: Patience<impl Fn() -> Duration + Copy>,
    ) -> Result<Grant, Refusal> {
        let for_turns = self.room.turns.waiting();
        let waiting_max = self.delay.waiting_max.saturating_sub(for_turns);
        let bounds = DelaySettings { waiting_max, wait_max: patience.remaining(), ..*self.delay };
        let ask = || self.ask_store(description, patience);
        match self.room.lines.wait(wait, &bounds, ask).await {
            Ok(grant) => Ok(grant),
            Err(Some(refusal)) => Err(refusal),
            Err(None) => Err(self.refuse_unasked(description).await),
        }
    }

    /// The refusal of a request that cannot wait.
    pub async fn give_up(&self, wait: LineWait, description: &RequestDescription) -> Refusal {
        match wait.refused {
            Some((_, refusal)) => refusal,
            None => self.refuse_unasked(description).await,
        }
    }

    async fn ask_store(
        &self,
        description: &RequestDescription,
        patience: Patience<impl Fn() -> Duration + Copy>,
    ) -> Admission {
        let (verdict, permit) = self.limits.admit(description).await;
        self.conclude(verdict, permit, description, patience)
    }

    /// What a verdict means for the request.
    fn conclude(
        &self,
        mut verdict: Verdict,
        permit: Permit<S, C>,
        description: &RequestDescription,
        patience: Patience<impl Fn() -> Duration + Copy>,
    ) -> Admission {
        if !verdict.is_admitted() {
            return self.wait_or_refuse(&verdict, description, patience.waiter);
        }
        let fields = match self.headers_on {
            HeadersOn::Always => self.headers.fields_of(&verdict, || self.now()),
            HeadersOn::Refusal => Fields::default(),
        };
        let is_undecided = verdict.undecided().is_some();
        if verdict.delay() == Nanos::ZERO || patience.waiter == Waiter::Nobody {
            let refund = match self.refunds {
                true => Refund::of(&verdict, description, self.limits),
                false => Refund::NOTHING,
            };
            let slots = HeldSlots::of(permit);
            return Admission::Pass(Grant { slots, fields, turn: None, is_undecided, refund });
        }
        match self.take_turn(&verdict, description, patience) {
            Ok(turn) => {
                let (slots, turn) = (HeldSlots::of(permit), Some(Box::new(turn)));
                let refund = Refund::NOTHING;
                Admission::Pass(Grant { slots, fields, turn, is_undecided, refund })
            }
            Err(NoTurn(retry)) => {
                drop(permit);
                self.limits.turn_away(description, &mut verdict, retry.into());
                // Only the queue is left: a wait in line for the same bucket would be longer.
                match self.wait_or_refuse(&verdict, description, patience.waiter) {
                    Admission::WaitInLine(wait) if !patience.waiter.leaves_to_queue(wait.mode) => {
                        match wait.refused {
                            Some((_, refusal)) => Admission::Refused(refusal),
                            None => Admission::WaitInLine(wait),
                        }
                    }
                    admission => admission,
                }
            }
        }
    }

    /// A wait in line if the limits that refused allow it, or else the refusal.
    fn wait_or_refuse(
        &self,
        verdict: &Verdict,
        description: &RequestDescription,
        waiter: Waiter,
    ) -> Admission {
        let notice = Notice::of(verdict);
        let refusal = self.refusal(&notice);
        let mode = WaitMode::of(&notice).filter(|mode| match waiter {
            Waiter::Nobody => false,
            Waiter::Client => *mode == WaitMode::Delay,
            Waiter::ClientOrQueue | Waiter::Queue => true,
        });
        let (Some(mode), Retry::After(after)) = (mode, notice.retry()) else {
            return Admission::Refused(refusal);
        };
        let descriptor = notice.tightest().map_or(0, |policy| policy.descriptor());
        let line = self.room.lines.key(description, descriptor);
        let refused = Some((after.into(), refusal));
        Admission::WaitInLine(Box::new(LineWait { line, mode, refused }))
    }

    /// Takes the turn that a leaky bucket assigned, if it is near enough.
    fn take_turn(
        &self,
        verdict: &Verdict,
        description: &RequestDescription,
        patience: Patience<impl Fn() -> Duration + Copy>,
    ) -> Result<PendingTurn, NoTurn> {
        let mode = match patience.waiter {
            Waiter::Queue => WaitMode::Queue,
            Waiter::Nobody | Waiter::Client | Waiter::ClientOrQueue => WaitMode::Delay,
        };
        let bounds =
            TurnBounds::new(mode, patience.remaining(), self.delay, self.room.lines.waiting());
        self.room.turns.take(description, verdict, self.limits, bounds)
    }

    /// The refusal of a request that was never decided, because there was no room in the line.
    async fn refuse_unasked(&self, description: &RequestDescription) -> Refusal {
        let mut verdict = self.limits.apply(Verb::Peek, description).await;
        if verdict.is_admitted() {
            // It would pass by now, but others are ahead.
            verdict.refuse_to_wait(FULL_LINE_WAIT);
        }
        let mut refusal = self.refusal(&Notice::of(&verdict));
        if refusal.retry == Retry::Now {
            refusal.retry = Retry::After(FULL_LINE_WAIT);
        }
        refusal
    }

    fn refusal(&self, notice: &Notice<'_>) -> Refusal {
        let is_concurrency = notice.tightest().is_some_and(|policy| policy.is_concurrency());
        let hold_time = self.hold_time.filter(|_| is_concurrency);
        let slot_wait = hold_time.map(HoldTime::estimate);
        Refusal::of_limits(notice, self.headers, slot_wait, self.now())
    }

    fn now(&self) -> tidegate_engine::Timestamp {
        self.limits.engine.clock().now()
    }
}
