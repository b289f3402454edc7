//! Allocations of an admitted request of a known key.
//!
//! A program has one allocator, so the counting one serves all tables. It calls the
//! system's allocator and adds some nanoseconds, which matters only for contestants
//! that allocate.

mod calls;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

use super::engine;
use crate::contestant::{Contestant, Governor, Terms, Throttlecrab, TidegateLimiter};
use crate::goal::Goal;
use crate::keys::{Draw, KeyBuffer, KeySequence};
use crate::requests::RequestSequence;
use crate::table::Table;

const REQUESTS: usize = 10_000;
const KEYS: u64 = 1_000;
const GOAL: Goal = Goal::at_most(0.0);

pub(super) fn table() -> anyhow::Result<Table> {
    eprintln!("allocations");
    let mut table = Table::new(
        "4. Allocations (`allocations`)",
        &["who", "allocations in 10,000 admitted requests", "goal"],
    );
    let ours = keyed(&TidegateLimiter::new(Terms::Admit)?);
    let verdicts = verdicts()?;
    let governor = keyed(&Governor::new(Terms::Admit)?);
    let throttlecrab = keyed(&Throttlecrab::new(Terms::Admit));
    for (who, count, goal) in [
        ("tidegate `KeyedLimiter::check`", ours, Some(GOAL)),
        ("tidegate `Engine::check_now`", verdicts, Some(GOAL)),
        ("tidegate's RLS door, a whole call", calls::ours()?, None),
        ("a bare tonic service, the same call", calls::bare_tonic()?, None),
        ("governor", governor, None),
        ("throttlecrab", throttlecrab, None),
    ] {
        let judged = goal.map_or_else(String::new, |goal| goal.judge(count as f64));
        table.row([who.to_owned(), count.to_string(), judged]);
    }
    Ok(table)
}

fn keyed(contestant: &impl Contestant) -> usize {
    let sequence = KeySequence::new(Draw::uniform(KEYS), REQUESTS);
    let mut buffer = KeyBuffer::default();
    in_second_pass(|| {
        for key in sequence.from(0).take(REQUESTS) {
            buffer.fill(key);
            contestant.admits(&buffer);
        }
    })
}

fn verdicts() -> anyhow::Result<usize> {
    let engine = engine::engine()?;
    let sequence = RequestSequence::new(Draw::uniform(KEYS), REQUESTS, |user| user % engine::RULES);
    Ok(in_second_pass(|| {
        for asked in sequence.from(0).take(REQUESTS) {
            engine::admits(&engine, &asked);
        }
    }))
}

/// The allocations of the second pass; the first inserts the keys.
fn in_second_pass(mut pass: impl FnMut()) -> usize {
    pass();
    let region = Region::new(&INSTRUMENTED_SYSTEM);
    pass();
    let change = region.change();
    change.allocations + change.reallocations
}
