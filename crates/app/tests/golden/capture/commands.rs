//! Command lines: subcommands, arguments and flags, and exit codes of runs.

use std::fs;
use std::path::Path;

use super::{Golden, printed, run};
use crate::process::{Folder, RULES, Start};

pub(crate) fn capture() -> Vec<Golden> {
    let mut lines = Vec::new();
    describe(&mut Vec::new(), &mut lines);
    vec![Golden::lines("commands/flags.txt", &lines), exit_codes()]
}

/// A command and all below it, from its help without the prose.
fn describe(path: &mut Vec<String>, lines: &mut Vec<String>) {
    let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
    words.push("--help");
    let help = printed(&words);
    let mut section = "";
    let mut below = Vec::new();
    for line in help.lines() {
        let text = line.trim();
        let indent = line.len() - line.trim_start().len();
        if let Some(usage) = line.strip_prefix("Usage: ") {
            lines.push(usage.to_owned());
        } else if indent == 0 && text.ends_with(':') {
            section = text;
        } else if section == "Examples:" || indent == 0 {
            // For people.
        } else if section == "Commands:" {
            // Descriptions that are wrapped are further in.
            if let (2, Some(name)) = (indent, text.split_whitespace().next()) {
                below.push(name.to_owned());
            }
        } else if indent <= 6 && (text.starts_with('-') || section == "Arguments:") {
            lines.push(format!("  {text}"));
        } else if text.starts_with("- ") {
            let value = text.split(':').next().unwrap_or(text);
            lines.push(format!("    {value}"));
        } else if ["[default: ", "[env: ", "[possible values: ", "[aliases: "]
            .iter()
            .any(|start| text.starts_with(start))
        {
            lines.push(format!("    {text}"));
        }
    }
    for name in below.into_iter().filter(|name| name != "help") {
        path.push(name);
        describe(path, lines);
        path.pop();
    }
}

const BROKEN_RULES: &str =
    "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: fortnight}\n";
const WARNED_RULES: &str =
    "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: hour}\n";
const FORWARD: &str = "targets: [{name: a, limits: [{operations: 2, per: 1s}]}]\ntypes: [{name: b, target: a, command: {program: cat}}]\n";
const GATEWAY: &str = "routes: [{name: all, upstreams: api}]\nupstreams: [{name: api, hosts: ['http://127.0.0.1:1']}]\n";

