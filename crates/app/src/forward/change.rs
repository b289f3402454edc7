//! `tidegate forward limit`, `pause`, `resume` and `drain`.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bar::ProgressBar;
use super::client::{AccessArgs, ForwardClient, ServerArgs};
use super::status::TypeList;
use super::terms::{LimitTerms, show_count, show_limit};
use crate::cli::Format;
use crate::debug_client::client_runtime;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Clean, Output, Table, style, write_json};

/// How often a drain is looked at.
const INTERVAL: Duration = Duration::from_millis(250);

/// What can be done with limits.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// Show the limits of every target.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(LimitShowArgs),
    /// Replace the limits of a target, for all processes that share it.
    ///
    /// The new limits replace all old ones. They are kept in the lease store and win over the document; with leases in
    /// memory they last until the process ends. Every process follows within five seconds, and until then all stay
    /// together below the higher of the old and the new limits.
    #[command(after_help = SET_EXAMPLES)]
    Set(LimitSetArgs),
}

const SHOW_EXAMPLES: &str = "\
Examples:
  tidegate forward limit show
  tidegate forward limit show --format json | jq '.targets[].limits'";

const SET_EXAMPLES: &str = "\
Examples:
  tidegate forward limit set database --limit units=10000/1s --dry-run
  tidegate forward limit set database --limit operations=20/1s --limit bytes=2GiB/1m

Exit codes: 0 the limits are in force, 2 they cannot be kept or the forwarder cannot be reached.";

/// The arguments of `forward limit show`.
#[derive(Debug, Args)]
pub(crate) struct LimitShowArgs {
    /// How to write it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    server: ServerArgs,
}

/// The arguments of `forward limit set`.
#[derive(Debug, Args)]
pub(crate) struct LimitSetArgs {
    /// The name of the target.
    target: String,
    /// A limit: `operations=20/1s`, `bytes=2GiB/1m` or `units=20000/1s`; give all that should be in force.
    #[arg(long = "limit", value_name = "LIMIT", required = true)]
    limits: Vec<LimitTerms>,
    /// Show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The arguments of `forward pause` and `forward resume`.
#[derive(Debug, Args)]
pub(crate) struct ModeArgs {
    /// The record type.
    #[arg(value_name = "TYPE")]
    record_type: String,
    /// The forwarder: HOST:PORT, or a URL; can be given several times, because a mode belongs to a process.
    #[arg(
        long,
        value_name = "SERVER",
        env = "TIDEGATE_FORWARD_SERVER",
        default_value = "localhost:8090"
    )]
    server: Vec<String>,
    #[command(flatten)]
    access: AccessArgs,
}

/// The arguments of `forward drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    mode: ModeArgs,
    /// Wait until nothing of the type waits.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct TargetList {
    targets: Vec<TargetTerms>,
}

/// A target, as the API writes it.
#[derive(Debug, Serialize, Deserialize)]
struct TargetTerms {
    target: String,
    limits: Vec<LimitTerms>,
    slots: u64,
    slots_held: u64,
    members: u64,
    utilisation: f64,
    brake: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_for: Option<f64>,
    types: Vec<String>,
}

impl TargetTerms {
    fn limits(&self) -> String {
        in_words(&self.limits)
    }
}

fn in_words(limits: &[LimitTerms]) -> String {
    let words =
        limits.iter().map(|limit| show_limit(limit.dimension, limit.amount, limit.window_ms));
    words.collect::<Vec<_>>().join(", ")
}

pub(crate) fn run_limit(command: &LimitCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        LimitCommand::Show(args) => show(args, out),
        LimitCommand::Set(args) => set(args, out),
    }
}

fn show(args: &LimitShowArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let found = client_runtime()?.block_on(client.get::<TargetList>("/v1/targets"));
    let list = found.map_err(|error| client.complaint(&error))?;
    if args.format == Format::Json {
        write_json(out, &list)?;
        return Ok(Exit::Fine);
    }
    let mut table = Table::titled(&["target", "limits", "slots", "members", "types"]);
    for target in &list.targets {
        table.row([
            Cell::new(&target.target).styled(style::STRONG),
            Cell::new(target.limits()),
            Cell::new(target.slots).right(),
            Cell::new(target.members).right(),
            Cell::new(target.types.join(", ")),
        ]);
    }
    table.write(out, "")?;
    Ok(Exit::Fine)
}

fn set(args: &LimitSetArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let runtime = client_runtime()?;
    let found = runtime.block_on(client.get::<TargetList>("/v1/targets"));
    let list = found.map_err(|error| client.complaint(&error))?;
    let Some(target) = list.targets.iter().find(|target| target.target == args.target) else {
        let names: Vec<&str> = list.targets.iter().map(|target| target.target.as_str()).collect();
        let message = format!("the forwarder has no target `{}`", args.target);
        return Err(Complaint::new(message, format!("it has: {}", names.join(", "))).into());
    };
    let name = Clean(&target.target);
    let (old, new) = (target.limits(), in_words(&args.limits));
    writeln!(out, "{name} had:   {old}")?;
    if args.dry_run {
        writeln!(out, "would get: {new}")?;
        writeln!(out, "nothing was changed (--dry-run)")?;
        return Ok(Exit::Fine);
    }
    let body = json!({ "limits": args.limits });
    let path = format!("/v1/targets/{}/limits", args.target);
    let changed = runtime.block_on(client.call::<Value>(Method::PUT, &path, &body));
    changed.map_err(|error| client.complaint(&error))?;
    writeln!(out, "it has now: {new}")?;
    Ok(Exit::Fine)
}

/// Changes the mode of a type in each process.
pub(crate) fn run_mode(word: &str, args: &ModeArgs, out: &mut Output) -> Result<Exit, Failure> {
    let runtime = client_runtime()?;
    for server in &args.server {
        let client = ForwardClient::new(server, &args.access)?;
        let path = format!("/v1/types/{}/{word}", args.record_type);
        let answer = runtime.block_on(client.call::<Value>(Method::POST, &path, &json!({})));
        let answer = answer.map_err(|error| client.complaint(&error))?;
        let mode = answer["mode"].as_str().unwrap_or_default().to_owned();
        writeln!(out, "{} is {} at {}", Clean(&args.record_type), Clean(mode), client.name())?;
    }
    Ok(Exit::Fine)
}

pub(crate) fn run_drain(args: &DrainArgs, out: &mut Output) -> Result<Exit, Failure> {
    let exit = run_mode("drain", &args.mode, out)?;
    let Some(first) = args.mode.server.first().filter(|_| args.wait) else { return Ok(exit) };
    let client = ForwardClient::new(first, &args.mode.access)?;
    let mut bar = ProgressBar::new(false);
    client_runtime()?.block_on(async {
        loop {
            let list: TypeList =
                client.get("/v1/types").await.map_err(|error| client.complaint(&error))?;
            let mut types = list.types.into_iter();
            let waiting = types.find(|each| each.record_type == args.mode.record_type);
            let waiting = waiting.map_or(0, |each| each.waiting);
            let text = format!("{} records wait", show_count(waiting));
            if waiting == 0 {
                bar.finish(None, &text);
                return Ok::<_, Complaint>(());
            }
            bar.draw(None, &text);
            sleep(INTERVAL).await;
        }
    })?;
    Ok(Exit::Fine)
}
