//! Exported rules as a table of nftables.
//!
//! The table is ours alone and replaced whole, in one transaction. New connections are judged before connection
//! tracking, by the rule whose range has the longest prefix. A set of addresses that is full matches nobody and says
//! nothing, so every rule ends with the overflow limit, which needs no set.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::export::{AddressScope, Export, ExportedLimit, ExportedRule, KernelLimit, comment};

/// The name of the table.
pub const EXPORT_TABLE: &str = "inet tidegate";

/// Addresses that one set holds.
const SET_SIZE: u32 = 65_536;

/// Writes the rules as a script for `nft -f`.
pub fn nftables(export: &Export) -> String {
    let mut script = Script { text: String::new(), export };
    // Writing to a string does not fail.
    let _ = script.write();
    script.text
}

/// The chains of one hook: new connections, or open ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Arrivals,
    Open,
}

struct Script<'e> {
    text: String,
    export: &'e Export,
}

impl Script<'_> {
    fn write(&mut self) -> std::fmt::Result {
        self.write_heading()?;
        writeln!(
            self.text,
            "table {EXPORT_TABLE}\ndelete table {EXPORT_TABLE}\ntable {EXPORT_TABLE} {{"
        )?;
        self.write_sets()?;
        let overflow = self.export.settings.overflow_per_second;
        writeln!(
            self.text,
            "\tcounter overflow {{ }}\n\n\
             \t# A full set matches nobody: this bounds what passes then.\n\
             \tchain overflow {{\n\
             \t\tlimit rate over {overflow}/second burst {} packets counter name overflow drop\n\t}}",
            overflow.saturating_mul(2),
        )?;
        for hook in [Hook::Arrivals, Hook::Open] {
            self.write_rules(hook)?;
            self.write_hook(hook)?;
        }
        writeln!(self.text, "}}")
    }

    fn write_heading(&mut self) -> std::fmt::Result {
        let Export { settings, version, left_out, .. } = self.export;
        let thousandths = settings.connections_per_request;
        writeln!(
            self.text,
            "# Tidegate's rules, version {version:016x}, for connections to port {}.",
            settings.port
        )?;
        writeln!(
            self.text,
            "# A request counts as {}.{:03} connections. Each machine counts for itself.",
            thousandths / 1_000,
            thousandths % 1_000
        )?;
        if !left_out.is_empty() {
            writeln!(self.text, "# Not exported:")?;
        }
        for one in left_out {
            writeln!(self.text, "#   {}: {}", comment(&one.name), comment(&one.reason))?;
        }
        Ok(())
    }

    fn write_sets(&mut self) -> std::fmt::Result {
        let export = self.export;
        for (rule, limit, exported) in limits(export) {
            if exported.prefixes.is_none() {
                continue;
            }
            for (family, kind) in [(4, "ipv4_addr"), (6, "ipv6_addr")] {
                let name = set_name(rule, limit, family);
                let flags = match exported.limit {
                    KernelLimit::Rate { idle_seconds, .. } => {
                        format!("flags dynamic,timeout; timeout {idle_seconds}s;")
                    }
                    // Connection counts end by themselves, and allow no timeout.
                    KernelLimit::Open { .. } => "flags dynamic;".to_owned(),
                };
                writeln!(self.text, "\tset {name} {{ type {kind}; size {SET_SIZE}; {flags} }}")?;
            }
        }
        Ok(())
    }

    /// A chain for each rule.
    fn write_rules(&mut self, hook: Hook) -> std::fmt::Result {
        let export = self.export;
        for (at, rule) in export.rules.iter().enumerate() {
            writeln!(self.text, "\n\t# {}", comment(&rule.name))?;
            writeln!(self.text, "\tchain {} {{", chain_name(hook, at))?;
            for (index, limit) in rule.limits.iter().enumerate() {
                if is_of(hook, limit) {
                    self.write_limit(at, index, limit)?;
                }
            }
            if hook == Hook::Arrivals && !rule.is_unlimited {
                writeln!(self.text, "\t\tjump overflow")?;
            }
            writeln!(self.text, "\t}}")?;
        }
        Ok(())
    }

    fn write_limit(
        &mut self,
        rule: usize,
        index: usize,
        limit: &ExportedLimit,
    ) -> std::fmt::Result {
        let mut about = format!("limit {}", comment(&limit.name));
        for note in &limit.notes {
            let _ = write!(about, "; {note}");
        }
        if limit.is_shadow {
            about.push_str("; in shadow: counted, not refused");
        }
        writeln!(self.text, "\t\t# {about}")?;
        let (verb, test, verdict) = match limit.limit {
            KernelLimit::Rate { amount, unit, burst, .. } => {
                ("update", format!("limit rate over {amount}/{unit} burst {burst} packets"), "drop")
            }
            KernelLimit::Open { most } => {
                ("add", format!("ct count over {most}"), "reject with tcp reset")
            }
        };
        let verdict = if limit.is_shadow { String::new() } else { format!(" {verdict}") };
        let Some((ipv4, ipv6)) = limit.prefixes else {
            return writeln!(self.text, "\t\t{test} counter{verdict}");
        };
        let keys = [(4, "ip saddr", ipv4_mask(ipv4)), (6, "ip6 saddr", ipv6_mask(ipv6))];
        for (family, key, mask) in keys {
            let name = set_name(rule, index, family);
            writeln!(self.text, "\t\t{verb} @{name} {{ {key}{mask} {test} }} counter{verdict}")?;
        }
        Ok(())
    }

    /// The chain at a hook, which leads each connection to the chain of its rule.
    fn write_hook(&mut self, hook: Hook) -> std::fmt::Result {
        let port = self.export.settings.port;
        match hook {
            Hook::Arrivals => writeln!(
                self.text,
                "\n\tchain arrivals {{\n\
                 \t\ttype filter hook prerouting priority -300; policy accept;\n\
                 \t\ttcp dport != {port} accept\n\
                 \t\ttcp flags & (syn | ack) != syn accept"
            )?,
            Hook::Open => writeln!(
                self.text,
                "\n\tchain open {{\n\
                 \t\ttype filter hook input priority 0; policy accept;\n\
                 \t\ttcp dport != {port} accept\n\
                 \t\tct state != new accept"
            )?,
        }
        let export = self.export;
        for (length, range, at) in ranges(export) {
            let _ = length;
            let family = if range.addr().is_ipv4() { "ip" } else { "ip6" };
            writeln!(self.text, "\t\t{family} saddr {range} goto {}", chain_name(hook, at))?;
        }
        let everyone = export.rules.iter().position(|rule| rule.scope == AddressScope::Everyone);
        match (everyone, hook) {
            (Some(at), _) => writeln!(self.text, "\t\tgoto {}", chain_name(hook, at))?,
            (None, Hook::Arrivals) => writeln!(self.text, "\t\tjump overflow")?,
            (None, Hook::Open) => {}
        }
        writeln!(self.text, "\t}}")
    }
}

