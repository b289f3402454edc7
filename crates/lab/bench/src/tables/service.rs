//! The decision service over the network, compared with other servers.
//!
//! The main figure is the CPU time of a server for a call. Unlike calls per second it depends
//! little on other load of the machine, and it is the price of running a limiter.

mod contender;
mod footprint;
mod programs;

use std::time::Duration;

use crate::goal::Goal;
use crate::processor::Pins;
use crate::rounds::Rounds;
use crate::scale::Scale;
use crate::table::{Table, count};

use super::Tools;
use super::column::{Column, micros, thousands, whole_micros};
use super::server_figures::{SaturationFigures, WaitFigures};
use contender::{Contender, ContenderName};
use programs::Programs;

pub(super) use programs::beside;

const RULES: u64 = 10_000;

const AGAINST_TONIC: Goal = Goal::at_most(1.0);
const AGAINST_LIMITADOR: Goal = Goal::at_most(0.4);
const AGAINST_THROTTLECRAB: Goal = Goal::at_most(0.6);
const AGAINST_UPSTREAM: Goal = Goal::at_most(0.5);
const THROUGHPUT: Goal = Goal::at_least(1.0);
const P99: Goal = Goal::at_most(1.1);
const AGAINST_AXUM: Goal = Goal::at_most(1.1);
const TEN_DESCRIPTORS: Goal = Goal::at_most(2.0);
const MEMORY: Goal = Goal::at_most_of(100.0, " MB");
const START: Goal = Goal::at_most_of(300.0, " ms");

pub(super) fn table(scale: Scale, tools: &Tools) -> anyhow::Result<Table> {
    let columns = ["what", "tidegate", "against", "its figure", "ratio", "goal"];
    let mut table = Table::new("8. The decision service (`service`)", &columns);
    let programs = Programs::prepare(RULES, tools)?;
    let pins = Pins::new()?;
    compare_servers(&mut table, &programs, &pins, scale)?;
    measure_own(&mut table, &programs, &pins, scale)?;
    if !pins.are_apart() {
        table.note("Servers and generator shared one processor, so calls per second and waits mean little.");
    }
    Ok(table)
}

/// The rows that compare servers: all of them run, one at a time is loaded.
fn compare_servers(
    table: &mut Table,
    programs: &Programs,
    pins: &Pins,
    scale: Scale,
) -> anyhow::Result<()> {
    let servers = pins.on_server(|| programs.start_all())?;
    let contenders = servers.contenders()?;
    eprintln!("service: {} contenders take turns", contenders.len());
    let named = contenders.iter().map(|contender| (contender.who, contender));
    let calls = Rounds::run(named, scale.server_rounds, |contender| {
        pins.on_generator(|| contender.saturate(scale.server_time))
    })?;
    let cpu: Column<SaturationFigures> = Column { of: |call| call.cpu_micros, shown: micros };
    let rate: Column<SaturationFigures> = Column { of: |call| call.per_second, shown: thousands };
    let single = "CPU per ShouldRateLimit, 1 descriptor";
    cpu.row(
        table,
        single,
        &calls,
        [ContenderName::Tidegate, ContenderName::BareTonic],
        AGAINST_TONIC,
    );
    cpu.row(
        table,
        single,
        &calls,
        [ContenderName::Tidegate, ContenderName::Limitador],
        AGAINST_LIMITADOR,
    );
    cpu.row(
        table,
        single,
        &calls,
        [ContenderName::Tidegate, ContenderName::Throttlecrab],
        AGAINST_THROTTLECRAB,
    );
    let with_store = "CPU per ShouldRateLimit, store included";
    let upstream = ContenderName::Upstream;
    cpu.row(table, with_store, &calls, [ContenderName::Tidegate, upstream], AGAINST_UPSTREAM);
    let exact = "the same, ours exact over Redis";
    cpu.row(table, exact, &calls, [ContenderName::TidegateRedis, upstream], AGAINST_UPSTREAM);
    rate.row(
        table,
        "calls/s at saturation",
        &calls,
        [ContenderName::Tidegate, ContenderName::BareTonic],
        THROUGHPUT,
    );

    let half = calls.median(ContenderName::BareTonic, rate.of) / 2.0;
    let waits = waits(&contenders, half, pins, scale.server_time, scale.server_rounds)?;
    let p99: Column<WaitFigures> =
        Column { of: WaitFigures::usual_p99_micros, shown: whole_micros };
    let what = "p99 at half of bare tonic's calls/s";
    p99.row(table, what, &waits, [ContenderName::Tidegate, ContenderName::BareTonic], P99);

    let posts = "CPU per POST /v1/check";
    cpu.row(
        table,
        posts,
        &calls,
        [ContenderName::TidegateHttp, ContenderName::BareAxum],
        AGAINST_AXUM,
    );
    let wide = "CPU per ShouldRateLimit, 10 descriptors";
    cpu.row(
        table,
        wide,
        &calls,
        [ContenderName::TidegateWide, ContenderName::Tidegate],
        TEN_DESCRIPTORS,
    );
    table.note(format!(
        "{} users in Zipf's proportions, {} rules. 2 connections with 64 calls on each; POST: 50 connections. \
         Arrivals: {half:.0} a second, waits counted from when a caller arrived.",
        count(contender::USERS),
        count(RULES),
    ));
    table.note(format!("Calls: {}. Waits: {}.", calls.quality(), waits.quality()));
    for missing in &servers.missing {
        table.note(format!("Not measured: {missing:#}."));
    }
    Ok(())
}

/// Latencies at a given rate of arrivals, of the two servers that are compared.
fn waits(
    contenders: &[Contender<'_>],
    per_second: f64,
    pins: &Pins,
    time: Duration,
    rounds: usize,
) -> anyhow::Result<Rounds<ContenderName, WaitFigures>> {
    eprintln!("service: callers arrive {per_second:.0} times a second");
    let both = [ContenderName::Tidegate, ContenderName::BareTonic];
    let both = contenders.iter().filter(|contender| both.contains(&contender.who));
    let both = both.map(|contender| (contender.who, contender));
    Rounds::run(both, rounds, |contender| pins.on_generator(|| contender.arrive(per_second, time)))
}

/// The rows about our server only.
fn measure_own(
    table: &mut Table,
    programs: &Programs,
    pins: &Pins,
    scale: Scale,
) -> anyhow::Result<()> {
    let keys = count(scale.live_keys);
    eprintln!("service: {keys} live keys");
    let megabytes = footprint::megabytes(programs, pins, scale.live_keys)?;
    let what = format!("resident memory with {keys} live keys");
    table.row(single(what, format!("{megabytes:.1} MB"), MEMORY.judge(megabytes)));

    eprintln!("service: {} starts", scale.starts);
    let start = footprint::start_millis(programs, scale.starts)?;
    let shown = format!("{:.0} ms ({:.0}–{:.0})", start.median, start.low, start.high);
    let what = format!("start to first answer with {} rules", count(RULES));
    table.row(single(what, shown, START.judge(start.median)));
    Ok(())
}

/// A row about ourselves only.
fn single(what: String, ours: String, judged: String) -> [String; 6] {
    [what, ours, String::new(), String::new(), String::new(), judged]
}
