//! Leased limits over the network, beside exact ones and a store in memory.
//!
//! Many users in Zipf's proportions: few are asked for all the time, most hardly ever. The server and its Redis share
//! one processor, so calls per second are what both cost together.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use super::Tools;
use super::column::{Column, micros, thousands, whole_micros};
use super::service::{beside, start_redis, start_upstream};
use crate::goal::Goal;
use crate::load::{Enough, Generator, Http2};
use crate::processor::{Pins, spent, time_of};
use crate::questions::{Questions, Wire};
use crate::rounds::{Measurement, Rounds};
use crate::rule_text::one_rule;
use crate::scale::Scale;
use crate::server::{Door, Server};
use crate::table::{Table, count};

const REDIS_CPU: Goal = Goal::at_most(0.5);
const P99: Goal = Goal::at_most(1.0);
const AGAINST_MEMORY: Goal = Goal::at_least(0.5);
const REFUSED: Goal = Goal::at_most(0.0);
const AGAINST_UPSTREAM: Goal = Goal::at_most(0.22);

const USERS: u64 = 10_000;
/// Requests drawn before the measurement.
const DRAWN: usize = 200_000;
const CONNECTIONS: usize = 2;
const DEPTH: usize = 64;
/// The load starts at new windows, and leases follow the rates.
const WARM_UP: Duration = Duration::from_millis(1_200);
/// More than any run uses up.
const LIMIT: u64 = 1_000_000;

/// The quantiles of the waits that a note shows.
const SHOWN_QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Where the counters are and how closely servers agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Memory,
    Exact,
    Leased,
    /// envoyproxy/ratelimit, which needs a Redis.
    Upstream,
}

/// The algorithm of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    FixedWindow,
    TokenBucket,
}

/// A server under the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ModeName {
    shape: Shape,
    mode: Mode,
}

impl ModeName {
    const ALL: [ModeName; 7] = [
        ModeName { shape: Shape::FixedWindow, mode: Mode::Memory },
        ModeName { shape: Shape::FixedWindow, mode: Mode::Exact },
        ModeName { shape: Shape::FixedWindow, mode: Mode::Leased },
        ModeName { shape: Shape::FixedWindow, mode: Mode::Upstream },
        ModeName { shape: Shape::TokenBucket, mode: Mode::Memory },
        ModeName { shape: Shape::TokenBucket, mode: Mode::Exact },
        ModeName { shape: Shape::TokenBucket, mode: Mode::Leased },
    ];

    fn rules(self) -> String {
        let consistency = match self.mode {
            Mode::Leased => ", consistency: leased",
            Mode::Memory | Mode::Exact | Mode::Upstream => "",
        };
        let algorithm = match self.shape {
            Shape::FixedWindow => "",
            Shape::TokenBucket => ", algorithm: token_bucket",
        };
        one_rule(&format!("unit: second, requests_per_unit: {LIMIT}{algorithm}{consistency}"))
    }
}

impl fmt::Display for ModeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self.mode {
            Mode::Memory => "store in memory",
            Mode::Exact => "exact",
            Mode::Leased => "leased",
            Mode::Upstream => "envoyproxy/ratelimit with its Redis",
        })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Shape::FixedWindow => "fixed window",
            Shape::TokenBucket => "token bucket",
        })
    }
}

/// A running server, its Redis, and its requests.
#[derive(Debug)]
struct ModeServer {
    server: Server,
    redis: Option<Server>,
    questions: Questions,
}

/// A server at saturation.
#[derive(Clone, Copy, Debug)]
struct LeaseFigures {
    /// CPU time of Redis for a call.
    redis_micros: f64,
    /// CPU time of the server and its Redis for a call.
    cpu_micros: f64,
    per_second: f64,
    p99_micros: f64,
    /// The waits of calls at [`SHOWN_QUANTILES`].
    waits_micros: [f64; SHOWN_QUANTILES.len()],
    /// Refused calls, of 1,000: the limit is far above the load.
    refused: f64,
}

pub(super) fn table(scale: Scale, tools: &Tools) -> anyhow::Result<Table> {
    let columns = ["what", "tidegate", "against", "its figure", "ratio", "goal"];
    let mut table = Table::new("12. Leased limits over the network (`leased`)", &columns);
    let folder = TempDir::new().context("cannot create a folder for the rules")?;
    let pins = Pins::new()?;
    let mut contenders = Vec::new();
    for name in ModeName::ALL {
        match pins.on_server(|| ModeServer::start(name, folder.path(), tools)) {
            Ok(contender) => contenders.push((name, contender)),
            Err(missing) => table.note(format!("Not measured: {name}: {missing:#}.")),
        }
    }
    eprintln!("leased: {} contenders take turns", contenders.len());
    let rounds = Rounds::run(contenders, scale.server_rounds, |contender| {
        pins.on_generator(|| contender.saturate(scale.server_time))
    })?;
    for shape in [Shape::FixedWindow, Shape::TokenBucket] {
        compare(&mut table, &rounds, shape);
    }
    table.note(format!(
        "{} users in Zipf's proportions, a limit of {} a second for each. {CONNECTIONS} connections with {DEPTH} calls \
         on each. The server and its Redis share a processor, the load generator has the other. {}.",
        count(USERS),
        count(LIMIT),
        rounds.quality(),
    ));
    if !pins.are_apart() {
        table.note("Servers and generator shared one processor, so calls per second and waits mean little.");
    }
    Ok(table)
}