/// Runs, by what they are about.
const RUNS: &[&[&str]] = &[
    &[],
    &["--help"],
    &["-h"],
    &["--version"],
    &["-V"],
    &["version"],
    &["nonsense"],
    &["--nonsense"],
    &["--color", "sometimes", "version"],
    &["--color", "never", "version"],
    &["completions", "bash"],
    &["completions", "nonsense"],
    &["completions"],
    &["rules"],
    &["rules", "check"],
    &["rules", "check", "good.yaml"],
    &["rules", "check", "good.yaml", "--format", "json"],
    &["rules", "check", "broken.yaml"],
    &["rules", "check", "broken.yaml", "--format", "json"],
    &["rules", "check", "good.yaml", "broken.yaml"],
    &["rules", "check", "warned.yaml"],
    &["rules", "check", "gone.yaml"],
    &["rules", "check", "--nonsense"],
    &["rules", "explain", "--rules", "good.yaml", "--domain", "shop", "user=ada"],
    &["rules", "explain", "--rules", "good.yaml", "user=ada", "--format", "json"],
    &["rules", "explain", "--rules", "good.yaml", "--domain", "other", "user=ada"],
    &["rules", "explain", "--rules", "good.yaml", "place=home"],
    &["rules", "explain", "--rules", "broken.yaml", "user=ada"],
    &["rules", "explain", "--rules", "gone.yaml", "user=ada"],
    &["rules", "explain", "--rules", "good.yaml", "nonsense"],
    &["rules", "explain"],
    &["rules", "schema"],
    &["config"],
    &["config", "check"],
    &["config", "check", "good-config.yaml"],
    &["config", "check", "broken-config.yaml"],
    &["config", "check", "broken-config.yaml", "--format", "json"],
    &["config", "check", "gone.yaml"],
    &["config", "check", "--gateway", "gateway.yaml"],
    &["config", "check", "--gateway", "broken-gateway.yaml"],
    &["config", "check", "--gateway", "gone.yaml"],
    &["config", "check", "--workers", "0"],
    &["config", "check", "--set", "nonsense=1"],
    &["config", "check", "--set", "nonsense"],
    &["config", "check", "--compat=nonsense"],
    &["config", "show"],
    &["config", "show", "--format", "yaml"],
    &["config", "show", "--format", "nonsense"],
    &["config", "show", "--config", "broken-config.yaml"],
    &["config", "show", "--config", "gone.yaml"],
    &["config", "schema"],
    &["config", "schema", "gateway"],
    &["config", "schema", "nonsense"],
    &["config", "env"],
    &["config", "reference"],
    &["config", "reference", "compat"],
    &["config", "reference", "example"],
    &["config", "reference", "gateway"],
    &["config", "reference", "nonsense"],
    &["config", "reference", "forward"],
    &["config", "schema", "forward"],
    &["config", "check", "--forward", "forward.yaml", "--set", "data_dir=data"],
    &["config", "check", "--forward", "broken-forward.yaml", "--set", "data_dir=data"],
    &["forward"],
    &["forward", "plan", "--forward", "forward.yaml", "--records", "10"],
    &["forward", "plan", "--forward", "forward.yaml", "--records", "10", "--within", "1s"],
    &["forward", "plan", "--forward", "broken-forward.yaml", "--records", "10"],
    &["forward", "plan", "--records", "10"],
    &["forward", "serve", "--forward", "forward.yaml"],
    &["forward", "serve", "--forward", "broken-forward.yaml"],
    &["forward", "work", "--forward", "forward.yaml", "--set", "data_dir=data"],
    &["forward", "status", "--server", "127.0.0.1:1"],
    &["forward", "status", "--server", "not an address"],
    &["forward", "enqueue", "gone.ndjson", "--server", "127.0.0.1:1"],
    &["forward", "limit", "set", "a", "--limit", "nonsense"],
    &["forward", "dead", "purge", "a", "--server", "127.0.0.1:1"],
    &["demo"],
    &["demo", "--rules", "good.yaml"],
    &["demo", "--rules", "broken.yaml"],
    &["demo", "--rules", "gone.yaml"],
    &["demo", "--rules", "good.yaml", "--domain", "other"],
    &["demo", "--print-rules"],
    &["demo", "--nonsense"],
    &["demo-api", "--nonsense"],
    &["demo-api", "nonsense"],
    &["simulate"],
    &["simulate", "overload", "--scenario", "nonsense"],
    &["simulate", "overload", "--seeds", "none"],
    &["serve", "--nonsense"],
    &["serve", "--rules", "broken.yaml"],
    &["serve", "--rules", "gone.yaml"],
    &["serve", "--rules", "good.yaml", "--config", "broken-config.yaml"],
    &["serve", "--rules", "good.yaml", "--config", "gone.yaml"],
    &["serve", "--rules", "good.yaml", "--gateway", "broken-gateway.yaml"],
    &["serve", "--rules", "good.yaml", "--gateway", "gone.yaml"],
    &["serve", "--rules", "good.yaml", "--http", "nonsense"],
    &[
        "serve",
        "--rules",
        "good.yaml",
        "--grpc",
        "unix:gone/socket",
        "--http",
        "127.0.0.1:0",
        "--debug-listen",
        "127.0.0.1:0",
    ],
    &["serve", "--rules", "good.yaml", "--log-level", "nonsense"],
    &["serve", "--rules", "good.yaml", "--redis", "nonsense"],
];

fn exit_codes() -> Golden {
    let folder = tempfile::tempdir().expect("a folder");
    write_files(folder.path());
    let line = |words: &&[&str]| {
        let output = run(folder.path(), &[], words);
        let says = |bytes: &[u8]| if bytes.is_empty() { "-" } else { "+" };
        let code = output.status.code().expect("it ended by itself");
        let (out, err) = (says(&output.stdout), says(&output.stderr));
        format!("{code} stdout{out} stderr{err} tidegate {}", words.join(" ")).trim_end().to_owned()
    };
    let mut lines: Vec<String> = RUNS.iter().map(line).collect();
    let rules = Folder::with_rules(RULES);
    for signal in ["TERM", "INT"] {
        let serving = Start::new(&rules).serving();
        serving.signal(signal);
        let code = serving.ended().0.code().expect("it ended by itself");
        lines.push(format!("{code} tidegate serve, after SIG{signal}"));
    }
    Golden::lines("commands/exit-codes.txt", &lines)
}

fn write_files(folder: &Path) {
    let files = [
        ("good.yaml", RULES),
        ("broken.yaml", BROKEN_RULES),
        ("warned.yaml", WARNED_RULES),
        ("good-config.yaml", "workers: 2\n"),
        ("broken-config.yaml", "workers: 0\n"),
        ("gateway.yaml", GATEWAY),
        ("broken-gateway.yaml", "routes: 5\n"),
        ("forward.yaml", FORWARD),
        ("broken-forward.yaml", "targets: 5\n"),
    ];
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("written");
    }
}
