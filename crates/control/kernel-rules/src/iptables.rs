//! Exported rules as a file for `iptables-restore --noflush`, of one family of addresses.
//!
//! Fills chains of our own. Two jumps lead to them, which the operator adds once: a restore would add them again each
//! time.

use std::fmt::Write;

use crate::export::{AddressScope, Export, ExportedLimit, KernelLimit, comment};
use crate::nftables::ranges;

/// Addresses that one table of `hashlimit` holds.
const TABLE_SIZE: u32 = 65_536;

/// The largest burst that `hashlimit` takes in a second of its fastest rates.
const BURST_MAX: u64 = 10_000;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    /// For `iptables-restore`.
    V4,
    /// For `ip6tables-restore`.
    V6,
}

impl IpFamily {
    /// The program that changes the rules of the family.
    pub const fn program(self) -> &'static str {
        match self {
            IpFamily::V4 => "iptables",
            IpFamily::V6 => "ip6tables",
        }
    }
}

/// Writes the rules for one family.
pub fn iptables(export: &Export, family: IpFamily) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_file(&mut text, export, family);
    text
}

fn write_file(text: &mut String, export: &Export, family: IpFamily) -> std::fmt::Result {
    let Export { settings, version, left_out, .. } = export;
    let (program, port) = (family.program(), settings.port);
    let thousandths = settings.connections_per_request;
    writeln!(text, "# Tidegate's rules, version {version:016x}, for connections to port {port}.")?;
    writeln!(
        text,
        "# A request counts as {}.{:03} connections. Each machine counts for itself.",
        thousandths / 1_000,
        thousandths % 1_000
    )?;
    writeln!(
        text,
        "# Restore it with `{program}-restore --noflush`, then lead connections here, once:"
    )?;
    writeln!(
        text,
        "#   {program} -t raw -A PREROUTING -p tcp --dport {port} --syn -j TIDEGATE-ARRIVALS"
    )?;
    writeln!(
        text,
        "#   {program} -t filter -A INPUT -p tcp --dport {port} --syn -j TIDEGATE-OPEN"
    )?;
    if !left_out.is_empty() {
        writeln!(text, "# Not exported:")?;
    }
    for one in left_out {
        writeln!(text, "#   {}: {}", comment(&one.name), comment(&one.reason))?;
    }
    for table in [FilterTable::Raw, FilterTable::Filter] {
        write_table(text, export, family, table)?;
    }
    Ok(())
}

/// The table that a chain belongs to: new connections are judged before connection tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterTable {
    Raw,
    Filter,
}

impl FilterTable {
    const fn entrance(self) -> &'static str {
        match self {
            FilterTable::Raw => "TIDEGATE-ARRIVALS",
            FilterTable::Filter => "TIDEGATE-OPEN",
        }
    }

    fn chain(self, rule: usize) -> String {
        match self {
            FilterTable::Raw => format!("TIDEGATE-RATE-{rule}"),
            FilterTable::Filter => format!("TIDEGATE-OPEN-{rule}"),
        }
    }
}

fn write_table(
    text: &mut String,
    export: &Export,
    family: IpFamily,
    table: FilterTable,
) -> std::fmt::Result {
    let entrance = table.entrance();
    writeln!(text, "*{}", if table == FilterTable::Raw { "raw" } else { "filter" })?;
    writeln!(text, ":{entrance} - [0:0]")?;
    for at in 0..export.rules.len() {
        writeln!(text, ":{} - [0:0]", table.chain(at))?;
    }
    let overflow = "TIDEGATE-OVERFLOW";
    if table == FilterTable::Raw {
        let most = export.settings.overflow_per_second;
        writeln!(text, ":{overflow} - [0:0]")?;
        writeln!(
            text,
            "-A {overflow} -m hashlimit --hashlimit-name tidegate-overflow --hashlimit-above {most}/sec \
             --hashlimit-burst {} -j DROP",
            most.saturating_mul(2).min(BURST_MAX.max(most))
        )?;
    }
    for (at, rule) in export.rules.iter().enumerate() {
        for (index, limit) in rule.limits.iter().enumerate() {
            let chain = table.chain(at);
            if let Some(line) = limit_line(limit, family, table, (at, index)) {
                let about = comment(&format!("{}, limit {}", rule.name, limit.name));
                writeln!(
                    text,
                    "-A {chain} {line} -m comment --comment \"{about}\"{}",
                    target(limit)
                )?;
            }
        }
        if table == FilterTable::Raw && !rule.is_unlimited {
            writeln!(text, "-A {} -j {overflow}", table.chain(at))?;
        }
    }
    for (_, range, at) in ranges(export) {
        if range.addr().is_ipv4() == (family == IpFamily::V4) {
            writeln!(text, "-A {entrance} -s {range} -g {}", table.chain(at))?;
        }
    }
    let everyone = export.rules.iter().position(|rule| rule.scope == AddressScope::Everyone);
    match (everyone, table) {
        (Some(at), _) => writeln!(text, "-A {entrance} -g {}", table.chain(at))?,
        (None, FilterTable::Raw) => writeln!(text, "-A {entrance} -g {overflow}")?,
        (None, FilterTable::Filter) => {}
    }
    writeln!(text, "COMMIT")
}

/// The test of a limit, if it belongs to the table.
fn limit_line(
    limit: &ExportedLimit,
    family: IpFamily,
    table: FilterTable,
    (rule, index): (usize, usize),
) -> Option<String> {
    let mask = limit.prefixes.map(|(ipv4, ipv6)| match family {
        IpFamily::V4 => ipv4,
        IpFamily::V6 => ipv6,
    });
    match (limit.limit, table) {
        (KernelLimit::Rate { amount, unit, burst, idle_seconds }, FilterTable::Raw) => {
            let unit = match unit {
                "second" => "sec",
                "minute" => "min",
                other => other,
            };
            let mut line = format!(
                "-m hashlimit --hashlimit-name tidegate-{rule}-{index} --hashlimit-above {amount}/{unit} \
                 --hashlimit-burst {}",
                burst.min(BURST_MAX)
            );
            if let Some(mask) = mask {
                let _ = write!(
                    line,
                    " --hashlimit-mode srcip --hashlimit-srcmask {mask} --hashlimit-htable-max {TABLE_SIZE} \
                     --hashlimit-htable-expire {}",
                    idle_seconds.saturating_mul(1_000)
                );
            }
            Some(line)
        }
        (KernelLimit::Open { most }, FilterTable::Filter) => {
            let mask = mask.unwrap_or(0);
            Some(format!(
                "-p tcp -m connlimit --connlimit-above {most} --connlimit-mask {mask} --connlimit-saddr"
            ))
        }
        _ => None,
    }
}

const fn target(limit: &ExportedLimit) -> &'static str {
    match (limit.is_shadow, limit.limit) {
        (true, _) => "",
        (false, KernelLimit::Rate { .. }) => " -j DROP",
        (false, KernelLimit::Open { .. }) => " -j REJECT --reject-with tcp-reset",
    }
}
