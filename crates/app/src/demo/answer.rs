//! Verdicts as a small table.

use std::io::{self, Write};

use tidegate_engine::{Nanos, Role, Ruling, Verdict};

use crate::output::{Cell, Clean, StyledText, Table, style};
use crate::words;

/// Up to this many repeated requests have a row each. Of more requests, only those where the answer changes have one.
const ROWS_MAX: u32 = 12;

/// The answers to one line, collected.
#[derive(Debug)]
pub(super) struct Answers {
    table: Table,
    repeat: u32,
    admitted: u32,
    refused: u32,
    /// Whether the previous request was admitted.
    was_admitted: Option<bool>,
    /// Whether the previous request has a row.
    was_shown: bool,
    /// A remark below the table, about the last verdict.
    remark: Option<String>,
}

impl Answers {
    /// For a line with this many requests.
    pub(super) fn new(repeat: u32) -> Self {
        let titles = ["#", "answer", "rule", "limit", "left", "retry after", ""];
        Answers {
            table: Table::titled(&titles),
            repeat,
            admitted: 0,
            refused: 0,
            was_admitted: None,
            was_shown: true,
            remark: None,
        }
    }

    /// Adds the next verdict.
    pub(super) fn add(&mut self, verdict: &Verdict) {
        let admitted = verdict.is_admitted();
        *(if admitted { &mut self.admitted } else { &mut self.refused }) += 1;
        let number = self.admitted + self.refused;
        let changed = self.was_admitted.is_none_or(|was_admitted| was_admitted != admitted);
        let all = self.repeat <= ROWS_MAX;
        let show = all || changed || number == self.repeat;
        if show {
            if !self.was_shown {
                self.table.row([Cell::new("…").styled(style::FAINT).right()]);
            }
            self.rows(number, verdict);
        }
        self.was_shown = show;
        self.was_admitted = Some(admitted);
        self.remark = remark(verdict);
    }

    /// Sets the remark below the table.
    pub(super) fn remark(&mut self, text: &str) {
        self.remark = Some(text.to_owned());
    }

    /// The row of a request with its tightest limit and, for a single request, a row for each other limit.
    fn rows(&mut self, number: u32, verdict: &Verdict) {
        let tightest = verdict.tightest().or_else(|| verdict.rulings().first());
        let answer = if verdict.is_admitted() {
            Cell::new("admitted").styled(style::GOOD)
        } else {
            Cell::new("refused").styled(style::BAD)
        };
        let mut row = vec![Cell::new(number.to_string()).right(), answer];
        if let Some(ruling) = tightest {
            row.extend(limit_cells(verdict, ruling));
        }
        self.table.row(row);
        if self.repeat > 1 {
            return;
        }
        let is_tightest = |ruling: &Ruling| tightest.is_some_and(|one| std::ptr::eq(ruling, one));
        for ruling in verdict.rulings().iter().filter(|ruling| !is_tightest(ruling)) {
            let answer = if ruling.decision.is_admitted() { "admits" } else { "refuses" };
            let mut row = vec![Cell::new(""), Cell::new(answer).styled(style::FAINT)];
            row.extend(limit_cells(verdict, ruling));
            self.table.row(row);
        }
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.table.write(out, "  ")?;
        if let Some(remark) = &self.remark {
            writeln!(out, "  {}", StyledText(style::FAINT, Clean(remark)))?;
        }
        if self.repeat > ROWS_MAX {
            let (admitted, refused) = (self.admitted, self.refused);
            let requests = words::count(self.repeat as usize, "request");
            writeln!(out, "  {requests}: {admitted} admitted, {refused} refused")?;
        }
        Ok(())
    }
}

/// The cells of one limit: its rule, terms, remaining units, retry time and notes.
fn limit_cells(verdict: &Verdict, ruling: &Ruling) -> [Cell; 5] {
    let decision = &ruling.decision;
    let path = verdict.rule(ruling).map_or("", |rule| rule.path());
    let terms = verdict.limit(ruling).map_or_else(String::new, words::terms);
    let left = format!("{} of {}", decision.remaining, decision.limit);
    let mut notes = Vec::new();
    if ruling.role == Role::Observed {
        notes.push(match decision.is_admitted() {
            true => "in shadow".to_owned(),
            false => "in shadow: would refuse".to_owned(),
        });
    }
    if decision.is_admitted() && decision.delay > Nanos::ZERO {
        notes.push(format!("waits {} for its turn", words::span(decision.delay)));
    }
    if decision.soft {
        notes.push("on the soft allowance".to_owned());
    }
    [
        Cell::new(path),
        Cell::new(terms),
        Cell::new(left).right(),
        Cell::new(words::retry(decision.retry)).right(),
        Cell::new(notes.join(", ")).styled(style::WARNING),
    ]
}

/// A remark about a verdict without limits.
fn remark(verdict: &Verdict) -> Option<String> {
    if verdict.is_switched_off() {
        return Some("switched off: nothing is limited or counted; `on` limits again".to_owned());
    }
    if let Some(undecided) = verdict.undecided() {
        return Some(format!("not decided: {undecided}"));
    }
    if !verdict.rulings().is_empty() {
        return None;
    }
    let mut met = verdict.matched_rules().flatten();
    Some(match met.next() {
        Some(rule) if rule.unlimited() => format!("rule {} is unlimited", rule.path()),
        Some(rule) => format!("rule {} is switched off", rule.path()),
        None => "no rule is met, so nothing limits this; `explain` says why".to_owned(),
    })
}

/// Whether a verdict holds slots of a concurrency limit.
pub(super) fn holds_slots(verdict: &Verdict) -> bool {
    verdict.rulings().iter().any(|ruling| {
        verdict.limit(ruling).is_some_and(|limit| limit.limit.algorithm().holds_slots())
    })
}
