//! What to try: commands made for the rules that are in use.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::json;
use tidegate_doors::server::{Address, Listening};
use tidegate_engine::{Rule, Snapshot};
use tidegate_rules::Shown;

/// A limit that a loop on the command line reaches soon.
const REACHED_SOON: u64 = 50;

/// Prints where the service listens and three commands to try.
pub(super) fn write(
    out: &mut impl Write,
    snapshot: &Snapshot,
    listening: &[Listening],
) -> io::Result<()> {
    writeln!(out, "Tidegate serves:")?;
    for door in listening {
        writeln!(out, "  {:<8} {}", door.name(), door.address())?;
    }
    let (Some(api), Some(debug)) = (port(listening, "http"), port(listening, "debug")) else {
        return out.flush();
    };
    writeln!(out, "\nTry, in another terminal:\n")?;
    if let Some((rule, quota)) = reachable(snapshot) {
        let check = check(api, rule);
        let times = quota.saturating_add(2);
        writeln!(out, "  # Ask once: admitted, and what is left.\n  {check}\n")?;
        writeln!(out, "  # Ask {times} times: the last ones get a 429.")?;
        writeln!(
            out,
            "  for i in $(seq {times}); do {check} -o /dev/null -w '%{{http_code}}\\n'; done\n"
        )?;
    }
    writeln!(out, "  # What was counted.\n  curl -s localhost:{debug}/metrics | grep rule_hits\n")?;
    writeln!(out, "Ctrl-C stops it; requests that are begun are finished.")?;
    out.flush()
}

/// The port of a door on this machine.
fn port(listening: &[Listening], name: &str) -> Option<u16> {
    listening.iter().filter(|door| door.name() == name).find_map(|door| match door.address() {
        Address::Tcp(address) => Some(address.port()),
        Address::Unix { .. } => None,
    })
}

/// The first rule with a limit that is soon reached, and that limit.
fn reachable(snapshot: &Snapshot) -> Option<(&Rule, u64)> {
    snapshot.rules().iter().find_map(|rule| {
        let quotas =
            snapshot.limits_of(rule).iter().map(|limit| limit.limit.algorithm().capacity());
        let least = quotas.min()?;
        (1..=REACHED_SOON).contains(&least).then_some((rule, least))
    })
}

/// A command that asks for what a rule limits.
fn check(port: u16, rule: &Rule) -> String {
    let entries: Vec<_> = rule
        .levels()
        .iter()
        .map(|level| {
            let value = match level.shown() {
                Shown::Written(text) | Shown::Shared(text) => text.replace('*', "x"),
                Shown::KeyOnly | Shown::Requested => "ada".to_owned(),
            };
            json!({"key": level.key(), "value": value})
        })
        .collect();
    let body = json!({"domain": rule.domain(), "descriptors": [{"entries": entries}]});
    let mut command = format!("curl -s localhost:{port}/v1/check --json ");
    // A quote within single quotes of a shell.
    let _ = write!(command, "'{}'", body.to_string().replace('\'', r"'\''"));
    command
}
