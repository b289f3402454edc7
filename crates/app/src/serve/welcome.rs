//! What to try: commands made for the rules that are in use.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::json;
use tidegate_engine::{Rule, Snapshot};
use tidegate_rules::ShownValue;
use tidegate_server::{Address, BoundEndpoint};

/// A limit that a loop on the command line reaches soon.
const REACHED_SOON: u64 = 50;

/// Prints where the service listens and commands to try.
pub(super) fn write(
    out: &mut impl Write,
    snapshot: &Snapshot,
    listening: &[BoundEndpoint],
    demo_api: bool,
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
    if let (true, Some(gateway)) = (demo_api, port(listening, "gateway")) {
        write_gateway(out, gateway, debug)?;
    }
    writeln!(out, "Press Ctrl-C to stop; running requests finish first.")?;
    out.flush()
}

/// Commands for the gateway of examples/gateway, with the demo API behind it.
fn write_gateway(out: &mut impl Write, gateway: u16, debug: u16) -> io::Result<()> {
    let at = format!("localhost:{gateway}");
    let codes = "-o /dev/null -w '%{http_code}\\n'";
    writeln!(out, "The gateway, in front of an API that works on 8 requests at once:\n")?;
    writeln!(out, "  # One request, passed on.\n  curl -si {at}/orders -H 'X-User: ada'\n")?;
    writeln!(out, "  # Seven in a row: over the rate, the last ones get a 429.")?;
    writeln!(out, "  curl -s '{at}/orders/[1-7]' -H 'X-User: bob' {codes}\n")?;
    writeln!(out, "  # Five at once: over the requests in flight, three get a 429.")?;
    writeln!(
        out,
        "  curl -sZ --no-progress-meter --parallel-immediate '{at}/reports/[1-5]?ms=500' -H 'X-User: bob' {codes}\n"
    )?;
    writeln!(out, "  # A flood of twenty seconds, with a live table of who is served.")?;
    writeln!(out, "  tidegate demo flood --gateway {at}    # or: make flood\n")?;
    writeln!(out, "  # The same with curl: tests get 503, and critical requests pass meanwhile.")?;
    writeln!(
        out,
        "  (curl -sZ --no-progress-meter --parallel-immediate --parallel-max 60 '{at}/sandbox/[1-6000]' {codes} | sort | uniq -c) &"
    )?;
    writeln!(out, "  curl -s '{at}/checkout/[1-5]' {codes}; wait\n")?;
    writeln!(out, "  # Who decided what.")?;
    writeln!(
        out,
        "  curl -s localhost:{debug}/metrics | grep -E 'tidegate_(decisions|gateway_requests)_total' | grep -v ' 0$'\n"
    )?;
    writeln!(out, "  # Stop shedding at once, and let it go on.")?;
    writeln!(
        out,
        "  curl -sX PUT localhost:{debug}/switches/limiter -d '{{\"limiter\":\"gate\",\"mode\":\"shadow\"}}'"
    )?;
    writeln!(
        out,
        "  curl -sX DELETE localhost:{debug}/switches/limiter -d '{{\"limiter\":\"gate\"}}'\n"
    )
}

/// The port of a door on this machine.
fn port(listening: &[BoundEndpoint], name: &str) -> Option<u16> {
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
                ShownValue::Written(text) | ShownValue::Shared(text) => text.replace('*', "x"),
                ShownValue::KeyOnly | ShownValue::Requested => "ada".to_owned(),
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
