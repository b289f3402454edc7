//! Rows: limits of single clients.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use axum::http::{Method, StatusCode};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::WhyArgs;
use super::client::{ControlClient, ControlServerArgs, encode, entry_path, refusal};
use super::view::effect;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Output, Table};

/// Rows of one request of an import.
const IMPORT_BATCH: usize = 10_000;

/// What can be done with rows.
#[derive(Debug, Subcommand)]
pub(crate) enum OverrideCommand {
    /// Give a client these terms.
    #[command(
        after_help = "Examples:\n  tidegate control override set api/clients acme rate=500 --why 'new contract'\n  tidegate control override set api/clients acme unlimited --until 2027-01-31T18:00:00Z"
    )]
    Set(SetArgs),
    /// Take the row of a client away: the limits of the rules hold for it again.
    #[command(after_help = "Examples:\n  tidegate control override rm api/clients acme")]
    Rm(RmArgs),
    /// List rows.
    #[command(after_help = "Examples:\n  tidegate control override list api/clients --prefix ac")]
    List(ListArgs),
}

/// A row to set.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    #[command(flatten)]
    why: WhyArgs,
    /// The table, as DOMAIN/TABLE.
    table: String,
    /// The client: the value of its entry.
    value: String,
    /// The terms: a plan, `unlimited`, `blocked`, or numbers such as `rate=500`.
    #[arg(required = true)]
    terms: Vec<String>,
    /// When the row ends by itself: 2027-01-31 or 2027-01-31T18:00:00Z.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// A row to remove.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    #[command(flatten)]
    why: WhyArgs,
    /// The table, as DOMAIN/TABLE.
    table: String,
    /// The client.
    value: String,
}

/// Which rows to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// The table, as DOMAIN/TABLE.
    table: String,
    /// Only clients that begin so.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// As they were at this version.
    #[arg(long, value_name = "VERSION")]
    at: Option<u64>,
}

/// What to import.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    #[command(flatten)]
    why: WhyArgs,
    /// The table, as DOMAIN/TABLE.
    table: String,
    /// The CSV file.
    file: PathBuf,
}

pub(super) fn run(command: OverrideCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        OverrideCommand::Set(args) => set(&args, out),
        OverrideCommand::Rm(args) => remove(&args, out),
        OverrideCommand::List(args) => list(&args, out),
    }
}

fn set(args: &SetArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let terms = args.terms.join(" ");
    let mut body = json!({ "body": { "terms": terms }, "why": args.why.why });
    if let Some(until) = &args.until {
        body["until"] = json!(until);
    }
    let path = entry_path("row", &args.table, &args.value);
    let found = client.exchange(Method::GET, &path, None, &[])?;
    let field = match (found.status, &found.etag) {
        (StatusCode::OK, Some(etag)) => ("if-match", etag.as_str()),
        (StatusCode::NOT_FOUND, _) => ("if-none-match", "*"),
        _ => return Err(refusal(&found).into()),
    };
    let after = client.ask(Method::PUT, &path, Some(&body), &[field])?;
    let before = if found.status == StatusCode::OK { &found.body } else { &Value::Null };
    super::view::write_difference(out, before, &after)?;
    writeln!(out, "version {}", after["version"])?;
    Ok(Exit::Fine)
}

fn remove(args: &RmArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let path = entry_path("row", &args.table, &args.value);
    let found = client.exchange(Method::GET, &path, None, &[])?;
    let Some(etag) = found.etag.as_deref().filter(|_| found.status == StatusCode::OK) else {
        return Err(refusal(&found).into());
    };
    let fields = [("if-match", etag), ("x-why", args.why.why.as_str())];
    let done = client.ask(Method::DELETE, &path, None, &fields)?;
    super::view::write_difference(out, &found.body, &Value::Null)?;
    writeln!(out, "version {}", done["version"])?;
    Ok(Exit::Fine)
}

fn list(args: &ListArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let at = args.at.map(|at| format!("&at={at}")).unwrap_or_default();
    let (table, prefix) = (encode(&args.table), encode(&args.prefix));
    let rows = client.entries("row", &format!("&collection={table}&prefix={prefix}{at}"))?;
    let mut shown = Table::titled(&["value", "terms", "who", "when", "why"]);
    for row in &rows {
        let text = |field: &str| row[field].as_str().unwrap_or_default();
        shown.row([
            Cell::new(text("name")),
            Cell::new(effect(row)),
            Cell::new(text("set_by")),
            Cell::new(text("set_at")),
            Cell::new(text("why")),
        ]);
    }
    shown.write(out, "")?;
    Ok(Exit::Fine)
}

/// Reads a CSV file of rows: a change for each.
pub(super) fn read_rows(path: &Path, kind: &str, table: &str) -> Result<Vec<Value>, Failure> {
    let unusable = |line: u64, message: &str| {
        let help = "the first line names the columns: value,terms or value,terms,until";
        Failure::from(Complaint::new(format!("{}:{line}: {message}", path.display()), help))
    };
    let file = File::open(path).map_err(|error| unusable(1, &error.to_string()))?;
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(file);
    let field = if kind == "client" { "plan" } else { "terms" };
    let headers = reader.headers().map_err(|error| unusable(1, &error.to_string()))?.clone();
    let column = |name: &str| headers.iter().position(|header| header == name);
    // A file beside rules may say why in each line; here the version says it.
    let known = ["value", field, "until", "owner", "labels", "why"];
    if let Some(other) = headers.iter().find(|header| !known.contains(header)) {
        return Err(unusable(1, &format!("there is no column `{other}`")));
    }
    let (Some(value), Some(terms)) = (column("value"), column(field)) else {
        return Err(unusable(1, &format!("the columns `value` and `{field}` are needed")));
    };
    let (until, owner, labels) = (column("until"), column("owner"), column("labels"));
    let mut changes = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            unusable(error.position().map_or(0, csv::Position::line), &error.to_string())
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let text = |column: Option<usize>| {
            column.and_then(|column| record.get(column)).unwrap_or_default()
        };
        if text(Some(value)).is_empty() || text(Some(terms)).is_empty() {
            return Err(unusable(line, "a value and its terms are not blank"));
        }
        let mut body = json!({ field: text(Some(terms)) });
        if !text(labels).is_empty() {
            body["labels"] = serde_json::from_str(text(labels))
                .map_err(|error| unusable(line, &error.to_string()))?;
        }
        let mut change =
            json!({ "kind": kind, "collection": table, "name": text(Some(value)), "body": body });
        for (name, column) in [("until", until), ("owner", owner)] {
            if !text(column).is_empty() {
                change[name] = json!(text(column));
            }
        }
        changes.push(change);
    }
    Ok(changes)
}

pub(super) fn import(args: &ImportArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let rows = read_rows(&args.file, "row", &args.table)?;
    let (mut sent, mut changed, mut version) = (0, 0, Value::Null);
    for batch in rows.chunks(IMPORT_BATCH) {
        let body = json!({ "changes": batch, "why": args.why.why });
        let done = client.post("/v1/changes", &body).inspect_err(|_| {
            let _ = writeln!(io::stderr(), "{sent} of {} rows were imported", rows.len());
        })?;
        sent += batch.len();
        changed += done["changed"].as_u64().unwrap_or(0);
        version = done["version"].clone();
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "\r{sent} of {} rows", rows.len());
        }
    }
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr());
    }
    writeln!(out, "{sent} rows read, {changed} changed, version {version}")?;
    Ok(Exit::Fine)
}
