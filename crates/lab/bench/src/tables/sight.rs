//! What history, the sample of callers and the tail cost: decisions with them and without, memory, and the page.

use std::env;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};
use tidegate_admin::{DebugDoor, DebugParts, Observations, ObservationsConfig, TailMode};
use tidegate_engine::{Engine, MemoryConfig, MemoryStore, NearLimit, SystemClock};

use super::engine::{RULES, admits};
use crate::contestant::Terms;
use crate::goal::Goal;
use crate::keys::Draw;
use crate::processor::time_of;
use crate::race::{Entrant, Plan, Race};
use crate::requests::RequestSequence;
use crate::rule_text::{Limits, compiled, rule_text};
use crate::scale::Scale;
use crate::server::{Door, Server};
use crate::stopwatch::Stopwatch;
use crate::table::{Table, count, ns};

const USERS: u64 = 1_000;
const REQUESTS: usize = 10_000;
const DECISION: Goal = Goal::at_most(1.02);
const NOTHING: Goal = Goal::at_most(0.0);
const MEMORY: Goal = Goal::at_most_of(16.0, " MiB");
const READING: Goal = Goal::at_most_of(5.0, " ms");
const PAGE: Goal = Goal::at_most_of(50.0, " KB");
const PAGES: Goal = Goal::at_most_of(1.0, " %");
/// Open pages, the default maximum.
const STREAMS: usize = 16;
/// How long their cost is measured.
const OPEN_FOR: Duration = Duration::from_secs(10);
const MIB: f64 = 1_048_576.0;
/// Readings whose mean is shown.
const READINGS: u32 = 20;

/// An engine that is observed as `tidegate serve` does it, and its debug port.
struct ObservedEngine {
    engine: Arc<Engine>,
    door: DebugDoor<MemoryStore, SystemClock>,
}

impl ObservedEngine {
    fn new(tail: TailMode) -> anyhow::Result<Self> {
        let config = ObservationsConfig { tail, ..ObservationsConfig::default() };
        let observations = Arc::new(Observations::new(config));
        let store = MemoryStore::new(MemoryConfig::default())?;
        let engine = Engine::new(store, SystemClock::new())
            .with_tallies(NearLimit::default())
            .with_observer(Arc::clone(&observations) as _)
            .with_rules(compiled(rule_text(RULES, Limits::Two))?);
        let engine = Arc::new(engine);
        let parts = DebugParts { observations, ..DebugParts::default() };
        Ok(ObservedEngine { door: DebugDoor::new(Arc::clone(&engine), parts), engine })
    }
}

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    eprintln!("sight");
    let mut table = Table::new("13. Sight (`sight`)", &["what", "figure", "goal"]);
    let watched = ObservedEngine::new(TailMode::Refusals)?;
    let ratio = decisions(&mut table, &watched, scale)?;
    table.row(["on ÷ off".to_owned(), ratio.0, DECISION.judge(ratio.1)]);
    let allocations = allocations(&watched);
    let what = "allocations in 10,000 admitted requests, on".to_owned();
    table.row([what, allocations.to_string(), NOTHING.judge(allocations as f64)]);
    let (bytes, reading) = memory(&watched);
    let limits = count(RULES * 2);
    let what = format!("memory of the history, {limits} limits that were all hit");
    table.row([what, format!("{bytes:.1} MiB"), MEMORY.judge(bytes)]);
    table.row([
        format!("one reading, {limits} limits"),
        format!("{reading:.2} ms"),
        READING.judge(reading),
    ]);
    let kilobytes = page_kilobytes();
    table.row([
        "all files of the page, as browsers get them (gzip)".to_owned(),
        format!("{kilobytes:.1} KB"),
        PAGE.judge(kilobytes),
    ]);
    let percent = open_pages()?;
    table.row([
        format!("{STREAMS} open pages, of a core"),
        format!("{percent:.2} %"),
        PAGES.judge(percent),
    ]);
    table.note(
        "Decisions: one of 10,000 rules with two limits, admitted; `on` has the history read once a second, the tail of \
         refusals watched by a stream, and samples of callers. `off` has the observer of metrics alone.",
    );
    Ok(table)
}

