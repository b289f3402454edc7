//! An API of fixed capacity under a real overload, with the gateway in front of it and without.
//!
//! Real processes on this machine and open-loop callers, in the simulator's mix. The API sleeps
//! instead of working, with a fixed number of slots: no processor is short, so the figures show
//! queueing only.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use tidegate_overload::Category;

use super::gateway::{gateway, peer_program};
use crate::load::{ArrivalPlan, CallerKind, CallerOutcome, Crowd, Enough, Generator, Http1};
use crate::peer::{self, Capacity};
use crate::processor::{Pins, spent};
use crate::questions::{Questions, Wire};
use crate::scale::Scale;
use crate::server::{Door, Server};
use crate::table::Table;

/// For the table: 400 requests a second.
const SLOW: Capacity = Capacity { slots: 40, millis: 100 };
/// Of the row about refusing: 800 requests a second. Ten times as many keep the gateway busy
/// without saturating its processor.
const BRISK: Capacity = Capacity { slots: 40, millis: 50 };

/// Critical requests, POST, GET and test in the mix of docs/overload.md, in percent.
const MIX: [(Category, u64); 4] =
    [(Category::Critical, 5), (Category::Post, 15), (Category::Get, 60), (Category::Test, 20)];

/// Client addresses of each kind, which the worker shedder distinguishes.
const CLIENTS: u64 = 1_000;

/// How long a caller waits before it gives up.
const PATIENCE: Duration = Duration::from_secs(1);
/// Not measured.
const WARM_UP: Duration = Duration::from_secs(2);

/// Half of the capacity, and ten times as much.
const LOADS: [(&str, f64); 2] = [("0.5 × capacity", 0.5), ("10 × capacity", 10.0)];

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = [
        "load",
        "in front",
        "critical: served in time",
        "p50 ms",
        "p99 ms",
        "all: served in time/s",
        "of capacity",
        "refused",
        "gave up",
    ];
    let mut table = Table::new("11. Overload of a real API (`overload-check`)", &columns);
    let pins = Pins::new()?;
    let mut noise: f64 = 0.0;
    for (load, factor) in LOADS {
        for in_front in [InFront::Nothing, InFront::Gateway] {
            eprintln!("overload-check: {load}, {}", in_front.name());
            let site = Site::open(SLOW, in_front, &pins)?;
            let plan = ArrivalPlan {
                per_second: SLOW.per_second() * factor,
                time: scale.overload_time,
                patience: PATIENCE,
            };
            let (outcomes, others) = site.run(plan, &pins)?;
            noise = noise.max(others);
            table.row(row(load, in_front, &outcomes, scale.overload_time)?);
        }
    }
    table.note(format!(
        "The API serves {} requests at once, {} ms each: {:.0} a second. Callers arrive at random, {:.0} s in each row, and wait \
         {PATIENCE:?} at most; 5 % are critical, 15 % POST, 60 % GET, 20 % test. Other processes kept up to {noise:.2} processors busy.",
        SLOW.slots,
        SLOW.millis,
        SLOW.per_second(),
        scale.overload_time.as_secs_f64(),
    ));
    Ok(table)
}

