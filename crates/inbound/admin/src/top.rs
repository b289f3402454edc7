//! The most refused limits and callers, as tables for a terminal.

use std::fmt::Write;

use super::observations::{RefusedKey, RefusingLimit, TopReading, TopRow};

/// Both tables.
pub(super) fn table(reading: &TopReading) -> String {
    let TopReading { refusals, missed, limits, keys } = reading;
    let mut text = format!("{refusals} refusals");
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
