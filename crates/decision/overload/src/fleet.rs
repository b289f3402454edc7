//! The fleet usage shedder: a part of the fleet's capacity is reserved for critical requests.
//!
//! One counter for all requests of the fleet would be a bottleneck. So nodes hold *grants* under a
//! short lease and renew them on a fixed beat, whatever the load. A [`Board`] divides the pool; it
//! is pure, and a script in a shared store does the same. [`FleetShedder`] is the node's side and
//! decides without a call to the board. [`FleetBoard`] connects the two.
//!
//! When the board does not answer, the node keeps its last grant until the lease ends, and then
//! uses a share that is safe whatever the other nodes do.
//!
//! The board on Redis is in `tidegate-redis-board`; [`run_beats`](crate::run_beats) sends the
//! beats.

mod board;
mod fair_share;
mod node;

use std::future::Future;

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Nanos};
use tidegate_macros::defaults;

pub use board::{Board, NODES_MAX};
pub use fair_share::fair_shares;
pub use node::{Credit, FleetShedder, FleetView};

defaults! {
    /// How the fleet is shared; the same on all nodes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FleetSettings {
        /// The part of the capacity that only critical requests may use, in percent.
        pub reserved_percent: u64 = 20,
        /// How long a grant is valid without renewal.
        pub lease: Nanos = Nanos::from_secs(2),
        /// How often a node renews.
        pub beat: Nanos = Nanos::from_millis(200),
        /// What a node may want above the demand that it reports, in percent.
        pub headroom_percent: u64 = 10,
        /// The largest growth of a grant in a second, in percent of the node's share.
        pub growth_percent: u64 = 25,
    }
}

impl FleetSettings {
    /// The part of a capacity for requests that are not critical.
    pub fn pool(&self, capacity: u64) -> u64 {
        portion(capacity, 100u64.saturating_sub(self.reserved_percent), 100)
    }
}

/// A node's report to the board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The node. A restarted node has another number.
    pub node: u64,
    /// Its limit on requests in flight.
    pub capacity: u64,
    /// Its requests in flight, without critical ones.
    pub in_flight: u64,
    /// What it could have used since the last beat: the most requests in flight, and the refused.
    pub demand: u64,
    /// Below how many in flight it admits at present.
    pub held: u64,
}

/// The board's answer to a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The part of the pool that is set aside for the node.
    pub grant: u64,
    /// Below how many in flight the node may admit. Less than the grant while more requests than
    /// its part are still in flight.
    pub admit_below: u64,
    /// The pool that the fleet shares.
    pub pool: u64,
    /// The capacity of all live nodes.
    pub fleet_capacity: u64,
    /// What the live nodes use of the pool, by their last reports.
    pub fleet_used: u64,
}

/// Why there is no grant. The node keeps what it has.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// There are [`NODES_MAX`] other nodes.
    #[error("the board holds {NODES_MAX} nodes already")]
    Full,
    /// The board did not answer.
    #[error("the board did not answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A board that nodes report to.
pub trait FleetBoard {
    /// Reports and renews the grant.
    fn beat(&self, report: Report) -> impl Future<Output = Result<Grant, BoardError>> + Send;
}

impl<B: FleetBoard + Send + Sync> FleetBoard for std::sync::Arc<B> {
    fn beat(&self, report: Report) -> impl Future<Output = Result<Grant, BoardError>> + Send {
        (**self).beat(report)
    }
}

/// A board for nodes in one process: tests, and services with several gates.
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

/// `number × part ÷ whole`, rounded down, without overflow; zero when the whole is zero.
pub(crate) fn portion(number: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(number) * u128::from(part);
    product.checked_div(u128::from(whole)).map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX))
}
