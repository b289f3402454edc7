//! Behaviour that needs a real server: several processes, the server's own clock, keys that expire, and the slots of a
//! cluster.
#![cfg(feature = "redis")]

mod cluster;
mod expiry;
mod processes;
use std::time::Duration;

use tidegate_algorithms::{
    Concurrency, Decision, FixedWindow, Holder, Limit, Period, SlidingLog, SlidingWindow, Soft,
    Timestamp, TokenBucket, Window,
};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, FailureKind, Fingerprint, Fingerprinter, Key,
    RedisSettings, RedisStore, Verb,
};
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::{Server, Setup};

/// The callers' clock, far from the server's.
const NOW: Timestamp = Timestamp::from_secs(5_000_000);
const PATIENCE: Duration = Duration::from_secs(20);

async fn connected(url: &str) -> RedisStore {
    let mut settings = RedisSettings::parse(url).expect("the URL is right");
    settings.deadline = PATIENCE;
    let store = RedisStore::new(settings).expect("the settings are right");
    store.connected().await;
    store
}

fn fingerprint(name: &str) -> Fingerprint {
    Fingerprinter::shared().of(0, name.as_bytes())
}

fn check<'a>(name: &str, limit: &'a Limit, cost: u64) -> Check<'a> {
    Check::new(Key { fingerprint: fingerprint(name), group: 0 }, limit, cost)
}

async fn apply(store: &RedisStore, verb: Verb, checks: &[Check<'_>]) -> Vec<Decision> {
    let batch = Batch::new(verb, Charge::AllOrNothing, NOW, checks);
    let mut answers = Answers::new();
    store.apply(&batch, &mut answers).await.expect("the store answers");
    answers.iter().map(|answer| answer.decision).collect()
}

async fn one(store: &RedisStore, verb: Verb, check: Check<'_>) -> Decision {
    apply(store, verb, &[check]).await[0]
}

/// Limits that give nothing back for days, with the least that one admits.
fn lasting() -> Vec<(&'static str, Limit, u64)> {
    let year = Period::MAX;
    let soft = Soft { over_percent: 50, lasting: year };
    let log = SlidingLog::new(120, year).expect("small");
    let slots = Concurrency::new(80, year).expect("small");
    let sliding = SlidingWindow::new(300, year, 4).expect("in range");
    vec![
        ("bucket", Limit::new(TokenBucket::new(300, year, 300)), 300),
        ("window", Limit::new(FixedWindow::new(300, Window::Every(year))), 300),
        ("sliding", Limit::new(sliding), 300),
        ("log", Limit::new(log), 120),
        ("slots", Limit::new(slots), 80),
        ("soft", Limit::new(TokenBucket::new(200, year, 200)).with_soft(soft), 300),
    ]
}

#[tokio::test]
async fn the_servers_clock_decides_however_wrong_the_callers_are() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let limit = Limit::new(TokenBucket::new(10, Period::DAY, 10));
    let calendar = tidegate_algorithms::CalendarUnit::Month;
    let month = Window::Calendar(calendar, jiff::tz::TimeZone::UTC);
    let month = Limit::new(FixedWindow::new(10, month));
    for (seconds, left) in [(1, 9), (4_000_000_000, 8), (1_000, 7)] {
        let checks = [check("a", &limit, 1), check("b", &month, 1)];
        let now = Timestamp::from_secs(seconds);
        let mut answers = Answers::new();
        let batch = Batch::new(Verb::Check, Charge::AllOrNothing, now, &checks);
        store.apply(&batch, &mut answers).await.expect("the store answers");
        let remaining: Vec<u64> = answers.iter().map(|answer| answer.decision.remaining).collect();
        assert_eq!(remaining, [left, left]);
    }
}

/// How many writes the server has seen.
fn writes(server: &Server) -> u64 {
    let count = server.info(&["INFO", "persistence"], "rdb_changes_since_last_save");
    count.and_then(|count| count.parse().ok()).expect("the server counts them")
}

#[tokio::test]
async fn a_refusal_and_a_peek_write_nothing() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    for (name, limit, room) in lasting() {
        let asked = Check { holder: Holder(7), ..check(name, &limit, room) };
        assert!(one(&store, Verb::Check, asked).await.is_admitted(), "{name}");
        let before = writes(&server);
        assert!(!one(&store, Verb::Check, Check { cost: 1, ..asked }).await.is_admitted());
        one(&store, Verb::Peek, Check { cost: 1, ..asked }).await;
        one(&store, Verb::Check, Check { cost: 0, ..asked }).await;
        assert_eq!(writes(&server), before, "{name}");
    }
}

#[tokio::test]
async fn a_server_without_memory_charges_nothing_and_says_why() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    for (name, limit, room) in lasting() {
        let asked = Check { holder: Holder(7), ..check(name, &limit, 1) };
        server.tell(&["CONFIG", "SET", "maxmemory", "1"]);
        let checks = [asked];
        let batch = Batch::new(Verb::Check, Charge::AllOrNothing, NOW, &checks);
        let error = store.apply(&batch, &mut Answers::new()).await.expect_err("it is full");
        assert_eq!(error.kind(), FailureKind::Full, "{name}: {error}");
        server.tell(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(one(&store, Verb::Check, asked).await.remaining, room - 1, "{name}");
    }
}