/// The rows about limits of one algorithm.
fn compare(table: &mut Table, rounds: &Rounds<ModeName, LeaseFigures>, shape: Shape) {
    let redis: Column<LeaseFigures> = Column { of: |figures| figures.redis_micros, shown: micros };
    let cpu: Column<LeaseFigures> = Column { of: |figures| figures.cpu_micros, shown: micros };
    let p99: Column<LeaseFigures> =
        Column { of: |figures| figures.p99_micros, shown: whole_micros };
    let rate: Column<LeaseFigures> = Column { of: |figures| figures.per_second, shown: thousands };
    let [memory, exact, leased] =
        [Mode::Memory, Mode::Exact, Mode::Leased].map(|mode| ModeName { shape, mode });
    // It has fixed windows only.
    let upstream = ModeName { shape: Shape::FixedWindow, mode: Mode::Upstream };
    let what = |what: &str| format!("{shape}: {what}");
    redis.row(table, &what("Redis CPU per call, leased"), rounds, [leased, exact], REDIS_CPU);
    p99.row(table, &what("p99 at saturation, leased"), rounds, [leased, exact], P99);
    rate.row(table, &what("calls/s, leased"), rounds, [leased, memory], AGAINST_MEMORY);
    let refused = rounds.median(leased, |figures| figures.refused);
    table.row([
        what("refused of 1,000 calls, leased"),
        format!("{refused:.3}"),
        String::new(),
        String::new(),
        String::new(),
        REFUSED.judge(refused),
    ]);
    table.note(format!(
        "{shape}: {} calls/s exact, {} leased; CPU per call, Redis included: {} exact, {} leased, {} in memory.",
        thousands(rounds.median(exact, rate.of)),
        thousands(rounds.median(leased, rate.of)),
        micros(rounds.median(exact, cpu.of)),
        micros(rounds.median(leased, cpu.of)),
        micros(rounds.median(memory, cpu.of)),
    ));
    let waits = [memory, exact, leased].map(|name| {
        let shown = (0..SHOWN_QUANTILES.len())
            .map(|at| whole_micros(rounds.median(name, |figures| figures.waits_micros[at])));
        format!("{} {name}", shown.collect::<Vec<_>>().join(", "))
    });
    table.note(format!("{shape}: waits at p50, p90, p99 and p99.9: {}.", waits.join("; ")));
    let total = what("CPU per call, Redis included, exact");
    cpu.row(table, &total, rounds, [exact, upstream], AGAINST_UPSTREAM);
}

impl ModeServer {
    fn start(name: ModeName, folder: &Path, tools: &Tools) -> anyhow::Result<Self> {
        let folder =
            folder.join(format!("{name:?}").replace(|letter: char| !letter.is_alphanumeric(), ""));
        fs::create_dir_all(&folder)?;
        let redis = match name.mode {
            Mode::Memory => None,
            Mode::Exact | Mode::Leased | Mode::Upstream => Some(start_redis(&folder)?),
        };
        let address = redis.as_ref().map(|redis| redis.door(Door::Redis)).transpose()?;
        let server = match (name.mode, address) {
            (Mode::Upstream, Some(redis)) => {
                let config = folder.join("upstream").join("config");
                fs::create_dir_all(&config)?;
                fs::write(config.join("rules.yaml"), name.rules())?;
                start_upstream(&tools.upstream, &folder, redis)?
            }
            _ => {
                let rules = folder.join("rules.yaml");
                fs::write(&rules, name.rules())?;
                let this = std::env::current_exe().context("cannot find this program")?;
                let mut command = Command::new(beside(&this, "tidegate")?);
                command.arg("serve").arg("--rules").arg(rules);
                for door in ["--grpc", "--http", "--debug-listen"] {
                    command.args([door, "127.0.0.1:0"]);
                }
                command.args(["--log-format", "json"]);
                if let Some(redis) = address {
                    command.args(["--set", &format!("store.redis.url=redis://{redis}")]);
                    // The generator keeps the server busy: waits for Redis are long and must not time out.
                    command.args(["--set", "store.redis.deadline=5s"]);
                }
                Server::start(command, &[Door::Grpc])?
            }
        };
        let questions = Questions::zipf(Wire::Rls { descriptors: 1 }, USERS, DRAWN)?;
        Ok(ModeServer { server, redis, questions })
    }

    /// Saturates the server for a time.
    fn saturate(&self, time: Duration) -> anyhow::Result<Measurement<LeaseFigures>> {
        let protocol = |questions: &Questions| Http2::new(questions, DEPTH);
        let address = self.server.door(Door::Grpc)?;
        let mut generator =
            Generator::connect(address, CONNECTIONS, self.questions.clone(), protocol)?;
        generator.saturate_and_time(Enough::After(WARM_UP))?;
        let redis = self.redis.as_ref().map(Server::process);
        let processes: Vec<u32> = std::iter::once(self.server.process()).chain(redis).collect();
        let redis_time = || redis.map_or(Ok(Duration::ZERO), time_of);
        let before = redis_time()?;
        let saturate = || generator.saturate_and_time(Enough::After(time));
        let (timed, spent) = spent(&processes, &[], saturate)?;
        let redis_spent = redis_time()?.saturating_sub(before);
        let calls = timed.waits.len() as f64;
        let figures = LeaseFigures {
            redis_micros: redis_spent.as_secs_f64() * 1e6 / calls,
            cpu_micros: spent.usage.server.as_secs_f64() * 1e6 / calls,
            per_second: calls / spent.time.as_secs_f64(),
            p99_micros: timed.waits.value_at_quantile(0.99) as f64 / 1e3,
            waits_micros: SHOWN_QUANTILES
                .map(|quantile| timed.waits.value_at_quantile(quantile) as f64 / 1e3),
            refused: timed.refused as f64 * 1e3 / calls,
        };
        Ok(Measurement { figures, others: spent.others() })
    }
}
