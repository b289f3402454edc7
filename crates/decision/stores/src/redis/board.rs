//! The board of a fleet on Redis or Valkey: nodes report to it and hold their
//! grants under its leases.
//!
//! The script beside this file is the twin of `Board` in `tidegate-overload`, as the
//! other scripts are twins of the algorithms; the same reports at the same instants
//! get the same grants. One hash is one fleet, so a beat is one call to one slot of a
//! cluster. The server's clock decides when a lease is over, and the hash is gone
//! by itself when its last node is.
//!
//! The board has a connection of its own: beats are few, and must not queue behind
//! checks. Who sends the beats, and what a node does without them, is not here.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_overload::{BoardError, FleetBoard, FleetSettings, Grant, Report, SLOTS_MAX};

use super::codec::{Body, Reader, put};
use super::courier::{Courier, CourierFigures};
use super::failure::of_garbage;
use super::kept::MICRO;
use super::link::LinkState;
use super::parcel::{Parcel, Receipt, RedisKey};
use super::settings::{RedisSettings, RedisSettingsError};

const BEAT: &str = include_str!("board/beat.lua");

/// The most of anything that a node counts: as much as its gate holds.
const COUNT_MAX: u64 = SLOTS_MAX as u64;

/// The name is in every call.
const NAME_BYTES_MAX: usize = 128;

/// A lease is to be over soon after its holder died; and so instants stay below 2⁵³.
const LEASE_MAX: Nanos = Nanos::from_secs(3_600);

/// Divides a fleet's capacity on Redis or Valkey.
///
/// ```no_run
/// use std::hash::{BuildHasher, RandomState};
/// use std::sync::Arc;
///
/// use tidegate_algorithms::Timestamp;
/// use tidegate_overload::{Protection, ProtectionSettings, SteadyClock, run_beats};
/// use tidegate_stores::{RedisBoard, RedisSettings};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = ProtectionSettings::new(64);
/// let clock = SteadyClock::starting_at(Timestamp::from_secs(1_800_000_000));
/// let protection = Arc::new(Protection::new(settings, clock));
/// let servers = RedisSettings::parse("redis://10.0.0.7")?;
/// let board = RedisBoard::new(servers, "checkout", settings.fleet)?;
/// // Another node after each start: what the one before held is not this one's.
/// let node = RandomState::new().hash_one("node");
/// tokio::spawn(run_beats(protection, board, node));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisBoard {
    courier: Courier,
    key: RedisKey,
    settings: FleetSettings,
}

impl RedisBoard {
    /// The board of the fleet with this name, on the servers that the settings name.
    /// Connects by itself, now or when they can be reached. All nodes of a fleet have
    /// to have the same fleet settings.
    ///
    /// # Errors
    /// When the settings make no sense, a file that they name cannot be read, or the
    /// name is longer than 128 bytes.
    pub fn new(
        servers: RedisSettings,
        name: &str,
        settings: FleetSettings,
    ) -> Result<Self, RedisSettingsError> {
        servers.check()?;
        if name.len() > NAME_BYTES_MAX {
            let words = format!("the name of a fleet has at most {NAME_BYTES_MAX} bytes");
            return Err(RedisSettingsError(words));
        }
        let key = RedisKey::from_slice(format!("{}:fleet:{name}", servers.prefix).as_bytes());
        let courier = Courier::start(RedisSettings { connections: 1, ..servers }, BEAT)?;
        Ok(RedisBoard { courier, key, settings })
    }

    /// Waits until every server can be asked. Waits forever if none ever can.
    pub async fn connected(&self) {
        self.courier.connected().await;
    }

    /// How the connection is.
    pub fn state(&self) -> LinkState {
        self.courier.state()
    }

    /// What was asked so far.
    pub fn figures(&self) -> CourierFigures {
        self.courier.figures()
    }

    /// Divides from now on at this instant, to the microsecond, instead of by the
    /// server's clock. For tests.
    #[doc(hidden)]
    pub fn set_clock(&self, now: Timestamp) {
        self.courier.set_instant((now.as_nanos() / MICRO).to_string().as_bytes());
    }

    fn parcel(&self, report: &Report) -> Parcel {
        // All beats of a board go to one key, so any tag will do.
        let keys = SmallVec::from_iter([self.key.clone()]);
        Parcel { tag: 0, keys, body: body(&self.settings, report) }
    }
}

impl FleetBoard for RedisBoard {
    /// Waits for one beat at the most: the next one says more.
    async fn beat(&self, report: Report) -> Result<Grant, BoardError> {
        let within = Duration::from(self.settings.beat);
        let answer = self.courier.send(self.parcel(&report), within).await;
        let receipt = answer.map_err(|error| BoardError::Unreachable(Box::new(error)))?;
        read(&receipt)
    }
}

/// What the script reads. The first byte is the number of keys.
fn body(settings: &FleetSettings, report: &Report) -> Body {
    let mut body = Body::new();
    put(&mut body, 1, 1);
    put(&mut body, report.node, 8);
    for count in [report.capacity, report.in_flight, report.demand, report.held] {
        put(&mut body, count.min(COUNT_MAX), 4);
    }
    put(&mut body, settings.lease.min(LEASE_MAX).get().div_ceil(MICRO), 7);
    put(&mut body, 100_u64.saturating_sub(settings.reserved_percent), 1);
    put(&mut body, settings.headroom_percent, 4);
    put(&mut body, settings.growth_percent, 4);
    body
}

fn read(receipt: &Receipt) -> Result<Grant, BoardError> {
    match receipt.body.split_first() {
        Some((b'g', numbers)) => grant(Reader::new(numbers)),
        Some((b'f', [])) => return Err(BoardError::Full),
        _ => None,
    }
    .ok_or_else(|| BoardError::Unreachable(Box::new(of_garbage())))
}

fn grant(mut numbers: Reader<'_>) -> Option<Grant> {
    let grant = Grant {
        grant: numbers.number(4)?,
        admit_below: numbers.number(4)?,
        pool: numbers.number(7)?,
        fleet_capacity: numbers.number(7)?,
        fleet_used: numbers.number(7)?,
    };
    numbers.is_empty().then_some(grant)
}

#[cfg(test)]
mod tests;