#[tokio::test]
async fn the_rights_that_the_manual_names_suffice() {
    let manual = include_str!("../../../../../docs/redis.md");
    let line =
        manual.lines().find_map(|line| line.strip_prefix("ACL SETUSER tidegate on >password "));
    let rights: Vec<&str> = line.expect("the manual names them").split(' ').collect();
    let server = Setup::redis().with_user("tidegate", "password", &rights).start();
    let store = connected(&format!("redis://tidegate:password@127.0.0.1:{}", server.port())).await;
    let quick = ("quick", Limit::new(TokenBucket::new(9, Period::SECOND, 300)), 300);
    for (name, limit, _) in lasting().into_iter().chain([quick]) {
        let asked = Check { holder: Holder(7), ..check(name, &limit, 2) };
        let verbs = [Verb::Check, Verb::Check, Verb::Peek, Verb::Take, Verb::Refund, Verb::Reset];
        for verb in verbs {
            assert!(one(&store, verb, asked).await.is_admitted(), "{name} {verb:?}");
        }
    }
}

#[tokio::test]
async fn a_bucket_takes_no_more_memory_than_upstreams_counter() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let limit = Limit::new(TokenBucket::new(10, Period::MINUTE, 10));
    // Set the first time, and overwritten the second.
    for _ in 0..2 {
        one(&store, Verb::Check, check("key", &limit, 1)).await;
    }
    let key = server.tell(&["KEYS", "*"]).list()[0].text().expect("keys are text");
    // Upstream's own example: a domain, two entries and the window.
    let theirs = "mongo_cps_database_users_operation_read_1800000000";
    server.tell(&["INCRBY", theirs, "10001"]);
    let bytes = |key: &str| match server.tell(&["MEMORY", "USAGE", key]) {
        Reply::Number(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    assert!(bytes(&key) <= bytes(theirs), "{} against {}", bytes(&key), bytes(theirs));
}

#[tokio::test]
async fn a_key_with_something_else_in_it_is_taken_as_unused() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    for (name, limit, room) in lasting() {
        let asked = Check { holder: Holder(1), ..check(name, &limit, 1) };
        assert!(one(&store, Verb::Check, asked).await.is_admitted());
        let key = server.tell(&["KEYS", "*"]).list()[0].text().expect("keys are text");
        let others: [&[&str]; 4] = [
            &["SET", &key, "Whatever it is, it is long enough"],
            &["HSET", &key, "a", "b"],
            &["SADD", &key, "a"],
            &["SET", &key, "S"],
        ];
        for other in others {
            server.tell(&["DEL", &key]);
            server.tell(other);
            let decision = one(&store, Verb::Check, asked).await;
            assert_eq!((decision.is_admitted(), decision.remaining), (true, room - 1), "{name}");
        }
        server.tell(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn slots_that_are_renewed_live_on_and_those_that_are_gone_do_not_come_back() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let limit = Limit::new(Concurrency::new(2, Period::MINUTE).expect("small"));
    let slot = |holder| Check { holder: Holder(holder), ..check("slots", &limit, 1) };
    let at = |seconds: u64| store.set_clock(Timestamp::from_secs(1_800_000_000 + seconds));
    let renew = async |holder| store.renew(&slot(holder), NOW, None).await.expect("it answers");
    at(0);
    assert!(one(&store, Verb::Check, slot(1)).await.is_admitted());
    assert!(one(&store, Verb::Check, slot(2)).await.is_admitted());
    at(40);
    assert!(renew(1).await);
    assert!(!renew(3).await);
    at(30);
    assert!(renew(1).await, "a clock that steps back shortens nothing");
    at(70);
    assert!(!renew(2).await, "its time is over");
    assert_eq!(one(&store, Verb::Peek, slot(9)).await.remaining, 1);
    at(91);
    assert_eq!(one(&store, Verb::Peek, slot(9)).await.remaining, 2);
}

#[tokio::test]
async fn slots_are_given_back_without_being_waited_for() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let limit = Limit::new(Concurrency::new(3, Period::MINUTE).expect("small"));
    let slot = |holder| Check { holder: Holder(holder), ..check("slots", &limit, 1) };
    for holder in 1..=3 {
        assert!(one(&store, Verb::Check, slot(holder)).await.is_admitted());
    }
    let held = [slot(1), slot(2)];
    store.give_back(&Batch::new(Verb::Refund, Charge::AllOrNothing, NOW, &held));
    let mut left = 0;
    for _ in 0..100_000 {
        left = one(&store, Verb::Peek, slot(9)).await.remaining;
        if left == 2 {
            break;
        }
    }
    assert_eq!(left, 2);
}

#[tokio::test]
async fn costs_and_limits_beyond_what_is_counted_neither_fail_nor_wrap_around() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let huge = u64::MAX;
    let sliding = SlidingWindow::new(huge, Period::MAX, 3).expect("in range");
    let limits = [
        Limit::new(TokenBucket::new(huge, Period::SECOND, huge)),
        Limit::new(FixedWindow::new(huge, Window::Every(Period::MAX))),
        Limit::new(sliding),
    ];
    for (at, limit) in limits.iter().enumerate() {
        let asked = check(&at.to_string(), limit, huge);
        for _ in 0..3 {
            let decision = one(&store, Verb::Charge, asked).await;
            assert!(decision.remaining < decision.limit, "limit {at}: {decision:?}");
        }
        one(&store, Verb::Refund, asked).await;
        assert!(one(&store, Verb::Check, Check { cost: 0, ..asked }).await.is_admitted());
    }
}
