//! `tidegate forward dead`: records that are not delivered any more.

use std::io::Write;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{ForwardClient, ServerArgs};
use super::terms::show_count;
use crate::cli::Format;
use crate::debug_client::client_runtime;
use crate::exit::{Exit, Failure};
use crate::output::{Cell, Clean, Output, Table, style, write_json};

/// What can be done with dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// List the dead letters of a type, with their reasons.
    #[command(after_help = LIST_EXAMPLES)]
    List(DeadListArgs),
    /// Show one dead letter with its header fields and its body. Credentials are hidden.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(DeadShowArgs),
    /// Enqueue dead letters again, under their ids. Says what it would do unless `--yes` is given.
    #[command(after_help = REDRIVE_EXAMPLES)]
    Redrive(RedriveArgs),
    /// Delete dead letters for good. Says what it would do unless `--yes` is given.
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(PurgeArgs),
}

const LIST_EXAMPLES: &str = "\
Examples:
  tidegate forward dead list orders
  tidegate forward dead list orders --format json | jq -r '.dead_letters[] | [.id, .detail] | @tsv'

Exit codes: 0 there are none, 1 there are some, 2 the forwarder cannot be reached.";

const SHOW_EXAMPLES: &str = "\
Examples:
  tidegate forward dead show orders 01JCWZ2M5S0000V7Q4XZ00000A";

const REDRIVE_EXAMPLES: &str = "\
Examples:
  tidegate forward dead redrive orders --rate 50          # says what it would do
  tidegate forward dead redrive orders --rate 50 --yes
  tidegate forward dead redrive orders --id 01JCWZ2M5S0000V7Q4XZ00000A --yes";

const PURGE_EXAMPLES: &str = "\
Examples:
  tidegate forward dead purge orders          # says what it would do
  tidegate forward dead purge orders --yes";

/// The arguments of `forward dead list`.
#[derive(Debug, Args)]
pub(crate) struct DeadListArgs {
    /// The record type.
    #[arg(value_name = "TYPE")]
    record_type: String,
    /// Begin after this id.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// How to write it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    server: ServerArgs,
}

/// The arguments of `forward dead show`.
#[derive(Debug, Args)]
pub(crate) struct DeadShowArgs {
    /// The record type.
    #[arg(value_name = "TYPE")]
    record_type: String,
    /// The id of the record.
    id: String,
    /// How to write it.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    server: ServerArgs,
}

/// Which dead letters, and whether to change them.
#[derive(Debug, Args)]
pub(crate) struct SelectionArgs {
    /// The record type.
    #[arg(value_name = "TYPE")]
    record_type: String,
    /// Only the record with this id; can be given several times. Without it: all dead letters of the type.
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,
    /// Do it. Without it nothing is changed.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The arguments of `forward dead redrive`.
#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Records in a second.
    #[arg(long, value_name = "RATE", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
}

/// The arguments of `forward dead purge`.
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    selection: SelectionArgs,
}

#[derive(Debug, Serialize, Deserialize)]
struct LetterList {
    dead_letters: Vec<Letter>,
    after: Option<String>,
}

/// A dead letter, as the API writes it.
#[derive(Debug, Serialize, Deserialize)]
struct Letter {
    id: String,
    tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    reason: String,
    detail: String,
    attempts: u64,
    cost: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<(String, String)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

pub(crate) fn run(command: &DeadCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        DeadCommand::List(args) => list(args, out),
        DeadCommand::Show(args) => show(args, out),
        DeadCommand::Redrive(args) => {
            let rate = json!(args.rate);
            let answer = change(&args.selection, "redrive", Some(rate))?;
            write_redrive(&args.selection, args.rate, &answer, out)
        }
        DeadCommand::Purge(args) => {
            let answer = change(&args.selection, "purge", None)?;
            write_purge(&args.selection, &answer, out)
        }
    }
}

