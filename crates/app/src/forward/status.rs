//! `tidegate forward status` and `leases`: what a forwarder does now.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::Style;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::client::{CallError, ForwardClient, ServerArgs};
use super::job::ForecastTerms;
use super::terms::show_count;
use crate::cli::Format;
use crate::debug_client::client_runtime;
use crate::exit::{Exit, Failure};
use crate::output::{Cell, Clean, Output, StyledText, Table, style, write_json};

/// How often a watched status is read.
const INTERVAL: Duration = Duration::from_secs(1);
/// Moves the cursor home and clears what is below.
const HOME: &str = "\u{1b}[H\u{1b}[J";

/// The arguments of `forward status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Draw it again each second, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["format", "fail_if"])]
    watch: bool,
    /// Exit with 1 in this case; can be given several times.
    #[arg(long, value_name = "STATE", value_enum)]
    fail_if: Vec<FailureState>,
    /// How to write it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    server: ServerArgs,
}

/// A state that a probe may fail for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailureState {
    /// A type has dead letters.
    Dead,
    /// A type sends nothing, and something waits.
    Stalled,
    /// More arrives than leaves.
    Growing,
}

/// The arguments of `forward leases`.
#[derive(Debug, Args)]
pub(crate) struct LeasesArgs {
    /// How to write it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TypeList {
    pub(super) types: Vec<TypeView>,
}

/// A record type, as the API writes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TypeView {
    pub(super) record_type: String,
    target: String,
    mode: String,
    pub(super) waiting: u64,
    waiting_cost: u64,
    waiting_bytes: u64,
    pub(super) dead: u64,
    in_flight: u64,
    in_flight_limit: u64,
    rate: f64,
    counts: CountsTerms,
    slots: [u64; 2],
    members: u64,
    brake: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_for: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_error: Option<String>,
    forecast: ForecastTerms,
}

/// Counts since the start of the process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct CountsTerms {
    enqueued: u64,
    attempts: u64,
    retries: u64,
    delivered: u64,
    throttled: u64,
    failed: u64,
    ambiguous: u64,
    rejected: u64,
    dead: u64,
    stale: u64,
    queue_errors: u64,
}

impl TypeView {
    fn is_in(&self, state: FailureState) -> bool {
        match state {
            FailureState::Dead => self.dead > 0,
            FailureState::Stalled => self.waiting > 0 && self.forecast.state == "stalled",
            FailureState::Growing => self.forecast.state == "growing",
        }
    }

    fn row(&self) -> Vec<Cell> {
        let forecast = match self.forecast.state.as_str() {
            "done" => Cell::new("idle").styled(style::FAINT),
            "clears" => Cell::new(self.forecast.words()),
            _ => Cell::new(&self.forecast.state).styled(style::WARNING),
        };
        let mode = if self.mode == "running" { "" } else { &self.mode };
        let alarm = |count: u64, style: Style| match count {
            0 => Cell::new("0").right(),
            some => Cell::new(show_count(some)).right().styled(style),
        };
        vec![
            Cell::new(&self.record_type).styled(style::STRONG),
            Cell::new(&self.target),
            Cell::new(mode).styled(style::WARNING),
            Cell::new(show_count(self.waiting)).right(),
            Cell::new(show_count(self.in_flight)).right(),
            Cell::new(format!("{:.1}", self.rate)).right(),
            Cell::new(show_count(self.counts.delivered)).right(),
            alarm(self.counts.throttled, style::PLAIN),
            alarm(self.dead, style::BAD),
            Cell::new(format!("{} of {}", self.slots[0], self.slots[1])).right(),
            Cell::new(format!("{:.0} %", self.brake * 100.0)).right(),
            forecast,
            Cell::new(if self.waiting > 0 { &self.forecast.cause } else { "" }),
        ]
    }
}

const COLUMNS: [&str; 13] = [
    "type",
    "target",
    "mode",
    "waiting",
    "in flight",
    "per second",
    "delivered",
    "throttled",
    "dead",
    "slots",
    "brake",
    "forecast",
    "bound by",
];

impl TypeList {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut table = Table::titled(&COLUMNS);
        for each in &self.types {
            table.row(each.row());
        }
        table.write(out, "")?;
        for each in &self.types {
            let name = &each.record_type;
            if let Some(seconds) = each.closed_for {
                let text = format!("{name}: the target asked to wait for another {seconds:.1} s");
                writeln!(out, "{}", StyledText(style::WARNING, Clean(text)))?;
            }
            if let Some(error) = &each.lease_error {
                let text = format!("{name}: the last heartbeat of the leases failed: {error}");
                writeln!(out, "{}", StyledText(style::WARNING, Clean(text)))?;
            }
        }
        Ok(())
    }
}

pub(crate) fn run(args: &StatusArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let runtime = client_runtime()?;
    if args.watch {
        return runtime.block_on(watch(&client, out));
    }
    let found = runtime.block_on(client.get::<TypeList>("/v1/types"));
    let list = found.map_err(|error| client.complaint(&error))?;
    match args.format {
        Format::Json => write_json(out, &list)?,
        Format::Text => list.write(out)?,
    }
    let fails = list.types.iter().any(|each| args.fail_if.iter().any(|state| each.is_in(*state)));
    Ok(Exit::of_check(!fails))
}

/// Draws it each second. A forwarder that restarts is waited for.
async fn watch(client: &ForwardClient, out: &mut Output) -> Result<Exit, Failure> {
    let on_terminal = io::stdout().is_terminal();
    loop {
        let list: Result<TypeList, CallError> = client.get("/v1/types").await;
        if on_terminal {
            write!(out, "{HOME}")?;
        }
        match list {
            Ok(list) => list.write(out)?,
            Err(error) => {
                let complaint = client.complaint(&error);
                if error.status.is_some() {
                    return Err(complaint.into());
                }
                writeln!(out, "{}", StyledText(style::WARNING, Clean(complaint.message)))?;
            }
        }
        if on_terminal {
            writeln!(out, "{}", StyledText(style::FAINT, "\nCtrl-C ends it"))?;
        }
        out.flush()?;
        if out.is_closed() {
            return Ok(Exit::Fine);
        }
        sleep(INTERVAL).await;
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct LeaseList {
    leases: Vec<LeaseTerms>,
}

/// A member of a target, as the API writes it.
#[derive(Debug, Serialize, Deserialize)]
struct LeaseTerms {
    target: String,
    member: String,
    pool: String,
    wants: u64,
    slots: u64,
    of: u64,
}

pub(crate) fn run_leases(args: &LeasesArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let found = client_runtime()?.block_on(client.get::<LeaseList>("/v1/leases"));
    let list = found.map_err(|error| client.complaint(&error))?;
    match args.format {
        Format::Json => write_json(out, &list)?,
        Format::Text if list.leases.is_empty() => writeln!(out, "no target has a member yet")?,
        Format::Text => {
            let mut table = Table::titled(&["target", "member", "pool", "wants", "slots", "of"]);
            for lease in &list.leases {
                table.row([
                    Cell::new(&lease.target).styled(style::STRONG),
                    Cell::new(&lease.member),
                    Cell::new(&lease.pool),
                    Cell::new(lease.wants).right(),
                    Cell::new(lease.slots).right(),
                    Cell::new(lease.of).right(),
                ]);
            }
            table.write(out, "")?;
        }
    }
    Ok(Exit::Fine)
}
