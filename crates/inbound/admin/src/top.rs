//! The most refused limits and callers and the requests that were shed, as tables for a terminal.

use std::fmt::Write;

use serde::Serialize;
use tidegate_engine::{Clock, CounterStore, Timestamp};
use tidegate_overload::{Answer, DecisionCount};

use super::observations::{RefusedKey, RefusingLimit, TopReading, TopRow};
use super::service::Inner;

/// The most refused, and the requests that were shed.
#[derive(Debug, Serialize)]
pub(super) struct TopPage {
    /// When counting refusals began, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    #[serde(flatten)]
    reading: TopReading,
    /// Requests that overload protection refused, since the start of the process.
    shed: Vec<ShedRow>,
    /// The networks with the most open or refused connections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    networks: Vec<NetworkRow>,
    /// The networks that flood.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listed: Vec<ListedRow>,
}

/// A network on the list of floods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedRow {
    /// The network, as text.
    pub network: String,
    /// How many seconds it is still listed.
    pub seconds: u32,
    /// Whether it is only listed, and not handed to the packet filter.
    pub shadow: bool,
}

/// The connections of one network at one door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkRow {
    /// The door.
    pub door: &'static str,
    /// The network, as text.
    pub network: String,
    /// Its open connections.
    pub open: usize,
    /// Its connections over a limit: refused, or let through in shadow.
    pub refused: u64,
}

/// Requests of a category that a limiter refused.
#[derive(Debug, Serialize)]
struct ShedRow {
    limiter: &'static str,
    category: &'static str,
    count: u64,
    /// Whether it is in shadow mode, so that the requests passed.
    shadow: bool,
}

pub(super) fn read<S: CounterStore, C: Clock>(door: &Inner<S, C>) -> TopPage {
    let observations = &door.parts.observations;
    let mut reading = observations.recent();
    reading.keys.retain_mut(|row| match door.show_caller(&row.label.key) {
        Some(caller) => {
            row.label.key = caller;
            true
        }
        None => false,
    });
    let protection = door.board.protection();
    let decisions = protection.map(|protection| protection.decisions()).unwrap_or_default();
    let since_ms = observations.recent_since().map(Timestamp::as_millis);
    let mut networks = door.parts.networks.as_ref().map(|read| read()).unwrap_or_default();
    networks.retain_mut(|row| match door.show_caller(&row.network) {
        Some(network) => {
            row.network = network;
            true
        }
        None => false,
    });
    let mut listed = door.parts.listed.as_ref().map(|read| read()).unwrap_or_default();
    listed.retain_mut(|row| match door.show_caller(&row.network) {
        Some(network) => {
            row.network = network;
            true
        }
        None => false,
    });
    TopPage { since_ms, reading, shed: shed_rows(&decisions), networks, listed }
}

fn shed_rows(decisions: &[DecisionCount]) -> Vec<ShedRow> {
    let mut rows: Vec<ShedRow> = Vec::new();
    for decision in decisions {
        let shadow = match decision.answer {
            Answer::Reject => false,
            Answer::WouldReject => true,
            Answer::Allow | Answer::ErrorOpen => continue,
        };
        let (limiter, category) = (decision.limiter.as_str(), decision.category.as_str());
        let is_same = |row: &&mut ShedRow| {
            (row.limiter, row.category, row.shadow) == (limiter, category, shadow)
        };
        match rows.iter_mut().find(is_same) {
            Some(row) => row.count = row.count.saturating_add(decision.count),
            None if decision.count > 0 => {
                rows.push(ShedRow { limiter, category, count: decision.count, shadow });
            }
            None => {}
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

/// All tables.
pub(super) fn table(TopPage { since_ms, reading, shed, networks, listed }: &TopPage) -> String {
    let TopReading { refusals, missed, limits, keys } = reading;
    let mut text = format!("{refusals} refusals by limits");
    if let Some(since) = since_ms {
        let minutes = since / 60_000 % 1_440;
        let _ = write!(text, " since {:02}:{:02} UTC", minutes / 60, minutes % 60);
    }
    if *missed > 0 {
        let _ = write!(text, ", and {missed} observations missed under load");
    }
    text.push_str("\na count is too high by at most its error\n\nlimits\n");
    let of_limit = |row: &TopRow<RefusingLimit>| where_from(&row.label);
    push_rows(&mut text, limits, of_limit);
    text.push_str("\ncallers\n");
    let of_key =
        |row: &TopRow<RefusedKey>| format!("{:<40}  {}", row.label.key, where_from(&row.label.by));
    push_rows(&mut text, keys, of_key);
    if !shed.is_empty() {
        text.push_str("\nshed by overload protection, since the start\n");
        let _ = writeln!(text, "{:>12}", "requests");
        for ShedRow { limiter, category, count, shadow } in shed {
            let shadow = if *shadow { " (shadow: let through)" } else { "" };
            let _ = writeln!(text, "{count:>12}  {limiter} {category}{shadow}");
        }
    }
    if !listed.is_empty() {
        text.push_str("\nlist of floods\n");
        let _ = writeln!(text, "{:>12}", "seconds left");
        for ListedRow { network, seconds, shadow } in listed {
            let shadow = if *shadow { " (shadow: not handed to the kernel)" } else { "" };
            let _ = writeln!(text, "{seconds:>12}  {}{shadow}", network.escape_debug());
        }
    }
    if !networks.is_empty() {
        text.push_str("\nconnections by network\n");
        let _ = writeln!(text, "{:>12} {:>10}", "over limits", "open");
        for NetworkRow { door, network, open, refused } in networks {
            let _ = writeln!(text, "{refused:>12} {open:>10}  {} {door}", network.escape_debug());
        }
    }
    text
}

fn push_rows<L>(text: &mut String, rows: &[TopRow<L>], label: impl Fn(&TopRow<L>) -> String) {
    if rows.is_empty() {
        text.push_str("  nobody\n");
        return;
    }
    let _ = writeln!(text, "{:>12} {:>10}", "refusals", "error");
    for row in rows {
        let _ = writeln!(text, "{:>12} {:>10}  {}", row.refusals, row.error, label(row));
    }
}

fn where_from(by: &RefusingLimit) -> String {
    let RefusingLimit { domain, rule, limit, shadow } = by;
    let shadow = if *shadow { " (shadow: let through)" } else { "" };
    format!("{} {} #{}{shadow}", domain.escape_debug(), rule.escape_debug(), limit.escape_debug())
}
