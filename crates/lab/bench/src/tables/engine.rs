//! A whole verdict: 10,000 rules, three entries, two limits, all or nothing.
//!
//! The peer does less: it has no rules, gets the two keys as arguments, and charges
//! the first limit even when the second refuses.

use std::collections::HashSet;
use std::hint::black_box;

use anyhow::{Context, ensure};
use tidegate_engine::{
    Descriptor, Engine, MemoryConfig, MemoryStore, Request, SystemClock, Timestamp,
};
use tidegate_rules::Domain;

use crate::contestant::{Contestant, ContestantName, Governor, Terms, TidegateLimiter};
use crate::goal::Goal;
use crate::keys::{Draw, KeyBuffer};
use crate::race::{Entrant, Plan, Race};
use crate::requests::{RequestSequence, RequestValues};
use crate::rule_text::{DOMAIN, Limits, compiled, entries, rule_text};
use crate::scale::Scale;
use crate::table::{Table, count, ns};

pub(super) const RULES: u64 = 10_000;
const USERS: [u64; 2] = [1_000, 100_000];
const GOAL: Goal = Goal::at_most(1.5);

/// Indexes of the entrants.
const OURS: usize = 0;
const GOVERNOR: usize = 1;
const MATCHING: usize = 2;
const LIMITERS: usize = 3;

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = [
        "users",
        "tidegate ns",
        "2 × governor ns",
        "of ours: matching ns",
        "2 × `KeyedLimiter` ns",
        "tidegate / governor",
        "goal",
    ];
    let mut table = Table::new("3. A whole verdict (`engine`)", &columns);
    for users in USERS {
        eprintln!("engine: {} users", count(users));
        let race = race(users, scale)?;
        let ratio = race.ratio(OURS, GOVERNOR);
        table.row([
            count(users),
            ns(race.nanos(OURS)),
            ns(race.nanos(GOVERNOR)),
            ns(race.nanos(MATCHING)),
            ns(race.nanos(LIMITERS)),
            ratio.to_string(),
            GOAL.judge(ratio.median),
        ]);
    }
    table.note(format!(
        "Nanoseconds per request. Tidegate finds one of {RULES} rules by three entries and charges its \
         two limits together or not at all; governor is asked twice by the user's name, without \
         rules. The next two columns show where our time goes: finding the rule alone, and two \
         limiters of ours in place of governor's."
    ));
    Ok(table)
}

fn race(users: u64, scale: Scale) -> anyhow::Result<Race> {
    let terms = Terms::Admit;
    let sequence = RequestSequence::new(Draw::uniform(users), scale.drawn, |user| user % RULES);
    let engine = engine()?;
    let governors = [Governor::new(terms)?, Governor::new(terms)?];
    let snapshot = compiled(rule_text(RULES, Limits::Two))?;
    let domain = snapshot.domain(DOMAIN).context("the rules have another domain")?;
    let limiters = [TidegateLimiter::new(terms)?, TidegateLimiter::new(terms)?];
    let entrants = [
        Entrant::new(ContestantName::Tidegate.to_string(), |place, operations| {
            let asked = sequence.from(place).take(operations);
            asked.filter(|asked| admits(&engine, asked)).count()
        }),
        pair(ContestantName::Governor.to_string(), &governors, &sequence),
        matching("matching", domain, &sequence),
        pair("two limiters", &limiters, &sequence),
    ];
    // Inserts all users before the first measured round.
    for entrant in &entrants {
        entrant.warm_up(scale.drawn);
    }
    let Scale { rounds, operations, .. } = scale;
    let race = Race::run(&entrants, Plan { rounds, operations, threads: 1, terms })?;
    drop(entrants);
    let drawn: HashSet<u64> = Draw::uniform(users).take(scale.drawn).collect();
    let (held, expected) = (engine.store().stats().keys, drawn.len() * 2);
    ensure!(held == expected, "the engine holds {held} keys, not {expected}");
    Ok(race)
}

/// Two limiters that each decide the user of every request.
fn pair<'a>(
    name: impl Into<String>,
    limiters: &'a [impl Contestant; 2],
    sequence: &'a RequestSequence,
) -> Entrant<'a> {
    Entrant::new(name, move |place, operations| {
        let mut key = KeyBuffer::default();
        let asked = sequence.from(place).take(operations);
        let admitted = asked.filter(|asked| {
            key.fill(asked.user);
            // The second decides even if the first refuses.
            limiters[0].admits(&key) & limiters[1].admits(&key)
        });
        admitted.count()
    })
}

/// Only matches the rule of every request.
pub(super) fn matching<'a>(
    name: impl Into<String>,
    domain: &'a Domain,
    sequence: &'a RequestSequence,
) -> Entrant<'a> {
    Entrant::new(name, move |place, operations| {
        let asked = sequence.from(place).take(operations);
        let found = asked.filter(|asked| {
            let found = domain.find(&entries(asked), Timestamp::EPOCH);
            black_box(&found).is_some()
        });
        found.count()
    })
}

/// An engine with many rules, which admits all.
pub(super) fn engine() -> anyhow::Result<Engine> {
    let store = MemoryStore::new(MemoryConfig::default())?;
    let snapshot = compiled(rule_text(RULES, Limits::Two))?;
    Ok(Engine::new(store, SystemClock::new()).with_rules(snapshot))
}

/// Decides one request, and consumes the whole verdict. A request that matches no rule does not
/// count as admitted, because it would not measure a limit.
#[inline]
pub(super) fn admits(engine: &Engine, asked: &RequestValues<'_>) -> bool {
    let entries = entries(asked);
    let descriptors = [Descriptor::new(&entries)];
    let verdict = engine.check_now(&Request::new(DOMAIN, &descriptors));
    black_box(&verdict).is_admitted() && verdict.rulings().len() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_meets_two_limits_and_is_admitted() {
        let engine = engine().unwrap();
        let sequence = RequestSequence::new(Draw::uniform(1_000), 2_000, |user| user % RULES);
        assert!(sequence.from(0).take(2_000).all(|asked| admits(&engine, &asked)));
    }

    #[test]
    fn a_request_that_meets_no_rule_does_not_count() {
        let asked = RequestValues { tenant: "nobody", path: "/", user: "somebody" };
        assert!(!admits(&engine().unwrap(), &asked));
    }
}
