//! The gateway as a reverse proxy, compared with nginx, HAProxy and Envoy.
//!
//! All proxies forward to the same upstream, with one worker each, over persistent
//! connections. CPU time per request is the figure to trust: it depends least on other load
//! of the machine. The canned upstream shares the generator's processor; both take less of
//! it than a proxy takes of its own. An nginx as the upstream takes more, so with that one
//! only CPU per request is compared.

mod check;
mod proxies;
mod waits;

use std::time::Duration;

use crate::goal::Goal;
use crate::load::{Generator, Http1};
use crate::processor::Pins;
use crate::questions::{Questions, Wire};
use crate::rounds::{Measurement, Rounds};
use crate::scale::Scale;
use crate::server::{Door, Server};
use crate::spread::Spread;
use crate::table::Table;

use super::column::{Column, micros, thousands, whole_micros};
use super::server_figures::{self, SaturationFigures, WatchedProcesses};
use super::{Tools, overload_check};
use proxies::{Proxies, ProxyName, UpstreamKind};

pub(super) use proxies::{gateway, peer_program};

/// Connections, with one request at a time on each.
const CONNECTIONS: usize = 64;

const AGAINST_NGINX: Goal = Goal::at_least(0.8);
const AGAINST_HAPROXY: Goal = Goal::at_least(0.8);
const AGAINST_ENVOY: Goal = Goal::at_least(1.0);
/// The inverse of the goal for requests a second.
const CPU_AGAINST_NGINX: Goal = Goal::at_most(1.25);
const CPU_AGAINST_HAPROXY: Goal = Goal::at_most(1.25);
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
    let proxies = Proxies::start(UpstreamKind::Canned, tools, &pins)?;
    let most = compare_proxies(&mut table, &proxies, &pins, scale)?;
    drop(proxies);
    compare_with_nginx_upstream(&mut table, tools, &pins, scale)?;
    waiting(&mut table, &pins, scale, most / 2.0)?;
    refusing(&mut table, &pins, scale)?;
    checking(&mut table)?;
    if !pins.are_apart() {
        table.note("Servers and generator shared one processor, so requests per second and waits mean little.");
    }
    Ok(table)
}

/// The rows that compare proxies: all of them run, one at a time is loaded. Returns the requests
/// a second of our gateway without limiters.
fn compare_proxies(
    table: &mut Table,
    proxies: &Proxies,
    pins: &Pins,
    scale: Scale,
) -> anyhow::Result<f64> {
    let servers = proxies.servers();
    eprintln!("gateway: {} proxies take turns", servers.len());
    let helpers = [proxies.upstream()];
    let calls = Rounds::run(servers.iter().copied(), scale.server_rounds, |server| {
        pins.on_generator(|| saturate(server, &helpers, scale.server_time))
    })?;
    let rate: Column<SaturationFigures> = Column { of: |call| call.per_second, shown: thousands };
    let cpu: Column<SaturationFigures> = Column { of: |call| call.cpu_micros, shown: micros };
    let what = "requests/s at saturation";
    rate.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Nginx], AGAINST_NGINX);
    rate.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Haproxy], AGAINST_HAPROXY);
    rate.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Envoy], AGAINST_ENVOY);
    let what = "CPU per request";
    cpu.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Nginx], CPU_AGAINST_NGINX);
    cpu.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Haproxy], CPU_AGAINST_HAPROXY);
    cpu.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Envoy], CPU_AGAINST_ENVOY);
    let what = "requests/s with all limiters";
    rate.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Unlimited], LIMITERS_COST);

    table.note(format!(
        "{CONNECTIONS} connections, one request at a time on each, answers of 1 KiB. Requests: {}.",
        calls.quality()
    ));
    table.note(format!(
        "With {}: {} of the requests/s with {}.",
        ProxyName::Silent,
        calls.ratio(ProxyName::Silent, ProxyName::Unlimited, rate.of),
        ProxyName::Unlimited
    ));
    for missing in proxies.missing() {
        table.note(format!("Not measured: {missing:#}."));
    }
    Ok(calls.median(ProxyName::Unlimited, rate.of))
}

