//! The whole of it, in order.
//!
//! ```text
//! exempt? ─ kill switch, mode ─ worker shedder ─ deadline hopeless?      screen
//!     ─ the caller's own limits: rate, requests in flight                elsewhere
//!     ─ fleet grant ─ gate                                               enter
//! ```
//!
//! The cheapest comes first, and what is short here before what the caller is
//! allowed: a request that cannot be served should not spend the caller's budget. What
//! holds something comes last, so that nothing has to be given back for those
//! refused before.
//!
//! A limiter that fails lets the request through and is counted. Nothing here waits
//! but the gate.

mod entering;
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
use crate::utilization::Signals;
use crate::worker_shedder::{WorkerSettings, WorkerShedder};

pub use entering::{Entering, Waiting};
pub use metrics::OVERLOAD_METRICS;
pub use pass::Pass;
pub use view::Gauges;

/// How the whole is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtectionSettings {
    /// The worker shedder.
    pub worker: WorkerSettings,
    /// The fleet shedder.
    pub fleet: FleetSettings,
    /// The gate.
    pub gate: GateSettings,
    /// What the worker shedder does.
    pub worker_mode: Mode,
    /// What the fleet shedder does.
    pub fleet_mode: Mode,
    /// What the gate does.
    pub gate_mode: Mode,
    /// Where the times to come back are drawn from.
    pub seed: u64,
}

impl ProtectionSettings {
    /// Everything enforced, for a node that works on `limit` requests at once.
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

/// A request that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Health checks, metrics, administration: never refused, never counted.
    Exempt,
    /// Everything else.
    Counted {
        /// What it is.
        category: Category,
        /// Who sent it.
        caller: Caller,
        /// When the client stops waiting.
        deadline: Option<Timestamp>,
    },
}

/// What [`Protection::screen`] came to.
#[derive(Debug)]
pub enum Screening {
    /// Ask the caller's own limits, then [`Protection::enter`].
    GoOn(Screened),
    /// Refused.
    Refuse(Refusal),
}

/// A request that may go on to the caller's own limits.
#[derive(Clone, Copy, Debug)]
#[must_use = "it is not in yet"]
pub struct Screened(Option<Request>);

impl Screened {
    /// The same request without a time by which it is too late: nobody waits for it any more.
    pub fn without_deadline(self) -> Self {
        Screened(self.0.map(|request| Request { deadline: None, ..request }))
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    level: Level,
    caller: Caller,
    deadline: Option<Timestamp>,
}

/// What [`Protection::enter`] came to.
#[derive(Debug)]
pub enum Admission<C: Clock> {
    /// Admitted, until the pass is dropped.
    Admitted(Pass<C>),
    /// Refused.
    Refused(Refusal),
}

/// All that protects one node.
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

/// What passes come back to.
#[derive(Debug)]
struct Node<C> {
    worker: Arc<WorkerShedder>,
    fleet: Arc<FleetShedder>,
    gate: Arc<Gate<C>>,
    /// By the rank of the category.
    latencies: [LatencyCopies; 4],
}

impl<C: Clock + Clone> Protection<C> {
    /// Protection for one node. Its clock should never step: see
    /// [`SteadyClock`](crate::SteadyClock).
    pub fn new(settings: ProtectionSettings, clock: C) -> Self {
        let gate = Arc::new(Gate::new(settings.gate, clock.clone()));
        let modes = [settings.worker_mode, settings.fleet_mode, settings.gate_mode];
        let node = Node {
            worker: Arc::new(WorkerShedder::new(settings.worker)),
            fleet: Arc::new(FleetShedder::new(settings.fleet, gate.view().limit)),
            gate,
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
    /// What can be said before the caller's own limits are asked: the worker shedder,
    /// and whether there is time enough.
    pub fn screen(&self, arrival: Arrival) -> Screening {
        let Arrival::Counted { category, caller, deadline } = arrival else {
            return Screening::GoOn(Screened(None));
        };
        let screened = contain(|| self.screen_counted(category, caller, deadline));
        screened.unwrap_or_else(|| {
            let acting = CallerMode::Enforce;
            self.decisions.count(Limiter::Worker, acting, category, Answer::ErrorOpen);
            Screening::GoOn(Screened(None))
        })
    }

    /// One step of all loops. Constant work; call it every
    /// [period](crate::ControlLaw::period) of the worker shedder's law.
    pub fn tick(&self) {
        let ticked = contain(|| {
            let now = self.clock.now();
            let window = self.node.gate.tick(now);
            let gate = self.node.gate.view();
            let signals = Signals {
                in_flight: window.in_flight,
                queued: window.queued,
                limit: gate.limit,
                queue_wait: window.queue_wait,
                service_time: window.service_time,
                scheduler_delay: self.probe.median(),
            };
            let acting = if self.watched() { CallerMode::Shadow } else { CallerMode::Enforce };
            self.node.worker.tick(now, &signals, acting);
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

    /// The fleet shedder: reports for a board, and takes its grants.
    pub fn fleet(&self) -> &Arc<FleetShedder> {
        &self.node.fleet
    }

    /// Takes readings of the runtime's delay.
    pub const fn probe(&self) -> &SchedulerProbe {
        &self.probe
    }

    /// The clock by which everything here is judged.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// How often each limiter said what.
    pub fn decisions(&self) -> Vec<DecisionCount> {
        self.decisions.read()
    }

    /// A number from the seed; the same ones in the same order for the same seed.
    pub(crate) fn draw(&self) -> u64 {
        mix(self.seed ^ mix(self.refusals.fetch_add(1, Relaxed)))
    }

    #[inline]
    fn screen_counted(
        &self,
        category: Category,
        caller: Caller,
        deadline: Option<Timestamp>,
    ) -> Screening {
        let now = self.clock.now();
        if self.kill_all.is_killed(now) {
            return Screening::GoOn(Screened(None));
        }
        let level = Level::of(category, caller, now);
        // Counted also when the shedder is off: it may be switched on.
        let sequence = self.node.worker.offer(level);
        let acting = self.acting(Limiter::Worker, now, caller);
        let refuses = acting.is_some() && !self.node.worker.judge(level, sequence);
        if self.decide(Limiter::Worker, acting, category, Some(refuses)) {
            return Screening::Refuse(self.refusal(Cause::ShedWorker, category));
        }
        let hopeless = self.node.gate.is_hopeless(now, deadline);
        if hopeless && self.acting(Limiter::Gate, now, caller) == Some(CallerMode::Enforce) {
            self.decisions.count(Limiter::Gate, CallerMode::Enforce, category, Answer::Reject);
            return Screening::Refuse(self.refusal(Cause::Deadline, category));
        }
        Screening::GoOn(Screened(Some(Request { level, caller, deadline })))
    }

    /// Counts what a limiter said and says whether the request is refused. `None` is a
    /// limiter that failed.
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
            retry_after: retry_after(cause, category, admitted, self.draw()),
            fleet_saturated: self.node.fleet.is_saturated(),
        }
    }
}

/// Runs a limiter. `None` when it panicked: a fault in here must not become the fault of a
/// request.
#[inline]
fn contain<T>(limiter: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(limiter)).ok()
}

#[cfg(test)]
mod tests;
