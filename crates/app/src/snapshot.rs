//! `tidegate snapshot`: looks at snapshot files, offline.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_engine::{Clock, SystemClock};
use tidegate_retriever::JoinFile;
use tidegate_rules::{Minute, TableName};
use tidegate_snapshot_file::{SnapshotError, VerifiedSnapshot, inspect, read};

use crate::cli::Format;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Output, write_json};

const INSPECT_EXAMPLES: &str = "\
Examples:
  tidegate snapshot inspect /srv/snapshots/main/all/snapshot
  tidegate snapshot inspect snapshot --format json";

const VERIFY_EXAMPLES: &str = "\
Examples:
  tidegate snapshot verify snapshot --join join.json";

const LOOKUP_EXAMPLES: &str = "\
Examples:
  tidegate snapshot lookup snapshot --domain api --table clients acme";

/// Commands on snapshot files.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Show what a file says of itself. Checks the hashes, and not who signed it.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect {
        /// The file.
        file: PathBuf,
        /// How to print it.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Check that a trusted key signed a file for the cell of a join file. Exits with 1 if not.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify {
        /// The file.
        file: PathBuf,
        /// The join file with cell, ring and keys.
        #[arg(long, value_name = "FILE")]
        join: PathBuf,
    },
    /// Show the row of a client. Exits with 1 if it has none.
    #[command(after_help = LOOKUP_EXAMPLES)]
    Lookup(LookupArgs),
}

/// The arguments of `tidegate snapshot lookup`.
#[derive(Debug, Args)]
pub(crate) struct LookupArgs {
    /// The file.
    file: PathBuf,
    /// The domain of the table.
    #[arg(long)]
    domain: String,
    /// The name of the table.
    #[arg(long)]
    table: String,
    /// The value of the client.
    value: String,
}

pub(crate) fn run(command: &SnapshotCommand, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        SnapshotCommand::Inspect { file, format } => {
            let (path, mut file) = open(file)?;
            let snapshot = refuse(&path, inspect(&mut file))?;
            show(&snapshot, *format, out)?;
            Ok(Exit::Fine)
        }
        SnapshotCommand::Verify { file, join } => verify(file, join, out),
        SnapshotCommand::Lookup(args) => lookup(args, out),
    }
}

/// A file with its name.
type NamedFile = (PathBuf, BufReader<File>);

fn open(path: &Path) -> Result<NamedFile, Failure> {
    let opened = File::open(path).map_err(|error| {
        let message = format!("`{}` cannot be read: {error}", path.display());
        Complaint::new(message, "give a snapshot file")
    });
    Ok((path.to_owned(), BufReader::new(opened?)))
}

fn refuse<T>(path: &Path, result: Result<T, SnapshotError>) -> Result<T, Failure> {
    result.map_err(|error| {
        let message = format!("`{}`: {error}", path.display());
        Complaint::new(message, "the next file of the publisher replaces a damaged one").into()
    })
}

fn verify(path: &Path, join: &Path, out: &mut Output) -> Result<Exit, Failure> {
    let help = "write it with `tidegate control init`";
    let join = JoinFile::read(join).map_err(|error| Complaint::new(error.to_string(), help))?;
    let (_, mut file) = open(path)?;
    match read(&mut file, &join.trust, None, None) {
        Ok(snapshot) => {
            let stamp = &snapshot.head.stamp;
            writeln!(
                out,
                "ok: cell {}, ring {}, epoch {}, sequence {}, version {}, signed by {}",
                stamp.cell,
                stamp.ring,
                stamp.epoch,
                stamp.sequence,
                stamp.version,
                snapshot.head.signer
            )?;
            Ok(Exit::Fine)
        }
        Err(error) => {
            writeln!(out, "refused ({}): {error}", error.reason())?;
            Ok(Exit::of_check(false))
        }
    }
}

fn show(snapshot: &VerifiedSnapshot, format: Format, out: &mut Output) -> Result<(), Failure> {
    let (head, stamp) = (&snapshot.head, &snapshot.head.stamp);
    let content: String = head.content_hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let rules = &snapshot.content.rules;
    let page = json!({
        "cell": stamp.cell,
        "ring": stamp.ring,
        "class": head.class.as_str(),
        "epoch": stamp.epoch,
        "sequence": stamp.sequence,
        "version": stamp.version,
        "published_at_ms": stamp.published_at,
        "content_at_ms": stamp.content_at,
        "beat_ms": stamp.beat_ms,
        "content": content,
        "signed_by": head.signer.to_string(),
        "documents": rules.documents.iter().map(|document| &document.name).collect::<Vec<_>>(),
        "terms": rules.terms.len(),
        "rows": head.rows,
        "rows_max": head.class.rows_max(),
        "api_keys": snapshot.content.keys.lines().count(),
        "switches": snapshot.content.switches.len(),
    });
    if format == Format::Json {
        return Ok(write_json(out, &page)?);
    }
    for (name, value) in page.as_object().into_iter().flatten() {
        match value.as_str() {
            Some(text) => writeln!(out, "{name:16} {text}")?,
            None => writeln!(out, "{name:16} {value}")?,
        }
    }
    Ok(())
}

fn lookup(args: &LookupArgs, out: &mut Output) -> Result<Exit, Failure> {
    let (path, mut file) = open(&args.file)?;
    let snapshot = refuse(&path, inspect(&mut file))?;
    let table = TableName { domain: args.domain.clone(), table: args.table.clone() }.tag();
    let rows = &snapshot.content.table;
    let now = Minute::of_nanos(SystemClock::new().now().as_nanos());
    let Some(end) = rows.end_of(table, &args.value) else {
        writeln!(
            out,
            "`{}` has no row in table `{}` of `{}`",
            args.value, args.table, args.domain
        )?;
        return Ok(Exit::of_check(false));
    };
    let terms = rows.find(table, &args.value, now);
    let terms = terms.and_then(|terms| snapshot.content.rules.terms.get(terms.index()));
    match (terms, end) {
        (None, _) => writeln!(out, "the row has ended")?,
        (Some(terms), None) => writeln!(out, "{}", terms.text)?,
        (Some(terms), Some(Minute(end))) => {
            let left = end.saturating_sub(now.0);
            writeln!(out, "{} (ends in {left} minutes)", terms.text)?;
        }
    }
    Ok(Exit::of_check(terms.is_some()))
}
