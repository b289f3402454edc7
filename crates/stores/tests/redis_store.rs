//! What only a store on a real server can show: many processes, the server's
//! own clock, keys that go by themselves, and slots of a cluster.
#![cfg(feature = "redis")]

#[path = "support/mod.rs"]
mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use support::cluster::Cluster;
use support::eventually;
use support::resp::Reply;
use support::server::{Flavour, Server, Setup};
use tidegate_algorithms::{
    Concurrency, Decision, FixedWindow, Holder, Limit, Period, SlidingLog, SlidingWindow, Soft,
    Timestamp, TokenBucket, Window,
};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, Fingerprint, Fingerprinter, Key, RedisSettings,
    RedisStore, Role, Verb,
};

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

/// How a process is told to hammer this server.
const HAMMER: &str = "TIDEGATE_TEST_HAMMER";
const PROCESSES: usize = 4;
const CALLERS: usize = 16;

/// Asks more often than there is room, and says how much was admitted.
async fn hammer(url: &str) -> String {
    let store = Arc::new(connected(url).await);
    let mut said = String::new();
    for (name, limit, room) in lasting() {
        let tries = usize::try_from(room).expect("small") * 2 / PROCESSES / CALLERS + 1;
        let callers = (0..CALLERS).map(|caller| {
            let (store, limit) = (Arc::clone(&store), limit.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                for time in 0..tries {
                    let id = u64::from(std::process::id()) << 32 | (caller * 1_000 + time) as u64;
                    let check = Check { holder: Holder(id + 1), ..check(name, &limit, 1) };
                    admitted += u64::from(one(&store, Verb::Check, check).await.is_admitted());
                }
                admitted
            })
        });
        let mut admitted = 0;
        for caller in callers.collect::<Vec<_>>() {
            admitted += caller.await.expect("no caller panics");
        }
        said += &format!("admitted {name} {admitted}\n");
    }
    said
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how a test tells a process of its own what to do")]
async fn many_processes_on_one_key_admit_exactly_the_limit() {
    if let Ok(url) = std::env::var(HAMMER) {
        // Begins on a line of its own, whatever the harness has printed.
        println!("\n{}", hammer(&url).await);
        return;
    }
    let server = Server::redis();
    let program = std::env::current_exe().expect("a test is a program");
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(&program)
                .args(["--exact", "many_processes_on_one_key_admit_exactly_the_limit"])
                .arg("--nocapture")
                .env(HAMMER, server.url())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the test starts itself")
        })
        .collect();
    let mut said = String::new();
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success(), "a process failed");
        said += &String::from_utf8_lossy(&output.stdout);
    }
    for (name, _, room) in lasting() {
        let own =
            said.lines().filter_map(|line| line.strip_prefix("admitted ")?.strip_prefix(name));
        let admitted: Vec<u64> = own.filter_map(|count| count.trim().parse().ok()).collect();
        assert_eq!(admitted.len(), PROCESSES, "{name}: {said}");
        assert_eq!(admitted.iter().sum::<u64>(), room, "{name}: {said}");
    }
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
        let told: Vec<u64> = answers.iter().map(|answer| answer.decision.remaining).collect();
        assert_eq!(told, [left, left]);
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
async fn every_key_goes_by_itself_soon_after_it_stops_mattering() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let minute = Period::MINUTE;
    let soft = Soft { over_percent: 50, lasting: minute };
    let window = FixedWindow::new(9, Window::Every(minute));
    let limits = [
        (Limit::new(TokenBucket::new(10, minute, 10)), 8),
        (Limit::new(window), 62),
        (Limit::new(SlidingWindow::new(9, minute, 2).expect("in range")), 92),
        (Limit::new(SlidingLog::new(9, minute).expect("small")), 62),
        (Limit::new(Concurrency::new(9, minute).expect("small")), 62),
        (Limit::new(TokenBucket::new(10, minute, 1)).with_soft(soft), 8),
    ];
    for (at, (limit, longest)) in limits.iter().enumerate() {
        server.tell(&["FLUSHALL"]);
        assert!(one(&store, Verb::Check, check("key", limit, 1)).await.is_admitted());
        let keys = server.tell(&["KEYS", "*"]);
        assert_eq!(keys.list().len(), 1, "limit {at}");
        let key = keys.list()[0].text().expect("keys are text");
        assert_eq!(key.len(), 26);
        let Reply::Number(lives) = server.tell(&["TTL", &key]) else { panic!("no time to live") };
        assert!((1..=*longest).contains(&lives), "limit {at} lives {lives} s");
    }
}

#[tokio::test]
async fn a_bucket_takes_no_more_memory_than_upstreams_counter() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let limit = Limit::new(TokenBucket::new(10, Period::MINUTE, 10));
    one(&store, Verb::Check, check("key", &limit, 1)).await;
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

fn of<'a>(fingerprint: Fingerprint, limit: &'a Limit) -> Check<'a> {
    Check::new(Key { fingerprint, group: 0 }, limit, 1)
}

