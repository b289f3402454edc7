//! `tidegate rules export`: the part of the rules that the kernel's packet filter can express.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate_kernel_rules::{Export, ExportError, ExportSettings, IpFamily, iptables, nftables};
use tidegate_rules::{Options, compile};

use super::load::{self, DEFAULT_PATH};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;
use crate::packet_filter;

/// The language of a packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FilterLanguage {
    /// A script for `nft -f`, for both families.
    Nftables,
    /// A file for `iptables-restore --noflush`.
    Iptables,
    /// A file for `ip6tables-restore --noflush`.
    Ip6tables,
}

/// The arguments of `tidegate rules export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The packet filter.
    #[arg(value_enum)]
    pub(crate) to: FilterLanguage,
    /// A rule file, a directory that holds some, or `-` for standard input; can be given several times.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_RULES", default_value = DEFAULT_PATH)]
    pub(crate) rules: Vec<PathBuf>,
    /// The port whose connections are limited.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// How many connections a client may open for each request that a rule admits. A browser sends many requests over
    /// one connection; 1 never refuses a client that keeps to the rules and opens no connection in vain.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = thousandths)]
    pub(crate) connections_per_request: u64,
    /// The most new connections a second of all addresses together, exempt ones aside. Sets of addresses match nobody
    /// when they are full; this bounds what passes then.
    #[arg(long, value_name = "NUMBER", default_value_t = 5_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=500_000))]
    pub(crate) overflow: u64,
    /// The domain; not needed when the rules have only one.
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// The key of the client's address; not needed when only one key has addresses.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Let the packet filter check the result, without changing anything (needs root).
    #[arg(long, conflicts_with = "apply")]
    pub(crate) check: bool,
    /// Hand the result to the packet filter (needs root).
    #[arg(long)]
    pub(crate) apply: bool,
}

/// A decimal number as thousandths.
fn thousandths(text: &str) -> Result<u64, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|letter| letter.is_ascii_digit());
    let digits = format!("{whole}{part:0<3}");
    if part.len() > 3 || whole.is_empty() || !is_number(&digits) {
        return Err("it is a number such as 1 or 0.25, with up to three decimals".to_owned());
    }
    let number = digits.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| "it goes from 0.001 to 1000".to_owned())
}

pub(crate) fn run(args: &ExportArgs, out: &mut Output) -> Result<Exit, Failure> {
    let sources = load::sources(&args.rules)?;
    let snapshot = compile(&sources, &Options::default()).map_err(Failure::Rules)?;
    let settings = ExportSettings {
        port: args.port,
        connections_per_request: args.connections_per_request,
        overflow_per_second: args.overflow,
        domain: args.domain.clone(),
        key: args.key.clone(),
    };
    let export = Export::of(&snapshot, settings).map_err(|error| unclear(&error))?;
    let text = match args.to {
        FilterLanguage::Nftables => nftables(&export),
        FilterLanguage::Iptables => iptables(&export, IpFamily::V4),
        FilterLanguage::Ip6tables => iptables(&export, IpFamily::V6),
    };
    if !args.check && !args.apply {
        return crate::print(text, out);
    }
    let (program, mut options) = match args.to {
        FilterLanguage::Nftables => ("nft", vec!["-f", "-"]),
        FilterLanguage::Iptables => ("iptables-restore", vec!["--noflush"]),
        FilterLanguage::Ip6tables => ("ip6tables-restore", vec!["--noflush"]),
    };
    if args.check {
        options.insert(0, if program == "nft" { "--check" } else { "--test" });
    }
    packet_filter::run(program.as_ref(), &options, text, packet_filter::PATIENCE).map_err(
        |message| {
            let help = "run it as root, with nftables or iptables installed";
            Complaint::new(message, help)
        },
    )?;
    let (rules, left_out) = (export.rules.len(), export.left_out.len());
    let done = if args.check { "accepts" } else { "has" };
    crate::print(
        format_args!("{program} {done} it: {rules} rules, {left_out} limits left out\n"),
        out,
    )
}

fn unclear(error: &ExportError) -> Complaint {
    let help = match error {
        ExportError::WhichDomain { .. } | ExportError::NoDomain { .. } => "name it with `--domain`",
        ExportError::WhichKey { .. } => "name the client's address with `--key`",
    };
    Complaint::new(error.to_string(), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_number_is_read_exactly() {
        for (text, expected) in [("1", 1_000), ("0.25", 250), ("1.5", 1_500), ("1000", 1_000_000)] {
            assert_eq!(thousandths(text), Ok(expected), "{text}");
        }
        for text in ["", ".5", "0", "-1", "1.0001", "1,5", "1001", "x", "1.x"] {
            assert!(thousandths(text).is_err(), "{text}");
        }
    }
}
