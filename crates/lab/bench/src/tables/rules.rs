//! Compiling and matching rules.

use anyhow::Context;
use tidegate_engine::Snapshot;

use super::engine::matching;
use crate::contestant::Terms;
use crate::goal::Goal;
use crate::keys::Draw;
use crate::race::{Plan, Race};
use crate::requests::RequestSequence;
use crate::rule_text::{DOMAIN, Limits, compiled, rule_text};
use crate::scale::Scale;
use crate::spread::Spread;
use crate::stopwatch::Stopwatch;
use crate::table::{Table, count, ns};

const SIZES: [u64; 3] = [10, 10_000, 100_000];
const COMPILE: Goal = Goal::at_most_of(2.0, " s");
/// The highest ratio that counts as equal, with room for noise of the machine.
const SAME: Goal = Goal::at_most_of(1.2, " × ten rules");
/// The number of rules that requests match in the case with few.
const FEW: u64 = 10;

/// The rules that requests match.
#[derive(Clone, Copy, Debug)]
enum RulesInUse {
    /// The same number for every size, spread over all rules.
    Few,
    /// All rules equally often, so that large sizes exceed the processor's caches.
    All,
}

impl RulesInUse {
    const fn rule_of(self, user: u64, rules: u64) -> u64 {
        match self {
            RulesInUse::Few => (user % FEW) * (rules / FEW),
            RulesInUse::All => user % rules,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            RulesInUse::Few => "match, ten rules in use",
            RulesInUse::All => "match, all rules in use",
        }
    }
}

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = ["what", "rules", "time", "/ ten rules", "goal"];
    let mut table = Table::new("6. Rules (`rules`)", &columns);
    let mut snapshots = Vec::new();
    for rules in SIZES {
        eprintln!("rules: compiling {}", count(rules));
        let (snapshot, seconds) = compile(rules, scale.compilations)?;
        let judged = if rules == 100_000 { COMPILE.judge(seconds) } else { String::new() };
        let time = format!("{:.1} ms", seconds * 1e3);
        table.row(["compile".to_owned(), count(rules), time, String::new(), judged]);
        snapshots.push((rules, snapshot));
    }
    for in_use in [RulesInUse::Few, RulesInUse::All] {
        eprintln!("rules: {}", in_use.title());
        let race = race(&snapshots, in_use, scale)?;
        for (place, (rules, _)) in snapshots.iter().enumerate() {
            let ratio = race.ratio(place, 0);
            let judged = if place == 0 { String::new() } else { SAME.judge(ratio.median) };
            let time = format!("{} ns", ns(race.nanos(place)));
            table.row([in_use.title().to_owned(), count(*rules), time, ratio.to_string(), judged]);
        }
    }
    table.note("Rules stand at the third level; a match is by three entries. Reading the request is included.");
    Ok(table)
}

/// The compiled rules, and the median time of compiling in seconds.
fn compile(rules: u64, times: usize) -> anyhow::Result<(Snapshot, f64)> {
    let text = rule_text(rules, Limits::One);
    let mut snapshot = None;
    let mut seconds = Vec::with_capacity(times);
    for _ in 0..times {
        let text = text.clone();
        let stopwatch = Stopwatch::start();
        let compiled = compiled(text)?;
        seconds.push(stopwatch.elapsed().as_secs_f64());
        snapshot = Some(compiled);
    }
    Ok((snapshot.context("nothing was compiled")?, Spread::of(seconds).median))
}

fn race(snapshots: &[(u64, Snapshot)], in_use: RulesInUse, scale: Scale) -> anyhow::Result<Race> {
    let sequences: Vec<RequestSequence> = snapshots
        .iter()
        .map(|(rules, _)| {
            let rule_of = |user| in_use.rule_of(user, *rules);
            RequestSequence::new(Draw::uniform(*rules), scale.drawn, rule_of)
        })
        .collect();
    let mut entrants = Vec::with_capacity(snapshots.len());
    for ((rules, snapshot), sequence) in snapshots.iter().zip(&sequences) {
        let domain = snapshot.domain(DOMAIN).context("the rules have another domain")?;
        entrants.push(matching(count(*rules), domain, sequence));
    }
    let Scale { rounds, operations, .. } = scale;
    Race::run(&entrants, Plan { rounds, operations, threads: 1, terms: Terms::Admit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rules_are_ten_spread_over_all_of_them() {
        let rules: Vec<u64> = (0..10).map(|user| RulesInUse::Few.rule_of(user, 100_000)).collect();
        assert_eq!((rules[0], rules[1], rules[9]), (0, 10_000, 90_000));
        assert_eq!(RulesInUse::Few.rule_of(3, 10), 3);
    }

    #[test]
    fn a_rule_file_is_compiled_and_timed() {
        let (snapshot, seconds) = compile(1_000, 1).unwrap();
        assert_eq!(snapshot.limits().len(), 1_000);
        assert!(seconds > 0.0);
    }
}