fn row(
    load: &str,
    in_front: InFront,
    outcomes: &[CallerOutcome],
    time: Duration,
) -> anyhow::Result<[String; 9]> {
    let critical = outcomes.first().context("critical callers come first")?;
    let sum = |of: fn(&CallerOutcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
    let arrived = sum(|outcome| outcome.arrived);
    let per_second = sum(|outcome| outcome.served.len()) / time.as_secs_f64();
    let millis = |quantile| match critical.served.len() {
        0 => "none".to_owned(),
        _ => format!("{:.1}", critical.served.value_at_quantile(quantile) as f64 / 1e6),
    };
    let share = |of: f64| format!("{:.1} %", 100.0 * of / arrived);
    let served = 100.0 * critical.served.len() as f64 / critical.arrived as f64;
    Ok([
        load.to_owned(),
        in_front.name().to_owned(),
        format!("{served:.2} %"),
        millis(0.5),
        millis(0.99),
        format!("{per_second:.0}"),
        format!("{:.2}", per_second / SLOW.per_second()),
        share(sum(|outcome| outcome.refused)),
        share(sum(|outcome| outcome.given_up)),
    ])
}

/// Goodput while nearly all requests are refused.
pub(super) struct RefusalFigures {
    pub(super) offered: f64,
    /// Requests served a second at the API's capacity.
    pub(super) capacity: f64,
    pub(super) goodput: f64,
    pub(super) refused_percent: f64,
}

/// Loads an API behind the gateway with its capacity, then with ten times as much.
///
/// # Errors
/// When a process does not start, or an answer is malformed.
pub(super) fn refusing(pins: &Pins, scale: Scale) -> anyhow::Result<RefusalFigures> {
    let site = Site::open(BRISK, InFront::Gateway, pins)?;
    let capacity = pins.on_generator(|| site.capacity(scale.server_time))?;
    let offered = BRISK.per_second() * 10.0;
    let plan = ArrivalPlan { per_second: offered, time: scale.overload_time, patience: PATIENCE };
    let (outcomes, _) = site.run(plan, pins)?;
    let sum = |of: fn(&CallerOutcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
    Ok(RefusalFigures {
        offered,
        capacity,
        goodput: sum(|outcome| outcome.served.len()) / scale.overload_time.as_secs_f64(),
        refused_percent: 100.0 * sum(|outcome| outcome.refused) / sum(|outcome| outcome.arrived),
    })
}

/// The server in front of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFront {
    Nothing,
    Gateway,
}

impl InFront {
    const fn name(self) -> &'static str {
        match self {
            InFront::Nothing => "nothing",
            InFront::Gateway => "tidegate",
        }
    }
}

/// The API and the gateway in front of it.
struct Site {
    api: Server,
    gateway: Option<Server>,
    capacity: Capacity,
}

impl Site {
    fn open(capacity: Capacity, in_front: InFront, pins: &Pins) -> anyhow::Result<Self> {
        let program = peer_program()?;
        pins.on_server(|| {
            let [slots, millis] = [capacity.slots.to_string(), capacity.millis.to_string()];
            let mut api = Command::new(&program);
            api.arg(peer::PeerName::SlowApi.to_string());
            api.args(["--slots", &slots, "--millis", &millis]);
            let api = Server::start(api, &[Door::Http])?;
            let gateway = match in_front {
                InFront::Nothing => None,
                InFront::Gateway => {
                    let command = gateway(&program, api.door(Door::Http)?, &["--gate", &slots]);
                    Some(Server::start(command, &[Door::Http])?)
                }
            };
            Ok(Site { api, gateway, capacity })
        })
    }

    fn entrance(&self) -> &Server {
        self.gateway.as_ref().unwrap_or(&self.api)
    }

    /// Requests served a second with as many callers as slots.
    fn capacity(&self, time: Duration) -> anyhow::Result<f64> {
        let questions = Questions::each(Wire::Call(Category::Critical), CLIENTS)?;
        let address = self.entrance().door(Door::Http)?;
        let protocol = |_: &Questions| Ok(Http1::plain());
        let mut generator = Generator::connect(address, self.capacity.slots, questions, protocol)?;
        generator.saturate(Enough::After(WARM_UP))?;
        let process = self.entrance().process();
        let (served, spent) = spent(&[process], &[], || generator.saturate(Enough::After(time)))?;
        Ok(served as f64 / spent.time.as_secs_f64())
    }

    /// Runs callers after a warm-up. Also returns how many processors other processes kept busy.
    fn run(&self, plan: ArrivalPlan, pins: &Pins) -> anyhow::Result<(Vec<CallerOutcome>, f64)> {
        let kinds = MIX.map(|(category, percent)| {
            Ok(CallerKind { questions: Questions::each(Wire::Call(category), CLIENTS)?, percent })
        });
        let kinds = kinds.into_iter().collect::<anyhow::Result<Vec<CallerKind>>>()?;
        pins.on_generator(|| {
            let mut crowd = Crowd::new(self.entrance().door(Door::Http)?, kinds)?;
            crowd.run(ArrivalPlan { time: WARM_UP, ..plan })?;
            let process = self.entrance().process();
            let helpers: Vec<u32> = self.gateway.iter().map(|_| self.api.process()).collect();
            let (outcomes, spent) = spent(&[process], &helpers, || crowd.run(plan))?;
            Ok((outcomes, spent.others()))
        })
    }
}
