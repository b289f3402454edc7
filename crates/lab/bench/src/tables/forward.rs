//! The forwarder against a throttled service, beside the clients that users write themselves.
//!
//! Forwarders run on real queues, timers and sockets, and a throttled service in this process judges them by its own
//! log. The naive client and the exponential backoff run over the same sockets; the arithmetic of go-batcher runs in
//! virtual time against the same judge.

mod baselines;
mod fleet;
mod import;
mod leases;
mod queue;
mod steady;

use anyhow::Context;
use tokio::runtime::Builder;

use crate::goal::Goal;
use crate::scale::Scale;
use crate::table::Table;

pub(crate) use self::queue::measure_memory;

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

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = ["figure", "tidegate", "others", "goal"];
    let mut table = Table::new("13. The forwarder (`forward`)", &columns);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let mut rows = runtime.block_on(import::rows(scale))?;
    rows.extend(runtime.block_on(steady::rows(scale))?);
    rows.extend(runtime.block_on(leases::rows(scale))?);
    rows.extend(runtime.block_on(queue::rows(scale))?);
    for row in rows {
        let goal = row.goal.map_or_else(String::new, |goal| goal.judge(row.ours));
        table.row([row.what, row.shown, row.others, goal]);
    }
    table.note(
        "Forwarders, the throttled service and the other clients share this machine. \"Processes\" are forwarders with \
         their own leases in one process, on one queue in SQLite. Sends are counted at the service's socket, arrivals \
         after a simulated network delay of 10 ms (lognormal, deviation 0.5). go-batcher: its arithmetic in virtual time.",
    );
    Ok(table)
}