/// Every range with the index of its rule, the longest prefix first.
pub(crate) fn ranges(export: &Export) -> Vec<(u8, IpNet, usize)> {
    let mut all: Vec<(u8, IpNet, usize)> = Vec::new();
    for (at, rule) in export.rules.iter().enumerate() {
        if let AddressScope::Ranges(ranges) = &rule.scope {
            all.extend(ranges.iter().map(|range| (range.prefix_len(), *range, at)));
        }
    }
    all.sort_by_key(|(length, ..)| std::cmp::Reverse(*length));
    all
}

/// Every limit with the index of its rule and its own.
fn limits(export: &Export) -> impl Iterator<Item = (usize, usize, &ExportedLimit)> {
    let of_rule = |(at, rule): (usize, &'_ ExportedRule)| -> Vec<(usize, usize)> {
        (0..rule.limits.len()).map(|index| (at, index)).collect()
    };
    let places: Vec<_> = export.rules.iter().enumerate().flat_map(of_rule).collect();
    places.into_iter().filter_map(|(at, index)| {
        let limit = export.rules.get(at)?.limits.get(index)?;
        Some((at, index, limit))
    })
}

const fn is_of(hook: Hook, limit: &ExportedLimit) -> bool {
    matches!(
        (hook, limit.limit),
        (Hook::Arrivals, KernelLimit::Rate { .. }) | (Hook::Open, KernelLimit::Open { .. })
    )
}

fn chain_name(hook: Hook, rule: usize) -> String {
    match hook {
        Hook::Arrivals => format!("arrivals_{rule}"),
        Hook::Open => format!("open_{rule}"),
    }
}

fn set_name(rule: usize, limit: usize, family: u8) -> String {
    format!("rule{rule}_limit{limit}_ipv{family}")
}

fn ipv4_mask(prefix: u8) -> String {
    match prefix {
        32.. => String::new(),
        bits => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            format!(" & {}", Ipv4Addr::from_bits(mask))
        }
    }
}

fn ipv6_mask(prefix: u8) -> String {
    match prefix {
        128.. => String::new(),
        bits => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            format!(" & {}", Ipv6Addr::from_bits(mask))
        }
    }
}
