//! Versions: list, show, roll back.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};

use super::client::{ControlClient, ControlServerArgs};
use super::view::write_difference;
use crate::cli::Format;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Output, Table, write_json};

/// Which versions to list.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// As many at most.
    #[arg(long, default_value_t = 20)]
    limit: u64,
    /// Only versions before this one.
    #[arg(long, value_name = "VERSION")]
    before: Option<u64>,
    /// How to write the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// The version.
    version: u64,
    /// Shows the differences since this version instead of the one before.
    #[arg(long, value_name = "VERSION")]
    since: Option<u64>,
    /// How to write the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What to bring back.
#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// The version whose content comes back; the one before the newest unless given.
    #[arg(long, value_name = "VERSION")]
    to: Option<u64>,
    /// Why; the history and the audit show it.
    #[arg(long)]
    why: String,
}

pub(super) fn list(args: &HistoryArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let before = args.before.map(|before| format!("&before={before}")).unwrap_or_default();
    let found = client.get(&format!("/v1/versions?limit={}{before}", args.limit))?;
    if args.format == Format::Json {
        write_json(out, &found)?;
        return Ok(Exit::Fine);
    }
    let mut table = Table::titled(&["version", "when", "who", "changes", "why"]);
    for version in found["versions"].as_array().into_iter().flatten() {
        let text = |field: &str| version[field].as_str().unwrap_or_default();
        let why = match version["restored"].as_u64() {
            Some(restored) => format!("as {restored}: {}", text("why")),
            None => text("why").to_owned(),
        };
        table.row([
            Cell::new(&version["version"]).right(),
            Cell::new(text("at")),
            Cell::new(text("author")),
            Cell::new(&version["changes"]).right(),
            Cell::new(why),
        ]);
    }
    table.write(out, "")?;
    Ok(Exit::Fine)
}

pub(super) fn show(args: &ShowArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let found = match args.since {
        None => client.get(&format!("/v1/versions/{}", args.version))?,
        Some(since) => client.get(&format!("/v1/diff?from={since}&to={}", args.version))?,
    };
    if args.format == Format::Json {
        write_json(out, &found)?;
        return Ok(Exit::Fine);
    }
    if let Some(version) = found["version"].as_object() {
        let text = |field: &str| version.get(field).and_then(Value::as_str).unwrap_or_default();
        writeln!(
            out,
            "version {} by {} at {}: {}",
            args.version,
            text("author"),
            text("at"),
            text("why")
        )?;
    }
    for difference in found["differences"].as_array().into_iter().flatten() {
        write_difference(out, &difference["before"], &difference["after"])?;
    }
    Ok(Exit::Fine)
}

pub(super) fn rollback(args: &RollbackArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let version = match args.to {
        Some(version) => version,
        None => {
            let newest = client.get("/v1/status")?["version"].as_u64().unwrap_or(0);
            newest.checked_sub(1).ok_or_else(|| {
                Complaint::new("there is no version yet", "change something first")
            })?
        }
    };
    let done =
        client.post(&format!("/v1/versions/{version}/restore"), &json!({ "why": args.why }))?;
    match done["changed"].as_u64() {
        Some(0) => writeln!(out, "nothing differs from version {version}")?,
        _ => writeln!(
            out,
            "version {} has the content of version {version}: {} entries changed",
            done["version"], done["changed"]
        )?,
    }
    Ok(Exit::Fine)
}
