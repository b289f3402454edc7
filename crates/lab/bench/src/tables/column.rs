//! A row that compares two servers by one figure.

use std::fmt::Display;

use crate::goal::Goal;
use crate::rounds::Rounds;
use crate::table::Table;

/// One figure of a measurement, and its format.
pub(super) struct Column<F> {
    pub(super) of: fn(&F) -> f64,
    pub(super) shown: fn(f64) -> String,
}

impl<F> Column<F> {
    /// A row that compares one contender with another, if that one was measured.
    pub(super) fn row<W: Copy + Ord + Display>(
        &self,
        table: &mut Table,
        what: &str,
        rounds: &Rounds<W, F>,
        whos: [W; 2],
        goal: Goal,
    ) {
        let [who, other] = whos;
        let ours = (self.shown)(rounds.median(who, self.of));
        let [theirs, ratio, judged] = if rounds.has(other) {
            let ratio = rounds.ratio(who, other, self.of);
            let theirs = (self.shown)(rounds.median(other, self.of));
            [theirs, ratio.to_string(), goal.judge(ratio.median)]
        } else {
            ["could not be had".to_owned(), String::new(), String::new()]
        };
        table.row([what.to_owned(), ours, other.to_string(), theirs, ratio, judged]);
    }
}

pub(super) fn micros(micros: f64) -> String {
    format!("{micros:.2} µs")
}

pub(super) fn whole_micros(micros: f64) -> String {
    format!("{micros:.0} µs")
}

pub(super) fn thousands(per_second: f64) -> String {
    format!("{:.0}k", per_second / 1e3)
}
