//! Recorded traffic through rules, beside programs that only count lines.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use tidegate_engine::Snapshot;
use tidegate_simulation::replay::{
    ClientModel, DescriptorRecipes, Recording, ReplayOptions, RequestDescriber, replay,
};

use super::Tools;
use crate::goal::Goal;
use crate::rule_text::compiled;
use crate::scale::{Scale, Size};
use crate::stopwatch::Stopwatch;
use crate::table::{Table, count};

const GOAL: Goal = Goal::at_least(500_000.0);
const RULES: u64 = 1_000;
const CALLERS: u64 = 20_000;
/// Lines in a second of the log.
const LINES_A_SECOND: u64 = 500;

pub(super) fn table(scale: Scale, tools: &Tools) -> anyhow::Result<Table> {
    let lines: u64 = match scale.size {
        Size::Full => 5_000_000,
        Size::Quick => 500_000,
    };
    let folder = tempfile::tempdir().context("a folder for the log")?;
    let log = folder.path().join("access.log");
    write_log(&log, lines)?;
    let rules = Arc::new(compiled(rules())?);
    let columns = ["what", "lines", "lines/s", "goal"];
    let mut table = Table::new("Replay of an access log (`replay`)", &columns);
    let cases = [
        ("tidegate, 1,000 rules, as logged", ClientModel::AsLogged, false),
        ("tidegate, both bounds", ClientModel::Both, false),
        ("tidegate, as logged, against other rules", ClientModel::AsLogged, true),
    ];
    for (index, (name, clients, against)) in cases.into_iter().enumerate() {
        let rate = play(&log, &rules, clients, against, lines)?;
        let judged = if index == 0 { GOAL.judge(rate) } else { String::new() };
        table.row([name.to_owned(), count(lines), format!("{rate:.0}"), judged]);
    }
    let mut awk = Command::new("awk");
    awk.arg("{n[$1]++} END {for (a in n) m++; print m}").arg(&log);
    let mut goaccess = Command::new(&tools.goaccess);
    goaccess.arg(&log).args(["--log-format=COMBINED", "--no-progress", "-o"]);
    goaccess.arg(folder.path().join("report.json"));
    for (name, mut command) in
        [("awk, counts by address", awk), ("GoAccess, JSON report", goaccess)]
    {
        let rate = run(&mut command, lines)
            .map_or_else(|error| format!("not measured: {error}"), |rate| format!("{rate:.0}"));
        table.row([name.to_owned(), count(lines), rate, String::new()]);
    }
    table.note(
        "One thread each. Combined format, 20,000 addresses, 500 lines a second of the log; each request is described by \
         host and address. awk and GoAccess only count.",
    );
    Ok(table)
}

/// A thousand rules: one for each of a thousand paths, by address.
fn rules() -> String {
    let mut text = "domain: web\ndescriptors:\n".to_owned();
    for rule in 0..RULES {
        let _ = write!(
            text,
            "- key: path\n  value: /api/{rule}\n  descriptors:\n  - key: address\n    limits:\n    \
             - {{algorithm: token_bucket, unit: minute, requests_per_unit: 30}}\n"
        );
    }
    text
}

fn write_log(path: &Path, lines: u64) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(File::create(path).context("the log")?);
    let mut state = 1_u64;
    for line in 0..lines {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let caller = (state >> 33) % CALLERS;
        let rule = (state >> 20) % RULES;
        let second = line / LINES_A_SECOND;
        let (day, hour, minute, second) =
            (1 + second / 86_400 % 28, second / 3_600 % 24, second / 60 % 60, second % 60);
        writeln!(
            out,
            "10.{}.{}.{} - - [{day:02}/Jul/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET /api/{rule} HTTP/1.1\" 200 \
             1234 \"https://example.com/start\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\"",
            caller >> 16,
            caller >> 8 & 255,
            caller & 255,
        )?;
    }
    out.flush().context("the log")
}

/// Lines per second of a replay.
fn play(
    log: &Path,
    rules: &Arc<Snapshot>,
    clients: ClientModel,
    against: bool,
    lines: u64,
) -> anyhow::Result<f64> {
    eprintln!("replay: {clients:?}");
    let recipes = ["path=$uri,address=$remote_addr".to_owned()];
    let mut recipes = DescriptorRecipes::new("web", &recipes)?;
    let stopwatch = Stopwatch::start();
    let recording = Recording::new("access.log", File::open(log)?, None)?;
    let options = ReplayOptions {
        rules: Arc::clone(rules),
        against: against.then(|| Arc::clone(rules)),
        describer: Some(&mut recipes as &mut dyn RequestDescriber),
        clients,
        anonymise: false,
        progress: &mut |_| {},
    };
    let report = replay(vec![recording], options)?;
    let seconds = stopwatch.elapsed().as_secs_f64();
    anyhow::ensure!(report.new.requests == lines, "{} requests of {lines}", report.new.requests);
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = lines as f64 / seconds;
    Ok(rate)
}

/// Lines per second of a command that reads the whole log.
fn run(command: &mut Command, lines: u64) -> anyhow::Result<f64> {
    let stopwatch = Stopwatch::start();
    let status =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{status}");
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = lines as f64 / stopwatch.elapsed().as_secs_f64();
    Ok(rate)
}
