//! Overload protection for one node: a gate with a hard limit, a slow loop that sheds the
//! least important requests, and a share of the fleet reserved for critical requests.
//!
//! A refusal by this crate means "the service is short of capacity", never "you are over
//! your limit"; that is the engine's. The crate knows neither HTTP nor Redis. Every loop is
//! a `tick(now)`, and every decision follows from state, clock and seed, so that a simulator
//! can drive the production code in virtual time.
//!
//! | Module | Contents |
//! |---|---|
//! | `category` | the order of shedding: [`Category`], [`Cohort`], [`Level`] |
//! | `cause` | why a request was refused: [`Cause`] |
//! | `control_law` | utilization → admitted fraction: [`ControlLaw`] |
//! | `demand` | offered requests → how busy the node would be if it admitted them all |
//! | `offered`, `threshold` | admitted fraction → levels: [`OfferedLoad`], [`Threshold`] |
//! | `utilization`, `probe` | the measurements: [`Signals`], [`SchedulerProbe`] |
//! | `worker_shedder` | the slow loop: [`WorkerShedder`] |
//! | `gate` | the fast loop: [`GateState`] for simulators, [`Gate`] for tasks |
//! | `adaptive_limit` | a search for the gate's limit: [`AdaptiveLimit`] |
//! | `fleet` | a share of the fleet for critical requests: [`FleetShedder`], [`Board`] |
//! | `mode`, `decisions`, `refusal` | off, shadow or enforced; the decisions; the answers to refused clients |
//! | `histogram` | times in buckets: [`Histogram`] |
//! | `protection` | all limiters in order: [`Protection`], [`Entry`], [`Pass`] |
//! | `run` | the tasks that call the loops on tokio |
//! | `steady_clock`, `tokio_clock` | monotonic clocks: for production, for tests |
//!
//! How to protect a node; `examples/protect.rs` shows one at ten times its capacity.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate_algorithms::{Clock, Timestamp};
//! use tidegate_overload::{
//!     Arrival, Caller, Category, Completion, Protection, ProtectionSettings, SteadyClock,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // A node with 64 requests in flight at most. Spawn `run` to let its loops tick.
//! let clock = SteadyClock::starting_at(Timestamp::from_secs(1_800_000_000));
//! let protection = Arc::new(Protection::new(ProtectionSettings::new(64), clock));
//! tokio::spawn(tidegate_overload::run(Arc::clone(&protection)));
//!
//! let caller = Caller::named("tenant-7");
//! let arrival = Arrival::Counted { category: Category::Get, caller, deadline: None };
//! match protection.screen(arrival) {
//!     Err(refusal) => println!("503 {}", refusal.cause.as_str()),
//!     // Check the caller's own limits here: that is the engine's part.
//!     Ok(screened) => match protection.enter(screened).await {
//!         Err(refusal) => println!("503 {}", refusal.cause.as_str()),
//!         Ok(pass) => {
//!             println!("200");
//!             pass.finish(clock.now(), Completion::Succeeded);
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
mod demand;
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
mod stalled_callers;

mod steady_clock;
mod tokio_clock;

pub use adaptive_limit::{AdaptiveLimit, AdaptiveSettings, WindowSample};
pub use category::{COHORTS, Caller, Category, Cohort, LEVELS, Level};
pub use cause::Cause;
pub use control_law::{Change, ControlLaw, LawState};
pub use decisions::{Answer, DecisionCount, LATENCY_BUCKETS, Latency};
pub use fleet::{
    Board, BoardError, Credit, FleetBoard, FleetSettings, FleetShedder, FleetView, Grant,
    NODES_MAX, Report, SharedBoard, fair_shares,
};
pub use gate::{
    Completion, Event, ForcedEntry, Gate, GateCounts, GateSettings, GateState, GateView, SLOTS_MAX,
    Slot, SlotId, Ticket, Turn, WAIT_BUCKETS, Waits, Window,
};
pub use histogram::Histogram;
pub use mode::Limiter;
pub use offered::{OfferedLevels, OfferedLoad};
pub use probe::SchedulerProbe;
pub use protection::{
    Arrival, Entry, Gauges, OVERLOAD_METRICS, Pass, Protection, ProtectionSettings, QueuedRequest,
    ScreenedRequest,
};
pub use refusal::{Refusal, retry_after};
pub use run::{run, run_beats};
pub use steady_clock::SteadyClock;
pub use threshold::Threshold;
pub use tokio_clock::TokioClock;
pub use utilization::{SignalSettings, Signals};
pub use worker_shedder::{WorkerSettings, WorkerShedder, WorkerView};

pub use tidegate_algorithms::{CallerMode, Mode, Percent};
