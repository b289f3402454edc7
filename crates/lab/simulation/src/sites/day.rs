//! A day of traffic of a shop: a log to replay, and what really happens under other rules.
//!
//! Callers of four kinds come and go over the day, most of them in the afternoon. They react to refusals, as callers do:
//! most wait, some go on. What they do therefore depends on the rules, which a replay of yesterday's log cannot know.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::sync::Arc;

use tidegate_algorithms::{ManualClock, Timestamp};
use tidegate_engine::{
    ConfigError, Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Request, Snapshot,
};

use super::behaviour::{Behaviour, Caller, DAY, HOUR, MINUTE, SECOND, instant};
use crate::chance::Chance;

/// A Wednesday in 2026.
const START: u64 = 1_784_073_600 * SECOND;
/// The agent of every line.
const AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36";
/// The counters of a day.
const STORE_BYTES: usize = 256 << 20;

/// A day of traffic. The same seed gives the same callers.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedDay {
    /// The seed.
    pub seed: u64,
    /// How many callers there are.
    pub callers: u64,
}

/// One request of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayRequest<'d> {
    /// When it came.
    pub at: Timestamp,
    /// The number of its caller.
    pub caller: u64,
    /// The caller's address.
    pub address: &'d str,
    /// The path.
    pub path: &'d str,
    /// Whether the rules admitted it.
    pub admitted: bool,
}

/// The counts of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DayCounts {
    /// All requests.
    pub requests: u64,
    /// Refused requests.
    pub refused: u64,
}

impl DayCounts {
    /// Refused requests of all.
    pub fn refused_share(&self) -> f64 {
        crate::replay::share(self.refused, self.requests)
    }
}

/// The domain of the rules of a day.
pub const DAY_DOMAIN: &str = "web";

impl SimulatedDay {
    /// Plays the day through rules of the domain [`DAY_DOMAIN`]. A request has the descriptors `address` and
    /// `path`, `address`.
    ///
    /// # Errors
    /// When there is no memory for the counters.
    pub fn play(
        &self,
        rules: &Arc<Snapshot>,
        mut each: impl FnMut(&DayRequest<'_>),
    ) -> Result<DayCounts, ConfigError> {
        let clock = Arc::new(ManualClock::at(instant(START)));
        let config = MemoryConfig {
            budget_bytes: STORE_BYTES,
            seed: Some(self.seed),
            ..MemoryConfig::default()
        };
        let engine =
            Engine::new(MemoryStore::new(config)?, Arc::clone(&clock)).with_seed(self.seed);
        engine.install(Arc::clone(rules));
        let mut visits = self.visits();
        let mut events: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        for (index, visit) in visits.iter_mut().enumerate() {
            events.push(Reverse((visit.caller.first(visit.begin), index)));
        }
        let mut counts = DayCounts::default();
        while let Some(Reverse((now, index))) = events.pop() {
            let Some(visit) = visits.get_mut(index).filter(|visit| now < visit.end) else {
                continue;
            };
            clock.set(instant(now));
            let path = visit.path();
            let address = visit.address.as_str();
            let by_address = [Entry { key: "address", value: address }];
            let by_path =
                [Entry { key: "path", value: &path }, Entry { key: "address", value: address }];
            let descriptors = [Descriptor::new(&by_address), Descriptor::new(&by_path)];
            let verdict = engine.check_now(&Request::new(DAY_DOMAIN, &descriptors));
            let admitted = verdict.is_admitted();
            counts.requests += 1;
            counts.refused += u64::from(!admitted);
            let caller = u64::try_from(index).unwrap_or(u64::MAX);
            each(&DayRequest { at: instant(now), caller, address, path: &path, admitted });
            let retry = (!admitted).then(|| verdict.retry());
            events.push(Reverse((visit.caller.next(now, retry), index)));
        }
        Ok(counts)
    }

    /// Writes the day as an access log in the combined format, refused requests with status 429.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn write_log(&self, rules: &Arc<Snapshot>, out: &mut impl Write) -> io::Result<DayCounts> {
        let mut written = Ok(());
        let counts = self.play(rules, |request| {
            if written.is_ok() {
                written = write_line(out, request);
            }
        });
        written?;
        counts.map_err(io::Error::other)
    }

    fn visits(&self) -> Vec<DayVisit> {
        let mut chance = Chance::new(self.seed ^ 0xDA7);
        (0..self.callers).map(|number| DayVisit::draw(&mut chance, number)).collect()
    }
}

/// A caller with the hours in which it comes.
#[derive(Debug)]
struct DayVisit {
    caller: Caller,
    begin: u64,
    end: u64,
    address: String,
    paths: Chance,
}

impl DayVisit {
    fn draw(chance: &mut Chance, number: u64) -> Self {
        let pause =
            |chance: &mut Chance, low: u64, high: u64| SECOND * chance.between(low, high) / 10;
        let sessions =
            |gap, session, pause, obedient| Behaviour::Sessions { gap, session, pause, obedient };
        let behaviour = match chance.between(0, 99) {
            // People who look around, and wait when they are asked to.
            0..=79 => sessions(HOUR, 6 * MINUTE, pause(chance, 30, 120), true),
            // Applications at a steady rate.
            80..=89 => sessions(2 * HOUR, 40 * MINUTE, pause(chance, 10, 40), true),
            // Scripts that do not wait.
            90..=94 => sessions(3 * HOUR, 10 * MINUTE, pause(chance, 5, 20), false),
            // Pages that load many things at once.
            _ => Behaviour::Bursts { gap: HOUR, size: chance.between(15, 60) },
        };
        // The mean of four is near the middle, as the hours of visitors are.
        let begin: u64 = (0..4).map(|_| chance.between(0, 22 * HOUR)).sum::<u64>() / 4;
        let end = (begin + chance.between(HOUR, 6 * HOUR)).min(DAY);
        DayVisit {
            caller: Caller::new(behaviour, chance.next()),
            begin: START + begin,
            end: START + end,
            address: format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255),
            paths: Chance::new(chance.next()),
        }
    }

    fn path(&mut self) -> String {
        match self.paths.between(0, 9) {
            0..=2 => "/".to_owned(),
            3..=5 => format!("/items/{}", self.paths.up_to(5_000)),
            6..=7 => "/search".to_owned(),
            8 => "/orders".to_owned(),
            _ => "/login".to_owned(),
        }
    }
}

fn write_line(out: &mut impl Write, request: &DayRequest<'_>) -> io::Result<()> {
    let DayRequest { at, address, path, admitted, .. } = request;
    let second = at.as_nanos().saturating_sub(START) / SECOND;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let status = if *admitted { 200 } else { 429 };
    writeln!(
        out,
        "{address} - - [15/Jul/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" {status} 512 \"-\" \
         \"{AGENT}\""
    )
}
