//! Helpers for the tests of the board: boards, nodes that beat, and a reader of the rows.
//!
//! Rows are read by a script of our own, so that a fault of the board cannot hide.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::{Clock, Timestamp};
use tidegate_overload::{
    Category, Credit, FleetSettings, Protection, ProtectionSettings, SteadyClock, run_beats,
};
use tidegate_redis_board::RedisBoard;
use tidegate_redis_link::RedisSettings;

use tidegate_test_servers::PATIENCE;
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::Server;

/// What each node can work on, and what it may use while all want the same.
pub(crate) const CAPACITY: u64 = 100;
pub(crate) const SHARE: u64 = 80;

/// More than any node admits.
const FILL_MAX: usize = 1_000;

const PAUSE: Duration = Duration::from_millis(5);

/// A board that waits for a machine that does many things at once.
pub(crate) fn board(url: &str, name: &str, settings: FleetSettings) -> RedisBoard {
    RedisBoard::new(RedisSettings::parse(url).unwrap(), name, settings).unwrap()
}

/// A node in this process that beats to a board of its own connection. Stops when
/// it is dropped.
pub(crate) struct Node {
    pub(crate) protection: Arc<Protection<SteadyClock>>,
    beats: tokio::task::JoinHandle<()>,
}

impl Node {
    pub(crate) fn start(url: &str, id: u64) -> Self {
        let clock = SteadyClock::starting_at(Timestamp::from_secs(1_000));
        let protection = Arc::new(Protection::new(ProtectionSettings::new(CAPACITY), clock));
        let board = board(url, "nodes", FleetSettings::default());
        let beating = Arc::clone(&protection);
        let beats = tokio::spawn(async move { match run_beats(beating, board, id).await {} });
        Node { protection, beats }
    }

    /// Below how many it admits now.
    pub(crate) fn admit_below(&self) -> u64 {
        self.protection.fleet().admit_below(self.protection.clock().now())
    }

    /// Enters until it is refused.
    pub(crate) fn fill(&self) -> Vec<Credit> {
        let now = self.protection.clock().now();
        let enter = || self.protection.fleet().try_enter(now, Category::Post);
        std::iter::from_fn(enter).take(FILL_MAX).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

/// Polls until there is an answer; other tasks run between the polls.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if let Some(seen) = look() {
            return seen;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("waited in vain: {what}");
}

/// One row of a board.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) node: u64,
    pub(crate) grant: u64,
    pub(crate) capacity: u64,
    /// In microseconds of the server's clock.
    pub(crate) expires: u64,
}

/// What a server holds of a fleet, at one instant of its clock.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) now: u64,
    pub(crate) rows: Vec<Row>,
}

impl Rows {
    pub(crate) fn read(server: &Server, key: &str) -> Rows {
        const SCRIPT: &str = "local time = redis.call('TIME')
            local numbers = { string.format('%.0f', time[1] * 1000000 + time[2]) }
            local found = redis.call('HGETALL', KEYS[1])
            for i = 1, #found, 2 do
              if #found[i] == 8 then
                local high, low = struct.unpack('>I4I4', found[i])
                local capacity, _, _, grant, expires = struct.unpack('>I4I4I4I4I7', found[i + 1])
                for _, number in ipairs({ high * 4294967296 + low, grant, capacity, expires }) do
                  numbers[#numbers + 1] = string.format('%.0f', number)
                end
              end
            end
            return numbers";
        let numbers = server.tell(&["EVAL", SCRIPT, "1", key]);
        let numbers: Vec<u64> = numbers.list().iter().map(number).collect();
        let (now, rows) = numbers.split_first().unwrap();
        let rows = rows.chunks(4).map(|row| match *row {
            [node, grant, capacity, expires] => Row { node, grant, capacity, expires },
            _ => panic!("a row is cut off: {row:?}"),
        });
        Rows { now: *now, rows: rows.collect() }
    }

    pub(crate) fn granted(&self) -> u64 {
        self.rows.iter().map(|row| row.grant).sum()
    }

    pub(crate) fn pool(&self) -> u64 {
        self.rows.iter().map(|row| row.capacity).sum::<u64>() * SHARE / CAPACITY
    }
}

pub(crate) fn number(reply: &Reply) -> u64 {
    reply.text().unwrap().parse().unwrap()
}
