//! The decision service over the network, beside other servers.
//!
//! What counts most is the processor time that a server spends on a call. Unlike
//! calls per second it hardly depends on what else the machine does, and it is
//! what a limiter costs those who run it.

mod contender;
mod footprint;
mod programs;

use std::time::Duration;

use crate::goal::Goal;
use crate::processor::Pins;
use crate::rounds::Rounds;
use crate::scale::Scale;
use crate::table::{Table, count};

use super::column::{Column, micros, thousands, whole_micros};
use super::visiting::{Saturated, Waits};
use contender::{Contender, Who};
use programs::Programs;

pub(super) use programs::beside;

const RULES: u64 = 10_000;

const AGAINST_TONIC: Goal = Goal::at_most(1.0);
const AGAINST_LIMITADOR: Goal = Goal::at_most(0.4);
const AGAINST_THROTTLECRAB: Goal = Goal::at_most(0.6);
const THROUGHPUT: Goal = Goal::at_least(1.0);
const P99: Goal = Goal::at_most(1.1);
const AGAINST_AXUM: Goal = Goal::at_most(1.1);
const TEN_DESCRIPTORS: Goal = Goal::at_most(2.0);
const MEMORY: Goal = Goal::at_most_of(100.0, " MB");
const START: Goal = Goal::at_most_of(300.0, " ms");

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = ["what", "tidegate", "against", "its figure", "ratio", "goal"];
    let mut table = Table::new("8. The decision service (`service`)", &columns);
    let programs = Programs::prepare(RULES)?;
    let pins = Pins::new()?;
    side_by_side(&mut table, &programs, &pins, scale)?;
    alone(&mut table, &programs, &pins, scale)?;
    if !pins.are_apart() {
        table.note("Servers and generator shared one processor, so calls per second and waits mean little.");
    }
    Ok(table)
}

/// The rows that compare servers: all of them run, one at a time is asked.
fn side_by_side(
    table: &mut Table,
    programs: &Programs,
    pins: &Pins,
    scale: Scale,
) -> anyhow::Result<()> {
    let servers = pins.on_server(|| programs.start_all())?;
    let contenders = servers.contenders()?;
    eprintln!("service: {} contenders take turns", contenders.len());
    let named = contenders.iter().map(|contender| (contender.who, contender));
    let calls = Rounds::run(named, scale.visits, |contender| {
        pins.on_generator(|| contender.saturate(scale.visit))
    })?;
    let cpu: Column<Saturated> = Column { of: |call| call.cpu_micros, shown: micros };
    let rate: Column<Saturated> = Column { of: |call| call.per_second, shown: thousands };
    let single = "CPU per ShouldRateLimit, 1 descriptor";
    cpu.row(table, single, &calls, [Who::Tidegate, Who::BareTonic], AGAINST_TONIC);
    cpu.row(table, single, &calls, [Who::Tidegate, Who::Limitador], AGAINST_LIMITADOR);
    cpu.row(table, single, &calls, [Who::Tidegate, Who::Throttlecrab], AGAINST_THROTTLECRAB);
    rate.row(table, "calls/s at saturation", &calls, [Who::Tidegate, Who::BareTonic], THROUGHPUT);

    let half = calls.median(Who::BareTonic, rate.of) / 2.0;
    let waits = waits(&contenders, half, pins, scale.visit, scale.visits)?;
    let p99: Column<Waits> = Column { of: Waits::usual_p99_micros, shown: whole_micros };
    let what = "p99 at half of bare tonic's calls/s";
    p99.row(table, what, &waits, [Who::Tidegate, Who::BareTonic], P99);

    let posts = "CPU per POST /v1/check";
    cpu.row(table, posts, &calls, [Who::TidegateHttp, Who::BareAxum], AGAINST_AXUM);
    let wide = "CPU per ShouldRateLimit, 10 descriptors";
    cpu.row(table, wide, &calls, [Who::TidegateWide, Who::Tidegate], TEN_DESCRIPTORS);
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

/// How long callers wait that arrive at a given pace, at the two that are compared.
fn waits(
    contenders: &[Contender<'_>],
    per_second: f64,
    pins: &Pins,
    time: Duration,
    rounds: usize,
) -> anyhow::Result<Rounds<Who, Waits>> {
    eprintln!("service: callers arrive {per_second:.0} times a second");
    let both = [Who::Tidegate, Who::BareTonic];
    let both = contenders.iter().filter(|contender| both.contains(&contender.who));
    let both = both.map(|contender| (contender.who, contender));
    Rounds::run(both, rounds, |contender| pins.on_generator(|| contender.arrive(per_second, time)))
}

/// The rows about our server alone.
fn alone(table: &mut Table, programs: &Programs, pins: &Pins, scale: Scale) -> anyhow::Result<()> {
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