fn list(args: &DeadListArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let after = args.after.as_ref().map(|id| format!("?after={id}")).unwrap_or_default();
    let path = format!("/v1/types/{}/dead{after}", args.record_type);
    let found = client_runtime()?.block_on(client.get::<LetterList>(&path));
    let found = found.map_err(|error| client.complaint(&error))?;
    let exit = Exit::of_check(found.dead_letters.is_empty());
    if args.format == Format::Json {
        write_json(out, &found)?;
        return Ok(exit);
    }
    if found.dead_letters.is_empty() {
        writeln!(out, "there are no dead letters of {}", Clean(&args.record_type))?;
        return Ok(exit);
    }
    let mut table =
        Table::titled(&["id", "reason", "attempts", "cost", "bytes", "tenant", "job", "detail"]);
    for letter in &found.dead_letters {
        table.row([
            Cell::new(&letter.id).styled(style::STRONG),
            Cell::new(&letter.reason),
            Cell::new(letter.attempts).right(),
            Cell::new(letter.cost).right(),
            Cell::new(letter.bytes).right(),
            Cell::new(&letter.tenant),
            Cell::new(letter.job.as_deref().unwrap_or_default()),
            Cell::new(&letter.detail),
        ]);
    }
    table.write(out, "")?;
    if let Some(after) = &found.after {
        writeln!(out, "there are more: `--after {}`", Clean(after))?;
    }
    Ok(exit)
}

fn show(args: &DeadShowArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let path = format!("/v1/types/{}/dead/{}", args.record_type, args.id);
    let letter = client_runtime()?.block_on(client.get::<Letter>(&path));
    let letter = letter.map_err(|error| client.complaint(&error))?;
    if args.format == Format::Json {
        write_json(out, &letter)?;
        return Ok(Exit::Fine);
    }
    let Letter { id, reason, detail, attempts, cost, .. } = &letter;
    writeln!(out, "{}: {}", Clean(id), Clean(reason))?;
    writeln!(out, "{}", Clean(detail))?;
    writeln!(out, "attempts: {attempts}, cost: {cost}, bytes: {}", letter.bytes)?;
    for (name, value) in letter.headers.iter().flatten() {
        writeln!(out, "{}: {}", Clean(name), Clean(value))?;
    }
    if let Some(body) = &letter.body {
        writeln!(out)?;
        // Line by line, so that line breaks stay and other control characters do not.
        for line in body.lines() {
            writeln!(out, "{}", Clean(line))?;
        }
    }
    Ok(Exit::Fine)
}

/// Asks for a change, which is a dry run without `--yes`.
fn change(args: &SelectionArgs, word: &str, rate: Option<Value>) -> Result<Value, Failure> {
    let client = ForwardClient::of(&args.server)?;
    let mut body = json!({ "dry_run": !args.yes });
    if !args.ids.is_empty() {
        body["ids"] = json!(args.ids);
    }
    if let Some(rate) = rate {
        body["rate"] = rate;
    }
    let path = format!("/v1/types/{}/dead/{word}", args.record_type);
    let answer = client_runtime()?.block_on(client.call::<Value>(Method::POST, &path, &body));
    Ok(answer.map_err(|error| client.complaint(&error))?)
}

fn write_redrive(
    args: &SelectionArgs,
    rate: u64,
    answer: &Value,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let name = Clean(&args.record_type);
    if args.yes {
        let count = show_count(answer["redriving"].as_u64().unwrap_or(0));
        writeln!(out, "{count} dead letters of {name} are enqueued again, {rate} a second")?;
    } else {
        let count = show_count(answer["would_change"].as_u64().unwrap_or(0));
        writeln!(out, "would enqueue {count} dead letters of {name} again, {rate} a second")?;
        writeln!(out, "nothing was changed; `--yes` does it")?;
    }
    Ok(Exit::Fine)
}

fn write_purge(args: &SelectionArgs, answer: &Value, out: &mut Output) -> Result<Exit, Failure> {
    let name = Clean(&args.record_type);
    if args.yes {
        let count = show_count(answer["purged"].as_u64().unwrap_or(0));
        writeln!(out, "{count} dead letters of {name} were deleted")?;
    } else {
        let count = show_count(answer["would_change"].as_u64().unwrap_or(0));
        writeln!(out, "would delete {count} dead letters of {name} for good")?;
        writeln!(out, "nothing was changed; `--yes` does it")?;
    }
    Ok(Exit::Fine)
}
