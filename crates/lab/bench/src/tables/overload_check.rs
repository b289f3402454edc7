//! An API of fixed capacity under a real overload, with the gateway in front of it and without.
//!
//! Real processes on this machine, callers that arrive whether or not others were answered, in
//! the mix of the simulator. The API is small on purpose: so many slots and a wait in place of
//! work, so that no processor is short and what is seen is what queues do.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use tidegate_overload::Category;

use super::gateway::{gateway, peer_program};
use crate::load::{Crowd, Enough, Fate, Generator, Http1, Kind, Rush};
use crate::peer::{self, Capacity};
use crate::processor::{Pins, spent};
use crate::questions::{Questions, Wire};
use crate::scale::Scale;
use crate::server::{Door, Server};
use crate::table::Table;

/// Of the check: 400 requests a second.
const SLOW: Capacity = Capacity { slots: 40, millis: 100 };
/// Of the row about refusing: 800 requests a second. Ten times as many are work for the gateway,
/// and little enough that processors which others use as well are not what is measured.
const BRISK: Capacity = Capacity { slots: 40, millis: 50 };

/// Critical requests, POST, GET and test in the mix of docs/overload.md, in percent.
const MIX: [(Category, u64); 4] =
    [(Category::Critical, 5), (Category::Post, 15), (Category::Get, 60), (Category::Test, 20)];

/// Clients of each kind, by their addresses. The worker shedder tells them apart.
const CLIENTS: u64 = 1_000;

/// How long a caller waits before it gives up.
const PATIENCE: Duration = Duration::from_secs(1);
/// Before anything counts.
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
            let rush = Rush {
                per_second: SLOW.per_second() * factor,
                time: scale.rush,
                patience: PATIENCE,
            };
            let (fates, others) = site.rush(rush, &pins)?;
            noise = noise.max(others);
            table.row(row(load, in_front, &fates, scale.rush)?);
        }
    }
    table.note(format!(
        "The API works on {} requests at once, {} ms each: {:.0} a second. Callers arrive at random, {:.0} s in each row, and wait \
         {PATIENCE:?} at most; 5 % are critical, 15 % POST, 60 % GET, 20 % test. Others kept up to {noise:.2} processors busy.",
        SLOW.slots,
        SLOW.millis,
        SLOW.per_second(),
        scale.rush.as_secs_f64(),
    ));
    Ok(table)
}

fn row(
    load: &str,
    in_front: InFront,
    fates: &[Fate],
    time: Duration,
) -> anyhow::Result<[String; 9]> {
    let critical = fates.first().context("critical callers come first")?;
    let sum = |of: fn(&Fate) -> u64| fates.iter().map(of).sum::<u64>() as f64;
    let arrived = sum(|fate| fate.arrived);
    let per_second = sum(|fate| fate.served.len()) / time.as_secs_f64();
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
        share(sum(|fate| fate.refused)),
        share(sum(|fate| fate.given_up)),
    ])
}

/// What is served while nearly everything is refused.
pub(super) struct Refusing {
    pub(super) offered: f64,
    /// A second, of an API that is asked no more than it can do.
    pub(super) capacity: f64,
    pub(super) goodput: f64,
    pub(super) refused_percent: f64,
}

/// Asks a brisk API behind the gateway as much as it can do, and then ten times as much.
///
/// # Errors
/// When a process does not start, or an answer makes no sense.
pub(super) fn refusing(pins: &Pins, scale: Scale) -> anyhow::Result<Refusing> {
    let site = Site::open(BRISK, InFront::Gateway, pins)?;
    let capacity = pins.on_generator(|| site.capacity(scale.visit))?;
    let offered = BRISK.per_second() * 10.0;
    let rush = Rush { per_second: offered, time: scale.rush, patience: PATIENCE };
    let (fates, _) = site.rush(rush, pins)?;
    let sum = |of: fn(&Fate) -> u64| fates.iter().map(of).sum::<u64>() as f64;
    Ok(Refusing {
        offered,
        capacity,
        goodput: sum(|fate| fate.served.len()) / scale.rush.as_secs_f64(),
        refused_percent: 100.0 * sum(|fate| fate.refused) / sum(|fate| fate.arrived),
    })
}

/// What callers meet first.
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

/// The API, with what stands in front of it.
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
            api.arg(peer::Name::SlowApi.to_string());
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

    /// Served in a second when nobody comes before another has left.
    fn capacity(&self, time: Duration) -> anyhow::Result<f64> {
        let questions = Questions::each(Wire::Call(Category::Critical), CLIENTS)?;
        let address = self.entrance().door(Door::Http)?;
        let protocol = |_: &Questions| Ok(Http1::plain());
        let mut generator = Generator::connect(address, self.capacity.slots, questions, protocol)?;
        generator.saturate(Enough::After(WARM_UP))?;
        let process = self.entrance().process();
        let (served, spent) = spent(process, &[], || generator.saturate(Enough::After(time)))?;
        Ok(served as f64 / spent.time.as_secs_f64())
    }

    /// Lets callers come. The first of them do not count. Says also how many processors others
    /// kept busy.
    fn rush(&self, rush: Rush, pins: &Pins) -> anyhow::Result<(Vec<Fate>, f64)> {
        let kinds = MIX.map(|(category, percent)| {
            Ok(Kind { questions: Questions::each(Wire::Call(category), CLIENTS)?, percent })
        });
        let kinds = kinds.into_iter().collect::<anyhow::Result<Vec<Kind>>>()?;
        pins.on_generator(|| {
            let mut crowd = Crowd::new(self.entrance().door(Door::Http)?, kinds)?;
            crowd.rush(Rush { time: WARM_UP, ..rush })?;
            let process = self.entrance().process();
            let helpers: Vec<u32> = self.gateway.iter().map(|_| self.api.process()).collect();
            let (fates, spent) = spent(process, &helpers, || crowd.rush(rush))?;
            Ok((fates, spent.others()))
        })
    }
}