/// Nanoseconds of a decision, on and off; the ratio as text and as a number.
fn decisions(
    table: &mut Table,
    watched: &ObservedEngine,
    scale: Scale,
) -> anyhow::Result<(String, f64)> {
    let plain = ObservedEngine::new(TailMode::Off)?;
    let sequence = RequestSequence::new(Draw::uniform(USERS), scale.drawn, |user| user % RULES);
    let entrant = |name: &str, engine: &Arc<Engine>| {
        let engine = Arc::clone(engine);
        let sequence = &sequence;
        Entrant::new(name, move |place, operations| {
            sequence.from(place).take(operations).filter(|asked| admits(&engine, asked)).count()
        })
    };
    let entrants = [entrant("on", &watched.engine), entrant("off", &plain.engine)];
    for entrant in &entrants {
        entrant.warm_up(scale.drawn);
    }
    let ended = AtomicBool::new(false);
    let race = thread::scope(|scope| {
        scope.spawn(|| read_history(watched, &ended));
        let Scale { rounds, operations, .. } = scale;
        let plan = Plan { rounds, operations, threads: 1, terms: Terms::Admit };
        let race = Race::run(&entrants, plan);
        ended.store(true, Ordering::Relaxed);
        race
    })?;
    table.row(["a decision, on".to_owned(), ns(race.nanos(0)) + " ns", String::new()]);
    table.row(["a decision, off".to_owned(), ns(race.nanos(1)) + " ns", String::new()]);
    let ratio = race.ratio(0, 1);
    Ok((ratio.to_string(), ratio.median))
}

/// Reads the history once a second and the stream of events, until it is told to end.
fn read_history(watched: &ObservedEngine, ended: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        let request = http::Request::get("/api/events?kinds=state,verdicts");
        let Ok(request) = request.body(Full::<bytes::Bytes>::default()) else { return };
        let Ok(answer) = watched.door.call(request).await;
        let mut body = answer.into_body();
        while !ended.load(Ordering::Relaxed) {
            watched.door.record();
            let _ = body.frame().await;
        }
    });
}

fn allocations(watched: &ObservedEngine) -> usize {
    let sequence = RequestSequence::new(Draw::uniform(USERS), REQUESTS, |user| user % RULES);
    let pass = || {
        for asked in sequence.from(0).take(REQUESTS) {
            admits(&watched.engine, &asked);
        }
    };
    pass();
    let region = Region::new(&INSTRUMENTED_SYSTEM);
    pass();
    let change = region.change();
    change.allocations + change.reallocations
}

/// The memory of a history in which every limit was hit, and the time of a reading in milliseconds.
fn memory(watched: &ObservedEngine) -> (f64, f64) {
    let sequence = RequestSequence::new(Draw::uniform(RULES * 4), 200_000, |user| user % RULES);
    for asked in sequence.from(0).take(200_000) {
        admits(&watched.engine, &asked);
    }
    let stopwatch = Stopwatch::start();
    for _ in 0..READINGS {
        watched.door.record();
    }
    let reading = stopwatch.elapsed().as_secs_f64() * 1_000.0 / f64::from(READINGS);
    (watched.door.history_bytes() as f64 / MIB, reading)
}

/// The size of the dashboard's files as browsers get them, compressed.
fn page_kilobytes() -> f64 {
    let files = DebugDoor::<MemoryStore, SystemClock>::dashboard_files();
    files.map(|file| file.len()).sum::<usize>() as f64 / 1_000.0
}

/// The processor time that open pages cost a server, in percent of a core: with them minus without.
fn open_pages() -> anyhow::Result<f64> {
    let this = env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(this.with_file_name("tidegate"));
    command.args(["serve", "--log-format", "json", "--set", "rules.required=false"]);
    command.args(["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let server = Server::start_at(command, Door::Http, |address| {
        Ok(vec!["--debug-listen".to_owned(), address.to_string()])
    })?;
    let address = server.door(Door::Http)?;
    let spent = || -> anyhow::Result<f64> {
        let before = time_of(server.process())?;
        thread::park_timeout(OPEN_FOR);
        Ok((time_of(server.process())? - before).as_secs_f64() * 100.0 / OPEN_FOR.as_secs_f64())
    };
    let idle = spent()?;
    for _ in 0..STREAMS {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(
            b"GET /api/events?kinds=state,changes HTTP/1.1\r\nhost: localhost\r\n\r\n",
        )?;
        // Ends with the server.
        thread::spawn(move || while stream.read(&mut [0; 8_192]).is_ok_and(|bytes| bytes > 0) {});
    }
    Ok((spent()? - idle).max(0.0))
}
