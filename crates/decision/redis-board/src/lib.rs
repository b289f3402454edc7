//! The board of a fleet on Redis or Valkey: nodes report their demand to it and receive grants under a lease.
//!
//! The Lua script in `beat.lua` implements the same division as `Board` in `tidegate-overload`: equal reports at equal
//! instants get equal grants. One hash holds one fleet, so a beat is one script call to one cluster slot. Leases expire
//! by the server's clock, and the hash expires with its last lease.
//!
//! The board has its own connection, so that beats do not queue behind checks. `tidegate-overload` sends the beats, and
//! decides what a node does without them.
//!
//! [`NodeRoster`] is beside it: descriptions of the nodes, for pages that show the whole fleet.
//!
//! ```no_run
//! use std::hash::{BuildHasher, RandomState};
//! use std::sync::Arc;
//!
//! use tidegate_algorithms::Timestamp;
//! use tidegate_overload::{Protection, ProtectionSettings, SteadyClock, run_beats};
//! use tidegate_redis_board::RedisBoard;
//! use tidegate_redis_link::RedisSettings;
//!
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = ProtectionSettings::new(64);
//! let clock = SteadyClock::starting_at(Timestamp::from_secs(1_800_000_000));
//! let protection = Arc::new(Protection::new(settings, clock));
//! let servers = RedisSettings::parse("redis://10.0.0.7")?;
//! let board = RedisBoard::new(servers, "checkout", settings.fleet)?;
//! // A new id after each start: the grant of the previous process is not this one's.
//! let node = RandomState::new().hash_one("node");
//! tokio::spawn(run_beats(protection, board, node));
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_overload::{BoardError, FleetBoard, FleetSettings, Grant, Report, SLOTS_MAX};

use tidegate_redis_link::{
    BatchingClient, ClientFigures, FailureKind, LinkError, LinkState, NumberReader, RedisKey,
    RedisSettings, RedisSettingsError, ScriptBody, ScriptCall, ScriptReply, put_number as put,
};

mod roster;

pub use roster::{DESCRIPTION_BYTES_MAX, NodeRoster, ROSTER_BEAT};

const BEAT: &str = include_str!("beat.lua");

/// Nanoseconds in a microsecond.
const MICRO: u64 = 1_000;

/// The largest count in a report: the slots of a gate.
const COUNT_MAX: u64 = SLOTS_MAX as u64;

/// The name is part of every call.
const NAME_BYTES_MAX: usize = 128;

/// Keeps instants below 2⁵³, the largest integer that Lua's doubles hold exactly.
const LEASE_MAX: Nanos = Nanos::from_secs(3_600);

/// Divides a fleet's capacity on Redis or Valkey.
#[derive(Debug)]
pub struct RedisBoard {
    client: BatchingClient,
    key: RedisKey,
    settings: FleetSettings,
}

impl RedisBoard {
    /// The board of the fleet with this name. Connects in the background, and keeps trying while it cannot. All nodes of
    /// a fleet must have the same fleet settings.
    ///
    /// # Errors
    /// When the settings are invalid, a file that they name cannot be read, or the name is longer than 128 bytes.
    pub fn new(
        servers: RedisSettings,
        name: &str,
        settings: FleetSettings,
    ) -> Result<Self, RedisSettingsError> {
        servers.check()?;
        check_name(name)?;
        let key = RedisKey::from_slice(format!("{}:fleet:{name}", servers.prefix).as_bytes());
        let client = BatchingClient::start(RedisSettings { connections: 1, ..servers }, BEAT)?;
        Ok(RedisBoard { client, key, settings })
    }

    /// Waits until all connections are open, forever if necessary.
    pub async fn connected(&self) {
        self.client.connected().await;
    }

    /// The state of the connection.
    pub fn state(&self) -> LinkState {
        self.client.state()
    }

    /// Counts of calls, errors and connections since the start.
    pub fn figures(&self) -> ClientFigures {
        self.client.figures()
    }

    /// Divides at this instant, in whole microseconds, instead of by the server's clock. For tests.
    #[doc(hidden)]
    pub fn set_clock(&self, now: Timestamp) {
        self.client.set_instant((now.as_nanos() / MICRO).to_string().as_bytes());
    }

    fn call(&self, report: &Report) -> ScriptCall {
        // All beats of a board have one key, so all may share a tag.
        let keys = SmallVec::from_iter([self.key.clone()]);
        ScriptCall { tag: 0, keys, body: body(&self.settings, report) }
    }
}

impl FleetBoard for RedisBoard {
    /// Waits for at most one beat: the next report is newer.
    async fn beat(&self, report: Report) -> Result<Grant, BoardError> {
        let within = Duration::from(self.settings.beat);
        let answer = self.client.send(self.call(&report), within).await;
        let reply = answer.map_err(|error| BoardError::Unreachable(Box::new(error)))?;
        read_grant(&reply)
    }
}

/// The report as `beat.lua` decodes it. The first byte is the number of keys.
fn body(settings: &FleetSettings, report: &Report) -> ScriptBody {
    let mut body = ScriptBody::new();
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

fn read_grant(reply: &ScriptReply) -> Result<Grant, BoardError> {
    match reply.body.split_first() {
        Some((b'g', numbers)) => grant(NumberReader::new(numbers)),
        Some((b'f', [])) => return Err(BoardError::Full),
        _ => None,
    }
    .ok_or_else(|| BoardError::Unreachable(Box::new(malformed())))
}

fn check_name(name: &str) -> Result<(), RedisSettingsError> {
    if name.len() > NAME_BYTES_MAX {
        let words = format!("the name of a fleet has at most {NAME_BYTES_MAX} bytes");
        return Err(RedisSettingsError::new(words));
    }
    Ok(())
}

fn malformed() -> LinkError {
    let reason = "its reply is malformed".to_owned();
    LinkError::Unavailable { kind: FailureKind::Protocol, reason }
}

fn grant(mut numbers: NumberReader<'_>) -> Option<Grant> {
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
