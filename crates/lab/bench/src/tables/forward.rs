//! The forwarder against a throttled service, beside the clients that users write themselves.
//!
//! Forwarders run on real queues, timers and sockets, and a throttled service in this process judges them by its own
//! log. The naive client and the exponential backoff run over the same sockets; the arithmetic of go-batcher runs in
//! virtual time against the same judge.

mod baselines;
mod charts;
mod costs;
mod coverage;
mod fleet;
mod import;
mod leases;
mod members;
mod queue;
mod rates;
mod steady;

use anyhow::Context;
use clap::ValueEnum;
use tokio::runtime::Builder;

use crate::goal::Goal;
use crate::scale::Scale;
use crate::table::Table;

pub(crate) use self::charts::draw_charts;
pub(crate) use self::costs::measure_processor;
pub(crate) use self::queue::measure_memory;

/// A group of rows of this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ForwardGroup {
    /// 10,000 records of 10 units against 20,000 units a second.
    Import,
    /// A steady stream against each kind of limit.
    Steady,
    /// The error of the pace, in virtual time.
    Rates,
    /// Fair shares, and the calls of the lease store.
    Leases,
    /// Members that join, rest and die.
    Members,
    /// The durable queue.
    Queue,
    /// Throughput with a limit, and the processor.
    Costs,
    /// Intervals of forecasts.
    Coverage,
}

/// One row: a figure, those of the others, and the goal.
struct Row {
    what: String,
    ours: f64,
    shown: String,
    others: String,
    goal: Option<Goal>,
}

impl Row {
    fn new(what: impl Into<String>, ours: f64, goal: Goal) -> Self {
        let shown = if ours.abs() >= 100.0 { format!("{ours:.0}") } else { format!("{ours:.3}") };
        Row { what: what.into(), ours, shown, others: String::new(), goal: Some(goal) }
    }

    /// With the figures of others.
    fn beside(mut self, others: impl Into<String>) -> Self {
        self.others = others.into();
        self
    }

    /// Shown in another way than as a number.
    fn shown(mut self, shown: impl Into<String>) -> Self {
        self.shown = shown.into();
        self
    }
}

pub(super) fn table(scale: Scale, only: &[ForwardGroup]) -> anyhow::Result<Table> {
    let columns = ["figure", "tidegate", "others", "goal"];
    let mut table = Table::new("13. The forwarder (`forward`)", &columns);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    for group in ForwardGroup::value_variants() {
        if !only.is_empty() && !only.contains(group) {
            continue;
        }
        let rows = match group {
            ForwardGroup::Import => runtime.block_on(import::rows(scale))?,
            ForwardGroup::Steady => runtime.block_on(steady::rows(scale))?,
            ForwardGroup::Rates => rates::rows()?,
            ForwardGroup::Leases => runtime.block_on(leases::rows(scale))?,
            ForwardGroup::Members => runtime.block_on(members::rows(scale))?,
            ForwardGroup::Queue => runtime.block_on(queue::rows(scale))?,
            ForwardGroup::Costs => runtime.block_on(costs::rows(scale))?,
            ForwardGroup::Coverage => runtime.block_on(coverage::rows(scale))?,
        };
        for row in rows {
            let goal = row.goal.map_or_else(String::new, |goal| goal.judge(row.ours));
            table.row([row.what, row.shown, row.others, goal]);
        }
    }
    table.note(
        "Forwarders, the throttled service and the other clients share this machine. \"Processes\" are forwarders with \
         their own leases in one process, on one queue in SQLite. Sends count at their departure from the pacer, \
         arrivals after what the machine's scheduler adds and a simulated network delay of 10 ms (lognormal, deviation 0.5). go-batcher: its arithmetic in virtual time. \
         Lost records and duplicates under faults: `make soak`.",
    );
    Ok(table)
}
