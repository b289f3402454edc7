//! What servers run, and waiting for it.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::sleep;

use super::client::{ControlClient, ControlServerArgs};
use crate::cli::Format;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Output, Table, style, write_json};

/// A node that is silent for longer is not counted: three beats.
const SILENT_BEATS: u64 = 3;
/// Between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// How to show nodes.
#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// How to write the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What to wait for.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// The version, or a later one; the newest unless given.
    #[arg(long)]
    version: Option<u64>,
    /// The share of nodes that has to run it, of those that reported within three beats.
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    nodes: String,
    /// Nodes that there are at least: fewer that report are not enough.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    at_least: u64,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

/// The nodes of an answer, and which of them are silent.
struct Fleet {
    nodes: Vec<Value>,
    silent_after: u64,
}

impl Fleet {
    fn read(client: &ControlClient) -> Result<Self, Failure> {
        let mut found = client.get("/v1/nodes")?;
        let beat = found["beat_ms"].as_u64().unwrap_or(0);
        let silent_after = beat.saturating_mul(SILENT_BEATS).div_ceil(1_000).max(1);
        let nodes = match found["nodes"].take() {
            Value::Array(nodes) => nodes,
            _ => Vec::new(),
        };
        Ok(Fleet { nodes, silent_after })
    }

    fn is_silent(&self, node: &Value) -> bool {
        node["silent_seconds"].as_u64().unwrap_or(0) > self.silent_after
    }

    fn is_stale(&self, node: &Value) -> bool {
        node["age_seconds"].as_u64().unwrap_or(0) > self.silent_after
    }

    /// Nodes that report, and those of them that run a version or a later one.
    fn count(&self, version: u64) -> (u64, u64) {
        let reporting = self.nodes.iter().filter(|node| !self.is_silent(node));
        let running = reporting.clone().filter(|node| node["version"].as_u64() >= Some(version));
        (reporting.count() as u64, running.count() as u64)
    }
}

pub(super) fn list(args: &NodesArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let fleet = Fleet::read(&client)?;
    if args.format == Format::Json {
        write_json(out, &fleet.nodes)?;
        return Ok(Exit::Fine);
    }
    let mut table =
        Table::titled(&["node", "ring", "version", "sequence", "age", "outcome", "state", "error"]);
    for node in &fleet.nodes {
        let text = |field: &str| node[field].as_str().unwrap_or_default();
        let state = match () {
            () if fleet.is_silent(node) => Cell::new("silent").styled(style::BAD),
            () if fleet.is_stale(node) => Cell::new("stale").styled(style::WARNING),
            () => Cell::new("fresh").styled(style::GOOD),
        };
        table.row([
            Cell::new(text("node")),
            Cell::new(text("ring")),
            Cell::new(&node["version"]).right(),
            Cell::new(&node["sequence"]).right(),
            Cell::new(format!("{} s", node["age_seconds"])).right(),
            Cell::new(text("outcome")),
            state,
            Cell::new(text("error")),
        ]);
    }
    table.write(out, "")?;
    Ok(Exit::Fine)
}

/// A share in parts of a hundred.
fn parse_share(text: &str) -> Option<f64> {
    let share = text.strip_suffix('%')?.parse::<f64>().ok()?;
    (0.0..=100.0).contains(&share).then_some(share)
}

pub(super) fn wait(args: &WaitArgs, out: &mut Output) -> Result<Exit, Failure> {
    let share = parse_share(&args.nodes).ok_or_else(|| {
        Complaint::new(format!("`{}` is no share", args.nodes), "write it as 99%")
    })?;
    let client = ControlClient::new(&args.server)?;
    let version = match args.version {
        Some(version) => version,
        None => client.get("/v1/status")?["version"].as_u64().unwrap_or(0),
    };
    let mut waited = Duration::ZERO;
    loop {
        let (reporting, running) = Fleet::read(&client)?.count(version);
        let enough = running as f64 * 100.0 >= share * reporting as f64;
        if enough && running >= args.at_least {
            writeln!(out, "{running} of {reporting} nodes run version {version}")?;
            return Ok(Exit::Fine);
        }
        if waited >= Duration::from_secs(args.timeout) {
            writeln!(out, "only {running} of {reporting} nodes run version {version}")?;
            return Ok(Exit::Problems);
        }
        // Within the runtime: a timer is made by the runtime that it belongs to.
        client.runtime().block_on(async { sleep(ASK_EVERY).await });
        waited += ASK_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn silent_nodes_do_not_count() {
        let node =
            |version: u64, silent: u64| json!({"version": version, "silent_seconds": silent});
        let fleet = Fleet { nodes: vec![node(5, 1), node(4, 1), node(5, 99)], silent_after: 15 };
        assert_eq!(fleet.count(5), (2, 1));
        assert_eq!(fleet.count(4), (2, 2));
    }

    #[test]
    fn a_share_is_a_percentage() {
        assert_eq!(parse_share("99%"), Some(99.0));
        for wrong in ["99", "101%", "-1%", "all"] {
            assert_eq!(parse_share(wrong), None, "{wrong}");
        }
    }
}
