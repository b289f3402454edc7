//! What the demo says first.

use std::io::{self, Write};

use tidegate_engine::{Entry, Rule, Snapshot};
use tidegate_rules::{Domain, ShownValue};

use super::Manner;
use super::session::Session;
use crate::output::{Cell, Clean, Painted, Table, style};
use crate::words::count;

/// For the built-in rules: three things to try that show what limits do.
pub(super) fn quickstart(
    session: &Session,
    manner: Manner,
    out: &mut impl Write,
) -> io::Result<()> {
    let tries = [
        ("user=ada x12", "twelve at once: a burst of ten passes"),
        ("wait 1s", "a second later five more may come"),
        ("user=ada path=/login x4", "a stricter rule for one path"),
    ];
    greet(session, manner, &tries, out)
}

/// For other rules: three things to try that work with them.
pub(super) fn own_rules(session: &Session, manner: Manner, out: &mut impl Write) -> io::Result<()> {
    let request = session.domain().and_then(|domain| example(session.snapshot(), domain));
    let burst =
        request.map_or_else(|| "user=ada x20".to_owned(), |request| format!("{request} x20"));
    let tries = [
        (burst.as_str(), "twenty requests at once"),
        ("wait 1s", "skip a second"),
        ("rules", "list the rules"),
    ];
    greet(session, manner, &tries, out)
}

fn greet(
    session: &Session,
    manner: Manner,
    tries: &[(&str, &str)],
    out: &mut impl Write,
) -> io::Result<()> {
    let name = Clean(session.domain().map_or("", Domain::name));
    let rules = session.rules().count();
    let title = format!("Tidegate demo: {} of domain {name}", count(rules, "rule"));
    writeln!(out, "{}", Painted(style::STRONG, title))?;
    let time = match manner {
        Manner::Prompt => "Counted in this process; `wait` skips time, it does not sleep.",
        Manner::Script => "Counted in this process; time stands still but for `wait`.",
    };
    writeln!(out, "{time}\n")?;
    let mut table = Table::titled(&["Try", ""]);
    for (command, about) in tries {
        let about = Cell::new(*about).styled(style::FAINT);
        table.row([Cell::new(*command).styled(style::HELP), about]);
    }
    table.row([
        Cell::new("help").styled(style::HELP),
        Cell::new("all commands").styled(style::FAINT),
    ]);
    table.write(out, "  ")?;
    writeln!(out)
}

/// A request that meets a rule with limits, as it would be typed.
fn example(snapshot: &Snapshot, domain: &Domain) -> Option<String> {
    let rules = snapshot.rules().iter().filter(|rule| rule.domain() == domain.name());
    rules.filter(|rule| !rule.unlimited()).find_map(|rule| example_of(domain, rule))
}

fn example_of(domain: &Domain, rule: &Rule) -> Option<String> {
    let typed: Vec<(String, String)> = rule
        .levels()
        .iter()
        .map(|level| {
            let value = match level.shown() {
                ShownValue::Written(text) | ShownValue::Shared(text) => text.replace('*', "1"),
                ShownValue::KeyOnly | ShownValue::Requested => "ada".to_owned(),
            };
            (level.key().to_string(), value)
        })
        .collect();
    let entries: Vec<Entry<'_>> = typed.iter().map(|(key, value)| Entry { key, value }).collect();
    // What is guessed must be right, and typed without quotes.
    let found = domain.find(&entries)?;
    let plain = !typed.iter().any(|(key, value)| {
        key.contains(['=', '"']) || [key, value].into_iter().any(|text| text.contains(['"', ' ']))
    });
    (plain && found.rule.id() == rule.id()).then(|| {
        let words: Vec<String> =
            typed.iter().map(|(key, value)| format!("{key}={value}")).collect();
        words.join(" ")
    })
}
