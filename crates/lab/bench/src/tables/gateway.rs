//! The gateway as a reverse proxy, beside nginx and Envoy.
//!
//! All stand in front of the same upstream, with one worker each, and are asked over
//! connections that stay open. Processor time per request is the figure to trust: it hardly
//! depends on what else the machine does. The upstream shares the processor of the generator; both
//! together take less than any proxy does.

mod check;
mod proxies;
mod waits;

use std::time::Duration;

use crate::goal::Goal;
use crate::load::{Generator, Http1};
use crate::processor::Pins;
use crate::questions::{Questions, Wire};
use crate::rounds::{Rounds, Visit};
use crate::scale::Scale;
use crate::server::{Door, Server};
use crate::spread::Spread;
use crate::table::Table;

use super::column::{Column, micros, thousands, whole_micros};
use super::visiting::{self, Saturated, Watched};
use super::{Tools, overload_check};
use proxies::{Proxies, Who};

pub(super) use proxies::{gateway, peer_program};

/// One request at a time on each.
const CONNECTIONS: usize = 64;

const AGAINST_NGINX: Goal = Goal::at_least(0.8);
const AGAINST_ENVOY: Goal = Goal::at_least(1.0);
/// As many requests for the time, so the time of a request is the inverse.
const CPU_AGAINST_NGINX: Goal = Goal::at_most(1.25);
const CPU_AGAINST_ENVOY: Goal = Goal::at_most(1.0);
const LIMITERS_COST: Goal = Goal::at_least(0.9);
const LIMITERS_WAIT: Goal = Goal::at_most_of(50.0, " µs more");
const GOODPUT: Goal = Goal::at_least(0.95);
const CHECK: Goal = Goal::at_most_of(100.0, " ns");
const ALL_LIMITERS: Goal = Goal::at_most_of(300.0, " ns");

pub(super) fn table(scale: Scale, tools: &Tools) -> anyhow::Result<Table> {
    let columns = ["what", "tidegate", "against", "its figure", "ratio", "goal"];
    let mut table = Table::new("10. The gateway (`gateway`)", &columns);
    let pins = Pins::new()?;
    let proxies = Proxies::start(tools, &pins)?;
    let most = side_by_side(&mut table, &proxies, &pins, scale)?;
    drop(proxies);
    waiting(&mut table, &pins, scale, most / 2.0)?;
    refusing(&mut table, &pins, scale)?;
    checking(&mut table)?;
    if !pins.are_apart() {
        table.note("Servers and generator shared one processor, so requests per second and waits mean little.");
    }
    Ok(table)
}

/// The rows that compare proxies: all of them run, one at a time is asked. Returns how many
/// requests a second ours does without limiters.
fn side_by_side(
    table: &mut Table,
    proxies: &Proxies,
    pins: &Pins,
    scale: Scale,
) -> anyhow::Result<f64> {
    let servers = proxies.servers();
    eprintln!("gateway: {} proxies take turns", servers.len());
    let helpers = [proxies.upstream()];
    let calls = Rounds::run(servers.iter().copied(), scale.visits, |server| {
        pins.on_generator(|| saturate(server, &helpers, scale.visit))
    })?;
    let rate: Column<Saturated> = Column { of: |call| call.per_second, shown: thousands };
    let cpu: Column<Saturated> = Column { of: |call| call.cpu_micros, shown: micros };
    let what = "requests/s at saturation";
    rate.row(table, what, &calls, [Who::Tidegate, Who::Nginx], AGAINST_NGINX);
    rate.row(table, what, &calls, [Who::Tidegate, Who::Envoy], AGAINST_ENVOY);
    let what = "CPU per request";
    cpu.row(table, what, &calls, [Who::Tidegate, Who::Nginx], CPU_AGAINST_NGINX);
    cpu.row(table, what, &calls, [Who::Tidegate, Who::Envoy], CPU_AGAINST_ENVOY);
    let what = "requests/s with all limiters";
    rate.row(table, what, &calls, [Who::Tidegate, Who::Unlimited], LIMITERS_COST);

    table.note(format!(
        "{CONNECTIONS} connections, one request at a time on each, answers of 1 KiB. Requests: {}.",
        calls.quality()
    ));
    table.note(format!(
        "With {}: {} of the requests/s with {}.",
        Who::Silent,
        calls.ratio(Who::Silent, Who::Unlimited, rate.of),
        Who::Unlimited
    ));
    for missing in proxies.missing() {
        table.note(format!("Not measured: {missing:#}."));
    }
    Ok(calls.median(Who::Unlimited, rate.of))
}