/// The same proxies with an nginx as the upstream, which serves a file of 1 KiB.
fn compare_with_nginx_upstream(
    table: &mut Table,
    tools: &Tools,
    pins: &Pins,
    scale: Scale,
) -> anyhow::Result<()> {
    let proxies = match Proxies::start(UpstreamKind::Nginx, tools, pins) {
        Ok(proxies) => proxies,
        Err(error) => {
            table.note(format!("Not measured with nginx as the upstream: {error:#}."));
            return Ok(());
        }
    };
    let servers = proxies.servers();
    eprintln!("gateway: {} proxies take turns in front of nginx", servers.len());
    let helpers = [proxies.upstream()];
    let calls = Rounds::run(servers.iter().copied(), scale.server_rounds, |server| {
        pins.on_generator(|| saturate(server, &helpers, scale.server_time))
    })?;
    let cpu: Column<SaturationFigures> = Column { of: |call| call.cpu_micros, shown: micros };
    let what = "CPU per request, nginx as the upstream";
    cpu.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Nginx], CPU_AGAINST_NGINX);
    cpu.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Haproxy], CPU_AGAINST_HAPROXY);
    cpu.row(table, what, &calls, [ProxyName::Tidegate, ProxyName::Envoy], CPU_AGAINST_ENVOY);
    table.note(format!(
        "With an nginx as the upstream, which serves a file of 1 KiB: {}.",
        calls.quality()
    ));
    Ok(())
}

/// The row about the latency that the limiters add.
fn waiting(table: &mut Table, pins: &Pins, scale: Scale, half: f64) -> anyhow::Result<()> {
    eprintln!("gateway: callers arrive {half:.0} times a second");
    let waits = waits::measure(pins, scale, half)?;
    let shown =
        |(mean, more): (f64, Spread)| format!("{mean:+.0} µs ({:+.0}–{:+.0})", more.low, more.high);
    let more = waits.more_micros(ProxyName::Tidegate, ProxyName::Unlimited);
    table.row([
        "p99 at half load with all limiters".to_owned(),
        whole_micros(waits.p99_micros(ProxyName::Tidegate)),
        ProxyName::Unlimited.to_string(),
        whole_micros(waits.p99_micros(ProxyName::Unlimited)),
        shown(more),
        LIMITERS_WAIT.judge(more.0),
    ]);
    let noise = waits.more_micros(ProxyName::UnlimitedToo, ProxyName::Unlimited);
    let busy = |who| waits.median(who, |waits| waits.busy_percent);
    let answered = |who| waits.median(who, |waits| waits.per_second);
    table.note(format!(
        "Arrivals: {half:.0} a second, of which {:.0} and {:.0} were answered; waits counted from when a caller arrived. \
         The gateways were busy for {:.0} % and {:.0} % of the time. Two without limiters differ by {}. Waits: {}.",
        answered(ProxyName::Tidegate),
        answered(ProxyName::Unlimited),
        busy(ProxyName::Tidegate),
        busy(ProxyName::Unlimited),
        shown(noise),
        waits.quality()
    ));
    Ok(())
}

/// The row about goodput while nearly all requests are refused.
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

/// The rows about the limiters without a gateway.
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

fn saturate(
    server: &Server,
    helpers: &[u32],
    time: Duration,
) -> anyhow::Result<Measurement<SaturationFigures>> {
    let watched = WatchedProcesses { servers: &[server.process()], helpers };
    server_figures::saturate(&mut generator(server)?, watched, time)
}

fn generator(server: &Server) -> anyhow::Result<Generator<Http1>> {
    let questions = Questions::each(Wire::Page, 1)?;
    Generator::connect(server.door(Door::Http)?, CONNECTIONS, questions, |_| Ok(Http1::plain()))
}
