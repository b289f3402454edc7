//! One decision by one limit, for keys that exist.

use crate::contestant::{
    Contestant, Governor, Least, Name, Nobody, Ours, Terms, Throttlecrab, ensure_holds,
};
use crate::goal::Goal;
use crate::keys::{Draw, KEY_BYTES, KeyBuffer, KeySequence};
use crate::race::{Entrant, Plan, Race};
use crate::scale::Scale;
use crate::table::{Table, ns};

/// Which keys are asked for, and how often.
struct Case {
    name: &'static str,
    keys: u64,
    draw: fn(u64) -> Draw,
    terms: Terms,
    /// For one thread and for two, against governor.
    goals: [Goal; 2],
}

const USUAL: Goal = Goal::at_most(0.6);
const HOT: Goal = Goal::at_most(0.5);
const LARGE: Goal = Goal::at_most(0.4);

const CASES: [Case; 5] = [
    Case { name: "1 key", keys: 1, draw: Draw::uniform, terms: Terms::Admit, goals: [USUAL, HOT] },
    Case {
        name: "1k keys",
        keys: 1_000,
        draw: Draw::uniform,
        terms: Terms::Admit,
        goals: [USUAL, USUAL],
    },
    Case {
        name: "1M keys, uniform",
        keys: 1_000_000,
        draw: Draw::uniform,
        terms: Terms::Admit,
        goals: [LARGE, LARGE],
    },
    Case {
        name: "1M keys, Zipf 1.0",
        keys: 1_000_000,
        draw: Draw::zipf,
        terms: Terms::Admit,
        goals: [USUAL, USUAL],
    },
    Case {
        name: "1k keys, all refused",
        keys: 1_000,
        draw: Draw::uniform,
        terms: Terms::Refuse,
        goals: [USUAL, USUAL],
    },
];

/// The places of the entrants.
const OURS: usize = 0;
const GOVERNOR: usize = 1;
const THROTTLECRAB: usize = 2;
const NOBODY: usize = 3;
const LEAST: usize = 4;

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = [
        "case",
        "threads",
        "tidegate ns",
        "governor ns",
        "throttlecrab ns",
        "making the key ns",
        "the least ns",
        "the least / governor",
        "tidegate / governor",
        "goal",
    ];
    let mut table = Table::new("1. One decision (`decision`)", &columns);
    for case in &CASES {
        let sequence = KeySequence::new((case.draw)(case.keys), scale.drawn);
        let ours = Ours::new(case.terms)?;
        let governor = Governor::new(case.terms)?;
        let throttlecrab = Throttlecrab::new(case.terms);
        let (nobody, least) = (Nobody(case.terms), Least::new(case.terms));
        for contestant in [&ours as &dyn Contestant, &governor, &throttlecrab] {
            insert_all(contestant, case);
        }
        for (threads, goal) in (1..).zip(&case.goals) {
            eprintln!("decision: {}, threads: {threads}", case.name);
            let plan = Plan {
                rounds: scale.rounds,
                operations: scale.operations,
                threads,
                terms: case.terms,
            };
            let entrants = [
                Entrant::keyed(Name::Tidegate.to_string(), &ours, &sequence),
                Entrant::keyed(Name::Governor.to_string(), &governor, &sequence),
                Entrant::keyed(Name::Throttlecrab.to_string(), &throttlecrab, &sequence),
                Entrant::keyed("nobody", &nobody, &sequence),
                Entrant::keyed("the least", &least, &sequence),
            ];
            let race = Race::run(&entrants, plan)?;
            let ratio = race.ratio(OURS, GOVERNOR);
            table.row([
                case.name.to_owned(),
                threads.to_string(),
                ns(race.nanos(OURS)),
                ns(race.nanos(GOVERNOR)),
                ns(race.nanos(THROTTLECRAB)),
                ns(race.nanos(NOBODY)),
                ns(race.nanos(LEAST)),
                format!("{:.2}", race.ratio(LEAST, GOVERNOR).median),
                ratio.to_string(),
                goal.judge(ratio.median),
            ]);
        }
        ensure_holds(&ours, case.keys)?;
        ensure_holds(&governor, case.keys)?;
    }
    table.note(
        "Nanoseconds per decision and thread, reading the clock and making the key included. \
         Ratios: median and quartiles of the rounds. The least: clock, fingerprint and one \
         of 256 words written under its lock, with nothing looked up and nothing decided.",
    );
    Ok(table)
}

/// Makes all keys known, and uses up what [`Terms::Refuse`] admits of each.
fn insert_all(contestant: &dyn Contestant, case: &Case) {
    let mut key = KeyBuffer::default();
    for number in 0..case.keys {
        key.number(number, KEY_BYTES);
        for _ in 0..case.terms.first() {
            contestant.admits(&key);
        }
    }
}
