//! The fleet usage shedder: of the whole fleet's capacity a part stays reserved for
//! critical requests.
//!
//! Counting every request in one place would make that place the bottleneck. So
//! nodes hold *grants* under a short lease, and renew them on a fixed beat: the same
//! work whatever the load. A [`Board`] divides the pool; it is pure, and a shared
//! store can run its twin. [`FleetShedder`] is the node's side and decides
//! without asking anybody. [`FleetBoard`] is what lies between them.
//!
//! Losing the board means going on with the last grant, then with the share that is
//! safe whatever the others do: never without a limit, never with none.
//!
//! Not here: the board on Redis, and who sends the beats.

mod board;
mod fair_share;
mod node;

use std::future::Future;

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Nanos};

pub use board::{Board, NODES_MAX};
pub use fair_share::fair_shares;
pub use node::{Credit, FleetShedder, FleetView};

/// How the fleet is shared. All nodes have to agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// The part of the capacity that only critical requests use, in percent.
    pub reserved_percent: u64,
    /// How long a grant holds without being renewed.
    pub lease: Nanos,
    /// How often a node renews.
    pub beat: Nanos,
    /// What a node is thought to want above what it reports, in percent.
    pub headroom_percent: u64,
    /// How much of its share a grant grows by in a second at most, in percent.
    pub growth_percent: u64,
}

impl Default for FleetSettings {
    fn default() -> Self {
        FleetSettings {
            reserved_percent: 20,
            lease: Nanos::from_secs(2),
            beat: Nanos::from_millis(200),
            headroom_percent: 10,
            growth_percent: 25,
        }
    }
}

impl FleetSettings {
    /// What of a capacity is for requests that are not critical.
    pub fn pool(&self, capacity: u64) -> u64 {
        let kept = 100u64.saturating_sub(self.reserved_percent);
        portion(capacity, kept, 100)
    }
}

/// What a node tells the board. Plain numbers, for any wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Who reports. A restarted node is another one.
    pub node: u64,
    /// How many requests it can work on at once.
    pub capacity: u64,
    /// Requests that are not critical and are being worked on.
    pub in_flight: u64,
    /// What it could have used since the last beat: the most at once and what was
    /// refused.
    pub demand: u64,
    /// By what it decides at present: below how many in flight it admits.
    pub held: u64,
}

/// What the board answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// What is set aside for the node.
    pub grant: u64,
    /// Below how many in flight the node may admit. Less than the grant while requests
    /// beyond the node's part are still running.
    pub admit_below: u64,
    /// The pool that the fleet shares.
    pub pool: u64,
    /// The capacity of all live nodes.
    pub fleet_capacity: u64,
    /// What the live nodes use of the pool, as they last said.
    pub fleet_used: u64,
}

/// Why there was no grant. The node goes on with what it has.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// There are more nodes than a board divides for.
    #[error("the board holds {NODES_MAX} nodes already")]
    Full,
    /// The board did not answer.
    #[error("the board did not answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Where nodes report to and get their grants from.
pub trait FleetBoard {
    /// Reports, and renews the grant.
    fn beat(&self, report: Report) -> impl Future<Output = Result<Grant, BoardError>> + Send;
}

impl<B: FleetBoard + Send + Sync> FleetBoard for std::sync::Arc<B> {
    fn beat(&self, report: Report) -> impl Future<Output = Result<Grant, BoardError>> + Send {
        (**self).beat(report)
    }
}

/// A board for nodes that live in one process: tests, and services with several
/// gates.
#[derive(Debug)]
pub struct SharedBoard<C> {
    board: Mutex<Board>,
    clock: C,
}

impl<C: Clock> SharedBoard<C> {
    /// An empty board.
    pub fn new(settings: FleetSettings, clock: C) -> Self {
        SharedBoard { board: Mutex::new(Board::new(settings, clock.now())), clock }
    }
}

impl<C: Clock> FleetBoard for SharedBoard<C> {
    async fn beat(&self, report: Report) -> Result<Grant, BoardError> {
        self.board.lock().beat(self.clock.now(), &report)
    }
}

/// `number × part ÷ whole`, rounded down, without overflow. A whole of nothing gives nothing.
pub(crate) fn portion(number: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(number) * u128::from(part);
    product.checked_div(u128::from(whole)).map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX))
}