/// The row about how much longer callers wait for the limiters.
fn waiting(table: &mut Table, pins: &Pins, scale: Scale, half: f64) -> anyhow::Result<()> {
    eprintln!("gateway: callers arrive {half:.0} times a second");
    let waits = waits::measure(pins, scale, half)?;
    let shown =
        |(mean, more): (f64, Spread)| format!("{mean:+.0} µs ({:+.0}–{:+.0})", more.low, more.high);
    let more = waits.more_micros(Who::Tidegate, Who::Unlimited);
    table.row([
        "p99 at half load with all limiters".to_owned(),
        whole_micros(waits.p99_micros(Who::Tidegate)),
        Who::Unlimited.to_string(),
        whole_micros(waits.p99_micros(Who::Unlimited)),
        shown(more),
        LIMITERS_WAIT.judge(more.0),
    ]);
    let noise = waits.more_micros(Who::UnlimitedToo, Who::Unlimited);
    let busy = |who| waits.median(who, |waits| waits.busy_percent);
    let answered = |who| waits.median(who, |waits| waits.per_second);
    table.note(format!(
        "Arrivals: {half:.0} a second, of which {:.0} and {:.0} were answered; waits counted from when a caller arrived. \
         The gateways were busy for {:.0} % and {:.0} % of the time. Two without limiters differ by {}. Waits: {}.",
        answered(Who::Tidegate),
        answered(Who::Unlimited),
        busy(Who::Tidegate),
        busy(Who::Unlimited),
        shown(noise),
        waits.quality()
    ));
    Ok(())
}

/// The row about what is served while nearly everything is refused.
fn refusing(table: &mut Table, pins: &Pins, scale: Scale) -> anyhow::Result<()> {
    eprintln!("gateway: ten times too many callers");
    let refusing = overload_check::refusing(pins, scale)?;
    table.row([
        "served/s at 10 × capacity".to_owned(),
        format!("{:.0}", refusing.goodput),
        "capacity through the gateway".to_owned(),
        format!("{:.0}", refusing.capacity),
        format!("{:.2}", refusing.goodput / refusing.capacity),
        GOODPUT.judge(refusing.goodput / refusing.capacity),
    ]);
    table.note(format!(
        "At 10 × capacity {:.1} % of {:.0} requests a second were refused.",
        refusing.refused_percent, refusing.offered
    ));
    Ok(())
}

/// The rows about the limiters alone.
fn checking(table: &mut Table) -> anyhow::Result<()> {
    eprintln!("gateway: the limiters alone");
    let [worker, fleet] = check::shedders();
    let [admitting, ending] = check::all_limiters()?;
    let mut row = |what: &str, nanos: f64, parts: String, goal: Goal| {
        let figure = format!("{nanos:.0} ns");
        table.row([
            what.to_owned(),
            figure,
            parts,
            String::new(),
            String::new(),
            goal.judge(nanos),
        ]);
    };
    let parts = format!("worker {worker:.0} ns, fleet {fleet:.0} ns");
    row("worker and fleet check", worker + fleet, parts, CHECK);
    let parts = format!("giving back, not included: {ending:.0} ns");
    row("all limiters in process", admitting, parts, ALL_LIMITERS);
    Ok(())
}

fn saturate(server: &Server, helpers: &[u32], time: Duration) -> anyhow::Result<Visit<Saturated>> {
    visiting::saturate(&mut generator(server)?, watched(server, helpers), time)
}

fn watched<'a>(server: &Server, helpers: &'a [u32]) -> Watched<'a> {
    Watched { server: server.process(), helpers }
}

fn generator(server: &Server) -> anyhow::Result<Generator<Http1>> {
    let questions = Questions::each(Wire::Page, 1)?;
    Generator::connect(server.door(Door::Http)?, CONNECTIONS, questions, |_| Ok(Http1::plain()))
}