/// Two keys that different masters have; the first one's slot is asked first.
async fn apart(cluster: &Cluster, store: &RedisStore) -> [Fingerprint; 2] {
    let limit = Limit::new(FixedWindow::new(5, Window::Every(Period::MAX)));
    let mut seen: Vec<(usize, usize, Fingerprint)> = Vec::new();
    for number in 0..100 {
        let key = fingerprint(&format!("caller {number}"));
        one(store, Verb::Check, of(key, &limit)).await;
        let here = cluster.masters.iter().enumerate().find_map(|(master, server)| {
            let keys = server.tell(&["KEYS", "*"]);
            Some((master, tag(&keys.list().first()?.text()?)))
        });
        one(store, Verb::Reset, of(key, &limit)).await;
        let (master, tag) = here.expect("some master has the key");
        let before = seen.iter().find(|(other, known, _)| *other != master && *known < tag);
        if let Some((_, _, first)) = before {
            return [*first, key];
        }
        seen.push((master, tag, key));
    }
    panic!("all keys lie on one master");
}

/// The number that the two letters in braces stand for.
fn tag(key: &str) -> usize {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letters = key.split(['{', '}']).nth(1).unwrap_or_default();
    letters.chars().fold(0, |tag, letter| tag * 64 + LETTERS.find(letter).unwrap_or_default())
}

#[tokio::test]
async fn a_refusal_in_one_slot_charges_nobody_in_another() {
    let cluster = Cluster::start(Flavour::Redis);
    let store = connected(&cluster.url()).await;
    let window = |limit| Limit::new(FixedWindow::new(limit, Window::Every(Period::MAX)));
    let (wide, narrow) = (window(10), window(1));
    let [first, second] = apart(&cluster, &store).await;
    for (one, other) in [(&wide, &narrow), (&narrow, &wide)] {
        let checks = [of(first, one), of(second, other)];
        apply(&store, Verb::Reset, &checks).await;
        let admitted =
            |told: &[Decision]| told.iter().map(Decision::is_admitted).collect::<Vec<_>>();
        assert_eq!(admitted(&apply(&store, Verb::Check, &checks).await), [true, true]);
        for _ in 0..3 {
            let told = apply(&store, Verb::Check, &checks).await;
            for (check, decision) in checks.iter().zip(told) {
                assert_eq!(decision.is_admitted(), *check.limit == wide);
                assert_eq!(decision.remaining, check.limit.algorithm().quota() - 1);
            }
        }
    }
}

#[tokio::test]
async fn alternatives_in_several_slots_need_one_that_admits() {
    let cluster = Cluster::start(Flavour::Redis);
    let store = connected(&cluster.url()).await;
    let limit = Limit::new(FixedWindow::new(1, Window::Every(Period::MAX)));
    let open = Limit::new(FixedWindow::new(5, Window::Every(Period::MAX)));
    let keys = apart(&cluster, &store).await;
    let [one_of, other] = keys.map(|key| Check { role: Role::Alternative, ..of(key, &limit) });
    let required = check("required", &open, 1);
    let all = [one_of, other, required];
    apply(&store, Verb::Check, &[one_of]).await;
    assert_eq!(apply(&store, Verb::Check, &all).await[2].remaining, 4);
    let told = apply(&store, Verb::Check, &all).await;
    assert_eq!([told[0].is_admitted(), told[1].is_admitted()], [false, false]);
    assert_eq!(told[2].remaining, 4, "nobody is charged once both are used up");
}

#[tokio::test]
async fn a_crash_between_two_slots_leaves_one_cost_until_the_window_ends() {
    // The others go on while one hangs, however long that takes here.
    let setup = Setup::redis().with("cluster-require-full-coverage", &["no"]);
    let cluster = Cluster::start_with(3, 0, &setup);
    let store = Arc::new(connected(&cluster.url()).await);
    let watch = connected(&cluster.url()).await;
    let start = Timestamp::from_secs(1_800_000_000);
    store.set_clock(start);
    watch.set_clock(start);
    let limit = Limit::new(FixedWindow::new(5, Window::Every(Period::MINUTE)));
    let keys = apart(&cluster, &watch).await;
    let first = of(keys[0], &limit);
    let second = owner(&cluster, &watch, of(keys[1], &limit)).await;
    second.freeze();
    let (asking, own) = (Arc::clone(&store), limit.clone());
    let caller = tokio::spawn(async move {
        let checks = keys.map(|key| of(key, &own));
        apply(&asking, Verb::Check, &checks).await
    });
    let mut charged = false;
    for _ in 0..100_000 {
        charged = one(&watch, Verb::Peek, first).await.remaining == 4;
        if charged {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(charged, "the first slot is charged while the second hangs");
    // The process dies here: nobody is left to give anything back.
    caller.abort();
    assert!(caller.await.is_err());
    second.thaw();
    eventually("that the node is back", || second.try_ask(&["PING"]));
    assert_eq!(one(&watch, Verb::Peek, first).await.remaining, 4, "one cost, no more");
    watch.set_clock(Timestamp::from_secs(1_800_000_060));
    assert_eq!(one(&watch, Verb::Peek, first).await.remaining, 5, "gone with its window");
}

/// The master that has the check's key.
async fn owner<'c>(cluster: &'c Cluster, store: &RedisStore, check: Check<'_>) -> &'c Server {
    one(store, Verb::Check, check).await;
    let mut masters = cluster.masters.iter();
    let found = masters.find(|master| master.tell(&["DBSIZE"]) == Reply::Number(1));
    one(store, Verb::Reset, check).await;
    found.expect("some master has the key")
}
