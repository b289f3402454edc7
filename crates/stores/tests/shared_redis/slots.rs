//! Slots that somebody holds for longer than they live.

use std::time::Duration;

use tidegate_algorithms::{Concurrency, Holder, Limit, Nanos, Period, Timestamp};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, Fingerprinter, Key, RedisSettings, RedisStore,
    Remote, Verb,
};

use crate::support::server::Server;

/// The caller's clock; the server goes by its own.
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

fn at(millis: u64) -> Timestamp {
    START.after(Nanos::from_millis(millis))
}

async fn left(store: &RedisStore, check: Check<'_>, now: Timestamp) -> u64 {
    let checks = [Check { cost: 0, ..check }];
    let batch = Batch::new(Verb::Peek, Charge::AllOrNothing, now, &checks);
    let mut answers = Answers::new();
    let within = Some(Duration::from_secs(5));
    store.apply(&Batch { within, ..batch }, &mut answers).await.unwrap();
    answers[0].decision.remaining
}

#[tokio::test]
async fn a_slot_lives_on_while_it_is_held_and_comes_back_afterwards() {
    let server = Server::redis();
    let store = RedisStore::new(RedisSettings::parse(&server.url()).unwrap()).unwrap();
    store.connected().await;
    store.set_clock(START);
    let life = Period::new(Duration::from_secs(10)).unwrap();
    let limit = Limit::new(Concurrency::new(1, life).unwrap());
    let key = Key { fingerprint: Fingerprinter::shared().of(1, b"ada"), group: 1 };
    let slot = Check { holder: Holder(9), ..Check::new(key, &limit, 1) };
    let checks = [slot];
    let take = Batch::new(Verb::Check, Charge::AllOrNothing, START, &checks);
    let mut answers = Answers::new();
    store
        .apply(&Batch { within: Some(Duration::from_secs(5)), ..take }, &mut answers)
        .await
        .unwrap();
    assert!(answers[0].decision.is_admitted());
    store.hold(&take);

    // At six seconds it is renewed, so at twelve it is there still.
    store.set_clock(at(6_000));
    store.keep_held(at(6_000)).await;
    assert_eq!(store.held().renewed, 1);
    store.set_clock(at(12_000));
    assert_eq!(left(&store, slot, at(12_000)).await, 0);

    // Nobody renews it any more: at seventeen it has come back.
    store.set_clock(at(17_000));
    assert_eq!(left(&store, slot, at(17_000)).await, 1);

    // It was held all the same: with room it is taken again.
    store.keep_held(at(17_000)).await;
    assert_eq!(left(&store, slot, at(17_000)).await, 0);
    store.give_back(&take);
    assert_eq!(store.held().held, 0);
}
