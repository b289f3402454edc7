//! Commands to try, made for the rules that are in use.

use std::io::{self, Write};

use serde_json::json;
use tidegate_engine::{Rule, Snapshot};
use tidegate_server::{Address, BoundEndpoint};

use crate::descriptor::TypedDescriptor;

/// A limit that a loop on the command line reaches soon.
const REACHED_SOON: u64 = 50;

/// Prints where the service listens and commands to try.
pub(super) fn write(
    out: &mut impl Write,
    snapshot: &Snapshot,
    listening: &[BoundEndpoint],
    has_demo_api: bool,
) -> io::Result<()> {
    writeln!(out, "Tidegate serves:")?;
    for door in listening {
        writeln!(out, "  {:<8} {}", door.name(), door.address())?;
    }
    let (Some(api), Some(debug)) = (port(listening, "http"), port(listening, "debug")) else {
        return out.flush();
    };
    writeln!(out, "\nTry, in another terminal:\n")?;
    if let Some((rule, quota)) = rule_to_try(snapshot) {
        let check = check_command(api, rule);
        let times = quota.saturating_add(2);
        writeln!(
            out,
            "  # Ask once: admitted, and what is left.
  {check}

  # Ask {times} times: the last ones get a 429.
  for i in $(seq {times}); do {check} -o /dev/null -w '%{{http_code}}\\n'; done
"
        )?;
    }
    writeln!(out, "  # What was counted.\n  curl -s localhost:{debug}/metrics | grep rule_hits\n")?;
    if let (true, Some(gateway)) = (has_demo_api, port(listening, "gateway")) {
        write_gateway(out, gateway, debug)?;
    }
    writeln!(out, "Press Ctrl-C to stop; running requests finish first.")?;
    out.flush()
}

/// Commands for the gateway of examples/gateway, with the demo API behind it.
fn write_gateway(out: &mut impl Write, gateway: u16, debug: u16) -> io::Result<()> {
    let at = format!("localhost:{gateway}");
    let codes = "-o /dev/null -w '%{http_code}\\n'";
    let at_once = "curl -sZ --no-progress-meter --parallel-immediate";
    writeln!(
        out,
        "The gateway, in front of an API that works on 8 requests at once:

  # One request, passed on.
  curl -si {at}/orders -H 'X-User: ada'

  # Seven in a row: over the rate, the last ones get a 429.
  curl -s '{at}/orders/[1-7]' -H 'X-User: bob' {codes}

  # Five at once: over the requests in flight, three get a 429.
  {at_once} '{at}/reports/[1-5]?ms=500' -H 'X-User: bob' {codes}

  # A flood of twenty seconds, with a live table of who is served.
  tidegate demo flood --gateway {at}    # or: make flood

  # The same with curl: tests get 503, and critical requests pass meanwhile.
  ({at_once} --parallel-max 60 '{at}/sandbox/[1-6000]' {codes} | sort | uniq -c) &
  curl -s '{at}/checkout/[1-5]' {codes}; wait

  # Who decided what.
  curl -s localhost:{debug}/metrics | grep -E 'tidegate_(decisions|gateway_requests)_total' | grep -v ' 0$'

  # Stop shedding at once, and let it go on.
  curl -sX PUT localhost:{debug}/switches/limiter -d '{{\"limiter\":\"gate\",\"mode\":\"shadow\"}}'
  curl -sX DELETE localhost:{debug}/switches/limiter -d '{{\"limiter\":\"gate\"}}'
"
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
fn rule_to_try(snapshot: &Snapshot) -> Option<(&Rule, u64)> {
    snapshot.rules().iter().find_map(|rule| {
        let limits = snapshot.limits_of(rule).iter();
        let least = limits.map(|limit| limit.limit.algorithm().capacity()).min()?;
        (1..=REACHED_SOON).contains(&least).then_some((rule, least))
    })
}

/// A shell command that sends a request which meets the rule.
fn check_command(port: u16, rule: &Rule) -> String {
    let entries = TypedDescriptor::example(rule);
    let body = json!({"domain": rule.domain(), "descriptors": [{"entries": entries}]});
    // A single quote within single quotes of a shell.
    let body = body.to_string().replace('\'', r"'\''");
    format!("curl -s localhost:{port}/v1/check --json '{body}'")
}
