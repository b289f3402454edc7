//! All limiters of a node, in order.
//!
//! ```text
//! exempt? ─ kill switch, mode ─ worker shedder ─ deadline hopeless?      screen
//!     ─ the caller's own limits: rate, requests in flight                elsewhere
//!     ─ fleet grant ─ gate                                               enter
//! ```
//!
//! The cheapest check comes first, and the node's capacity before the caller's limits: a
//! request that cannot be served should not spend the caller's budget. Steps that hold
//! something come last, so that an earlier refusal has nothing to give back.
//!
//! A limiter that panics admits the request and is counted. Only the gate waits.

mod entry;
mod metrics;
mod pass;
mod switches;
mod view;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tidegate_algorithms::{CallerMode, Clock, Mode, ModeCell, Timestamp};

use crate::category::{Caller, Category, Level};
use crate::cause::Cause;
use crate::decisions::{Answer, DecisionCount, Decisions, LatencyCopies};
use crate::fleet::{FleetSettings, FleetShedder};
use crate::gate::{Gate, GateSettings};
use crate::mix::mix;
use crate::mode::{KillSwitch, Limiter};
use crate::probe::SchedulerProbe;
use crate::refusal::{Refusal, retry_after};
use crate::stalled_callers::StalledCallers;
use crate::utilization::Signals;
use crate::worker_shedder::{WorkerSettings, WorkerShedder};

pub use entry::{Entry, QueuedRequest};
pub use metrics::OVERLOAD_METRICS;
pub use pass::Pass;
pub use view::Gauges;

/// The settings of a node's protection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtectionSettings {
    /// The worker shedder.
    pub worker: WorkerSettings,
    /// The fleet shedder.
    pub fleet: FleetSettings,
    /// The gate.
    pub gate: GateSettings,
    /// The mode of the worker shedder.
    pub worker_mode: Mode,
    /// The mode of the fleet shedder.
    pub fleet_mode: Mode,
    /// The mode of the gate.
    pub gate_mode: Mode,
    /// Seeds the random part of `retry_after`.
    pub seed: u64,
}

impl ProtectionSettings {
    /// Everything enforced, for a node with `limit` requests in flight.
    pub fn new(limit: u64) -> Self {
        ProtectionSettings {
            worker: WorkerSettings::default(),
            fleet: FleetSettings::default(),
            gate: GateSettings::new(limit),
            worker_mode: Mode::ENFORCE,
            fleet_mode: Mode::ENFORCE,
            gate_mode: Mode::ENFORCE,
            seed: 0,
        }
    }
}

/// A new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Health checks, metrics, administration: never refused, never counted.
    Exempt,
    /// Everything else.
    Counted {
        /// How important it is.
        category: Category,
        /// The caller that sent it.
        caller: Caller,
        /// When the client stops waiting.
        deadline: Option<Timestamp>,
    },
}

/// A request that passed [`Protection::screen`]. Check the caller's own limits, then
/// [`Protection::enter`].
#[derive(Clone, Copy, Debug)]
#[must_use = "the request has not entered yet"]
pub struct ScreenedRequest(Option<Request>);

impl ScreenedRequest {
    /// The same request without its deadline.
    pub fn without_deadline(self) -> Self {
        ScreenedRequest(self.0.map(|request| Request { deadline: None, ..request }))
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    level: Level,
    caller: Caller,
    deadline: Option<Timestamp>,
}

/// The limiters that protect one node.
#[derive(Debug)]
pub struct Protection<C> {
    clock: C,
    seed: u64,
    node: Arc<Node<C>>,
    modes: [ModeCell; 3],
    kills: [KillSwitch; 3],
    kill_all: KillSwitch,
    probe: SchedulerProbe,
    decisions: Decisions,
    refusals: AtomicU64,
    demand: Mutex<view::Demand>,
}

/// The part that a [`Pass`] refers to.
#[derive(Debug)]
struct Node<C> {
    worker: Arc<WorkerShedder>,
    fleet: Arc<FleetShedder>,
    gate: Arc<Gate<C>>,
    stalled: StalledCallers,
    /// By the rank of the category.
    latencies: [LatencyCopies; 4],
}

impl<C: Clock + Clone> Protection<C> {
    /// The protection of one node. Its clock should never step: see
    /// [`SteadyClock`](crate::SteadyClock).
    pub fn new(settings: ProtectionSettings, clock: C) -> Self {
        let gate = Arc::new(Gate::new(settings.gate, clock.clone()));
        let modes = [settings.worker_mode, settings.fleet_mode, settings.gate_mode];
        let node = Node {
            worker: Arc::new(WorkerShedder::new(settings.worker)),
            fleet: Arc::new(FleetShedder::new(settings.fleet, gate.view().limit)),
            gate,
            stalled: StalledCallers::default(),
            latencies: Default::default(),
        };
        Protection {
            clock,
            seed: settings.seed,
            node: Arc::new(node),
            modes: modes.map(ModeCell::new),
            kills: Default::default(),
            kill_all: KillSwitch::default(),
            probe: SchedulerProbe::new(),
            decisions: Decisions::new(),
            refusals: AtomicU64::new(0),
            demand: Mutex::default(),
        }
    }
}

impl<C: Clock> Protection<C> {
    /// The checks before the caller's own limits: the worker shedder, and whether there is
    /// enough time before the deadline.
    pub fn screen(&self, arrival: Arrival) -> Result<ScreenedRequest, Refusal> {
        let Arrival::Counted { category, caller, deadline } = arrival else {
            return Ok(ScreenedRequest(None));
        };
        let screened = contain(|| self.screen_counted(category, caller, deadline));
        screened.unwrap_or_else(|| {
            let acting = CallerMode::Enforce;
            self.decisions.count(Limiter::Worker, acting, category, Answer::ErrorOpen);
            Ok(ScreenedRequest(None))
        })
    }

