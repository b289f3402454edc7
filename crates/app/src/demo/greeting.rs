//! The greeting of the demo: commands to try.

use std::io::{self, Write};

use tidegate_engine::{Rule, Snapshot, Timestamp};
use tidegate_rules::Domain;

use super::InputMode;
use super::session::Session;
use crate::descriptor::TypedDescriptor;
use crate::output::{Cell, Clean, StyledText, Table, style};
use crate::words::count;

/// Writes the title and commands that work with the rules; the built-in rules have their own.
pub(super) fn write(
    session: &Session,
    mode: InputMode,
    is_quickstart: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let name = Clean(session.domain().map_or("", Domain::name));
    let rules = session.rules().count();
    let title = format!("Tidegate demo: {} of domain {name}", count(rules, "rule"));
    writeln!(out, "{}", StyledText(style::STRONG, title))?;
    let time = match mode {
        InputMode::Prompt => "Counted in this process; `wait` skips time, it does not sleep.",
        InputMode::Script => "Counted in this process; time stands still but for `wait`.",
    };
    writeln!(out, "{time}\n")?;
    let request = session.domain().and_then(|domain| example(session.snapshot(), domain));
    let burst = format!("{} x20", request.as_deref().unwrap_or("user=ada"));
    let tries = if is_quickstart {
        [
            ("user=ada x12", "twelve at once: a burst of ten passes"),
            ("wait 1s", "a second later five more may come"),
            ("user=ada path=/login x4", "a stricter rule for one path"),
        ]
    } else {
        [
            (burst.as_str(), "twenty requests at once"),
            ("wait 1s", "skip a second"),
            ("rules", "list the rules"),
        ]
    };
    let mut table = Table::titled(&["Try", ""]);
    for (command, about) in tries.into_iter().chain([("help", "all commands")]) {
        let about = Cell::new(about).styled(style::FAINT);
        table.row([Cell::new(command).styled(style::HELP), about]);
    }
    table.write(out, "  ")?;
    writeln!(out)
}

/// A request that meets a rule with limits, as it would be typed.
fn example(snapshot: &Snapshot, domain: &Domain) -> Option<String> {
    let is_candidate = |rule: &&Rule| rule.domain() == domain.name() && !rule.unlimited();
    snapshot.rules().iter().filter(is_candidate).find_map(|rule| {
        let typed = TypedDescriptor::example(rule);
        let found = domain.find(&typed.entries(), Timestamp::EPOCH)?;
        (typed.is_plain() && found.rule.id() == rule.id()).then(|| typed.to_string())
    })
}
