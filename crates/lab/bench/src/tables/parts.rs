//! The cost of each part of a decision, on a key in the processor's cache.
//!
//! The processor executes several parts at once, so their sum is no bound. The lower
//! bound of a decision is a row of its own: the clock, a fingerprint and a lock,
//! without a look-up or arithmetic. The table of decisions repeats that row with
//! each step waiting for the one before.

use std::hint::black_box;
use std::sync::Arc;

use arc_swap::ArcSwap;
use spinning_top::Spinlock;
use tidegate_engine::{
    Clock, Descriptor, Limit, MemoryConfig, MemoryStore, Period, Request, SystemClock, Timestamp,
    TokenBucket, Verb,
};
use tidegate_stores::{Answers, Batch, Charge, Check, Key};

use super::engine;
use crate::contestant::{Contestant, Governor, Terms, TidegateLimiter};
use crate::keys::{Draw, KeyBuffer, KeySequence};
use crate::requests::RequestSequence;
use crate::rule_text::{DOMAIN, Limits, compiled, entries, rule_text};
use crate::stopwatch::on_processor;
use crate::table::Table;

const ROUNDS: usize = 31;
const OPERATIONS: u32 = 200_000;
/// Hides the length of the key from the compiler: keys of callers differ in length.
const KEY: &[u8] = b"user-00000000001";
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

pub(super) fn table() -> anyhow::Result<Table> {
    eprintln!("parts");
    let mut table = Table::new("7. The parts (`parts`)", &["part", "ns"]);
    let mut row = |part: &str, nanos: f64| table.row([part.to_owned(), format!("{nanos:.1}")]);

    let clock = SystemClock::new();
    row("reading our clock", best(|| ignore(clock.now())));
    let lock = Spinlock::new(0_u64);
    row("taking a lock of a shard's kind and letting it go", best(|| *lock.lock() += 1));
    let store = MemoryStore::new(MemoryConfig::default())?;
    let fingerprinter = store.fingerprinter();
    row("a fingerprint of 16 bytes", best(|| ignore(fingerprinter.of(1, black_box(KEY)))));
    row(
        "these three together, for one decision",
        best(|| {
            let fingerprint = fingerprinter.of(1, black_box(KEY));
            let now = clock.now();
            *lock.lock() = now.as_nanos();
            black_box(&fingerprint);
        }),
    );
    let limit = Limit::new(TokenBucket::new(1, Period::SECOND, 1_000_000_000));
    let checks = [check(&store, &limit, 1), check(&store, &limit, 2)];
    row("one limit in the store, key and time given", best(|| decide(&store, &checks[..1])));
    row("two limits in the store, keys and time given", best(|| decide(&store, &checks)));

    let swap = ArcSwap::new(Arc::new(0_u64));
    row("looking at the rules in place", best(|| ignore(swap.load())));
    let engine = engine::engine()?;
    let requests = RequestSequence::new(Draw::uniform(1), 1, |_| 0);
    let asked = requests.from(0).next();
    let asked = asked.ok_or_else(|| anyhow::anyhow!("a sequence is never empty"))?;
    let entries = entries(&asked);
    let snapshot = compiled(rule_text(engine::RULES, Limits::Two))?;
    let domain = snapshot.domain(DOMAIN);
    let domain = domain.ok_or_else(|| anyhow::anyhow!("the rules have a domain"))?;
    row(
        "finding one of 10,000 rules by three entries",
        best(|| {
            black_box(&domain.find(black_box(&entries), Timestamp::EPOCH));
        }),
    );
    let descriptors = [Descriptor::new(&entries)];
    let request = Request::new(DOMAIN, &descriptors);
    row(
        "a whole verdict",
        best(|| {
            // By reference, so that the time does not include a move of the verdict.
            black_box(&engine.apply_now(Verb::Check, black_box(&request)));
        }),
    );

    let keys = KeySequence::new(Draw::uniform(1), 1);
    let mut key = KeyBuffer::default();
    if let Some(only) = keys.from(0).next() {
        key.fill(only);
    }
    let ours = TidegateLimiter::new(Terms::Admit)?;
    row("`KeyedLimiter::check`", best(|| ignore(ours.admits(&key))));
    let governor = Governor::new(Terms::Admit)?;
    row("governor's `check_key`", best(|| ignore(governor.admits(&key))));
    let governor = governor.with_figures();
    row("the same with what is left", best(|| ignore(governor.admits(&key))));
    table.note("Nanoseconds in the best of 31 rounds, always the same key.");
    Ok(table)
}

/// A check of a key under one of several limits, all in one shard.
fn check<'l>(store: &MemoryStore, limit: &'l Limit, group: u64) -> Check<'l> {
    let fingerprint = store.fingerprinter().of(1, KEY).under(group);
    let key = Key { fingerprint, group };
    Check::new(key, limit, 1)
}

/// Decides known keys at a given time.
fn decide(store: &MemoryStore, checks: &[Check<'_>]) {
    let batch = Batch::new(Verb::Check, Charge::AllOrNothing, NOW, checks);
    let mut answers = Answers::new();
    store.apply_now(black_box(&batch), &mut answers);
    black_box(&answers);
}

/// Keeps the compiler from skipping a value.
pub(super) fn ignore<T>(value: T) {
    drop(black_box(value));
}

/// Nanoseconds per operation in the best of several rounds.
pub(super) fn best(mut operation: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let begun = on_processor();
        for _ in 0..OPERATIONS {
            operation();
        }
        on_processor().saturating_sub(begun).as_secs_f64() * 1e9 / f64::from(OPERATIONS)
    });
    rounds.fold(f64::INFINITY, f64::min)
}
