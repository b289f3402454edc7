//! What keeps one node alive under overload: a hard gate in front, a slow loop that
//! decides who is refused, a share of the fleet kept for critical requests.
//!
//! Everything here answers "we are short", never "you are over your limit": that is the
//! engine's. Nothing knows HTTP or Redis. Every loop is a `tick(now)` that somebody
//! calls, every decision follows from state, clock and seed, so that a simulator
//! drives the production code in virtual time.
//!
//! | Module | Holds |
//! |---|---|
//! | `category` | who is shed first: [`Category`], [`Cohort`], [`Level`] |
//! | `cause` | why a request was refused: [`Cause`] |
//! | `control_law` | utilization → admitted fraction: [`ControlLaw`] |
//! | `offered`, `threshold` | admitted fraction → levels: [`Offered`], [`Threshold`] |
//! | `utilization`, `probe` | what is measured: [`Signals`], [`SchedulerProbe`] |
//! | `worker_shedder` | the slow loop: [`WorkerShedder`] |
//! | `gate` | the fast loop: [`GateState`] for simulators, [`Gate`] for tasks |
//! | `adaptive_limit` | a gate's limit that finds itself: [`AdaptiveLimit`] |
//! | `fleet` | a share of the fleet for critical requests: [`FleetShedder`], [`Board`] |
//! | `mode`, `decisions`, `refusal` | off, shadow or enforced; what was said; what clients are told |
//! | `histogram` | times in buckets: [`Histogram`] |
//! | `protection` | all of them in order: [`Protection`] |
//! | `run` | at the edge: who calls the loops on tokio |
//! | `steady_clock`, `tokio_clock` | clocks that nobody sets: one to run by, one for tests |
//!
//! A node is protected like this; `examples/protect.rs` shows it under ten times too much.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate_algorithms::{Clock, Timestamp};
//! use tidegate_overload::{
//!     Admission, Arrival, Caller, Category, Ending, Protection, ProtectionSettings, Screening,
//!     SteadyClock,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // A node that works on 64 requests at once. Spawn `run` to let its loops tick.
//! let clock = SteadyClock::starting_at(Timestamp::from_secs(1_800_000_000));
//! let protection = Arc::new(Protection::new(ProtectionSettings::new(64), clock));
//! tokio::spawn(tidegate_overload::run(Arc::clone(&protection)));
//!
//! let caller = Caller::named("tenant-7");
//! let arrival = Arrival::Counted { category: Category::Get, caller, deadline: None };
//! match protection.screen(arrival) {
//!     Screening::Refuse(refusal) => println!("503 {}", refusal.cause.code()),
//!     // Here the caller's own limits are asked: the engine's matter.
//!     Screening::GoOn(screened) => match protection.enter(screened).await {
//!         Admission::Refused(refusal) => println!("503 {}", refusal.cause.code()),
//!         Admission::Admitted(pass) => {
//!             println!("200");
//!             pass.finish(clock.now(), Ending::Succeeded);
//!         }
//!     },
//! }
//! # }
//! ```

mod histogram;
mod mix;
mod shards;

mod category;
mod cause;

mod control_law;
mod offered;
mod probe;
mod threshold;
mod utilization;
mod worker_shedder;

mod adaptive_limit;
mod gate;

mod fleet;

mod decisions;
mod mode;
mod protection;
mod refusal;
mod run;

mod steady_clock;
mod tokio_clock;

pub use adaptive_limit::{AdaptiveLimit, AdaptiveSettings, Seen};
pub use category::{COHORTS, Caller, Category, Cohort, LEVELS, Level};
pub use cause::Cause;
pub use control_law::{Change, ControlLaw, LawState};
pub use decisions::{Answer, DecisionCount, LATENCY_BUCKETS, Latency};
pub use fleet::{
    Board, BoardError, Credit, FleetBoard, FleetSettings, FleetShedder, FleetView, Grant,
    NODES_MAX, Report, SharedBoard, fair_shares,
};
pub use gate::{
    Anyway, Ending, Entrance, Event, Gate, GateCounts, GateSettings, GateState, GateView, Outcome,
    SLOTS_MAX, Slot, SlotId, Ticket, Turn, WAIT_BUCKETS, Waits, Window,
};
pub use histogram::Histogram;
pub use mode::Limiter;
pub use offered::{Memory, Offered};
pub use probe::SchedulerProbe;
pub use protection::{
    Admission, Arrival, Entering, Gauges, OVERLOAD_METRICS, Pass, Protection, ProtectionSettings,
    Screened, Screening, Waiting,
};
pub use refusal::{Refusal, retry_after};
pub use run::{run, run_beats};
pub use steady_clock::SteadyClock;
pub use threshold::Threshold;
pub use tokio_clock::TokioClock;
pub use utilization::{SignalSettings, Signals};
pub use worker_shedder::{WorkerSettings, WorkerShedder, WorkerView};

pub use tidegate_algorithms::{CallerMode, Mode, Percent};
