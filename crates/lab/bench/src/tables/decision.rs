//! One decision by one limit, for keys that exist.

use std::hash::RandomState;

use governor::middleware::StateInformationMiddleware;

use crate::contestant::{
    Contestant, ContestantName, Governor, Least, NoLimiter, Terms, Throttlecrab, TidegateLimiter,
    ensure_holds,
};
use crate::goal::Goal;
use crate::keys::{Draw, KEY_BYTES, KeyBuffer, KeySequence};
use crate::race::{Entrant, Plan, Race};
use crate::scale::Scale;
use crate::table::{Table, ns};

/// The keys of a case, and their distribution.
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

/// Indexes of the entrants.
const OURS: usize = 0;
const GOVERNOR: usize = 1;
const GOVERNOR_WITH_FIGURES: usize = 2;
const THROTTLECRAB: usize = 3;
const NOBODY: usize = 4;
const LEAST: usize = 5;

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = [
        "case",
        "threads",
        "tidegate ns",
        "governor ns",
        "with figures ns",
        "throttlecrab ns",
        "making the key ns",
        "the least ns",
        "the least / governor",
        "tidegate / governor",
        "goal",
    ];
    let mut table = Table::new("1. One decision (`decision`)", &columns);
    for case in &CASES {
        let field = Field::new(case)?;
        let sequence = KeySequence::new((case.draw)(case.keys), scale.drawn);
        for (threads, goal) in (1..).zip(&case.goals) {
            eprintln!("decision: {}, threads: {threads}", case.name);
            let plan = Plan {
                rounds: scale.rounds,
                operations: scale.operations,
                threads,
                terms: case.terms,
            };
            let race = Race::run(&field.entrants(&sequence), plan)?;
            let ratio = race.ratio(OURS, GOVERNOR);
            table.row([
                case.name.to_owned(),
                threads.to_string(),
                ns(race.nanos(OURS)),
                ns(race.nanos(GOVERNOR)),
                ns(race.nanos(GOVERNOR_WITH_FIGURES)),
                ns(race.nanos(THROTTLECRAB)),
                ns(race.nanos(NOBODY)),
                ns(race.nanos(LEAST)),
                format!("{:.2}", race.ratio(LEAST, GOVERNOR).median),
                ratio.to_string(),
                goal.judge(ratio.median),
            ]);
        }
        field.ensure_holds(case.keys)?;
    }
    table.note(
        "Nanoseconds per decision and thread, reading the clock and making the key included. \
         Ratios: median and quartiles of the rounds. With figures: governor with its \
         `StateInformationMiddleware`, which tells what is left, as we and throttlecrab always do. \
         The least: clock, fingerprint and one of 256 words written under its lock, with nothing \
         looked up and nothing decided.",
    );
    Ok(table)
}

/// All contestants of a case, with its keys inserted.
struct Field {
    ours: TidegateLimiter,
    governor: Governor,
    governor_with_figures: Governor<RandomState, StateInformationMiddleware>,
    throttlecrab: Throttlecrab,
    nobody: NoLimiter,
    least: Least,
}

impl Field {
    fn new(case: &Case) -> anyhow::Result<Self> {
        let terms = case.terms;
        let field = Field {
            ours: TidegateLimiter::new(terms)?,
            governor: Governor::new(terms)?,
            governor_with_figures: Governor::new(terms)?.with_figures(),
            throttlecrab: Throttlecrab::new(terms),
            nobody: NoLimiter(terms),
            least: Least::new(terms),
        };
        field.keepers().into_iter().for_each(|contestant| insert_all(contestant, case));
        insert_all(&field.throttlecrab, case);
        Ok(field)
    }

    /// The contestants that can count their keys.
    fn keepers(&self) -> [&dyn Contestant; 3] {
        [&self.ours, &self.governor, &self.governor_with_figures]
    }

    fn entrants<'a>(&'a self, keys: &'a KeySequence) -> [Entrant<'a>; 6] {
        [
            Entrant::keyed(ContestantName::Tidegate.to_string(), &self.ours, keys),
            Entrant::keyed(ContestantName::Governor.to_string(), &self.governor, keys),
            Entrant::keyed("governor with figures", &self.governor_with_figures, keys),
            Entrant::keyed(ContestantName::Throttlecrab.to_string(), &self.throttlecrab, keys),
            Entrant::keyed("nobody", &self.nobody, keys),
            Entrant::keyed("the least", &self.least, keys),
        ]
    }

    fn ensure_holds(&self, keys: u64) -> anyhow::Result<()> {
        self.keepers().into_iter().try_for_each(|contestant| ensure_holds(contestant, keys))
    }
}

/// Inserts all keys, and uses up the burst of [`Terms::Refuse`].
fn insert_all(contestant: &dyn Contestant, case: &Case) {
    let mut key = KeyBuffer::default();
    for number in 0..case.keys {
        key.number(number, KEY_BYTES);
        for _ in 0..case.terms.first() {
            contestant.admits(&key);
        }
    }
}