    /// One step of all loops, in constant time. Call it every
    /// [period](crate::ControlLaw::period) of the worker shedder's law.
    pub fn tick(&self) {
        let ticked = contain(|| {
            let now = self.clock.now();
            let window = self.node.gate.tick(now);
            let gate = self.node.gate.view();
            let signals = Signals::of_gate(&window, gate.limit, self.probe.median());
            let acting = if self.watched() { CallerMode::Shadow } else { CallerMode::Enforce };
            let worker = self.node.worker.tick(now, &signals, acting);
            self.node.gate.set_recovering(worker.recovers);
            if !self.is_active(Limiter::Worker, now) {
                self.node.worker.reset();
            }
            self.node.fleet.set_capacity(gate.limit);
            self.demand.lock().tick(now, &window, self.decisions.rejected());
        });
        if ticked.is_none() {
            self.node.worker.reset();
        }
    }

    /// The gate.
    pub fn gate(&self) -> &Arc<Gate<C>> {
        &self.node.gate
    }

    /// The worker shedder.
    pub fn worker(&self) -> &Arc<WorkerShedder> {
        &self.node.worker
    }

    /// The fleet shedder: reports to a board and receives its grants.
    pub fn fleet(&self) -> &Arc<FleetShedder> {
        &self.node.fleet
    }

    /// Measures the scheduling delay of the runtime.
    pub const fn probe(&self) -> &SchedulerProbe {
        &self.probe
    }

    /// The clock of all limiters.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Counts of all answers of all limiters.
    pub fn decisions(&self) -> Vec<DecisionCount> {
        self.decisions.read()
    }

    /// The next random number; the sequence follows from the seed.
    pub(crate) fn random(&self) -> u64 {
        mix(self.seed ^ mix(self.refusals.fetch_add(1, Relaxed)))
    }

    #[inline]
    fn screen_counted(
        &self,
        category: Category,
        caller: Caller,
        deadline: Option<Timestamp>,
    ) -> Result<ScreenedRequest, Refusal> {
        let now = self.clock.now();
        if self.kill_all.is_killed(now) {
            return Ok(ScreenedRequest(None));
        }
        let level = Level::of(category, caller, now);
        // Also counted while the shedder is off: it may be switched on.
        let sequence = self.node.worker.offer(level);
        let acting = self.acting(Limiter::Worker, now, caller);
        let refuses = acting.is_some() && !self.node.worker.judge(level, sequence);
        if self.decide(Limiter::Worker, acting, category, Some(refuses)) {
            return Err(self.refusal(Cause::ShedWorker, category));
        }
        let hopeless = self.node.gate.is_hopeless(now, deadline);
        if hopeless && self.acting(Limiter::Gate, now, caller) == Some(CallerMode::Enforce) {
            self.decisions.count(Limiter::Gate, CallerMode::Enforce, category, Answer::Reject);
            return Err(self.refusal(Cause::Deadline, category));
        }
        Ok(ScreenedRequest(Some(Request { level, caller, deadline })))
    }

    /// Counts the answer of a limiter and returns whether it refuses the request. `refuses` is
    /// `None` when the limiter panicked.
    #[inline]
    fn decide(
        &self,
        limiter: Limiter,
        acting: Option<CallerMode>,
        category: Category,
        refuses: Option<bool>,
    ) -> bool {
        let Some(acting) = acting else { return false };
        let answer = match (refuses, acting) {
            (None, _) => Answer::ErrorOpen,
            (Some(false), _) => Answer::Allow,
            (Some(true), CallerMode::Enforce) => Answer::Reject,
            (Some(true), CallerMode::Shadow) => Answer::WouldReject,
        };
        self.decisions.count(limiter, acting, category, answer);
        answer == Answer::Reject
    }

    #[cold]
    fn refusal(&self, cause: Cause, category: Category) -> Refusal {
        let admitted = self.node.worker.admitted();
        Refusal {
            cause,
            category,
            retry_after: retry_after(cause, category, admitted, self.random()),
            fleet_saturated: self.node.fleet.is_saturated(),
        }
    }
}

/// Runs a limiter. `None` when it panicked: a defect of a limiter must not fail a request.
#[inline]
fn contain<T>(limiter: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(limiter)).ok()
}

#[cfg(test)]
mod tests;
