//! Counters that envoyproxy/ratelimit and we keep together, on a real server.
#![cfg(feature = "redis")]

use std::time::Duration;

use tidegate_algorithms::{Decision, FixedWindow, Limit, Period, Timestamp, TokenBucket, Window};
use tidegate_stores::{
    Answers, Batch, Charge, Check, CounterStore, Fingerprinter, Key, RedisSettings, RedisStore,
    Role, UpstreamLayout, UpstreamStore, Verb,
};
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::Server;

/// 17 seconds into a minute.
const NOW: Timestamp = Timestamp::from_secs(1_800_000_017);
const NAME: &str = "api_user_ada_";
const KEY: &str = "shared_api_user_ada_1800000000";

async fn connected(server: &Server) -> RedisStore {
    let mut settings = RedisSettings::parse(&server.url()).expect("the URL is right");
    settings.deadline = Duration::from_secs(20);
    let store = RedisStore::new(settings).expect("the settings are right");
    store.connected().await;
    store
}

async fn upstream(server: &Server) -> UpstreamStore {
    let layout = UpstreamLayout { prefix: "shared_".to_owned(), jitter_max: 300 };
    UpstreamStore::new(connected(server).await, layout)
}

fn window(limit: u64, period: Period) -> Limit {
    Limit::new(FixedWindow::new(limit, Window::Every(period)).counting_refused(true))
}

fn check<'a>(name: &str, limit: &'a Limit, cost: u64) -> Check<'a> {
    let fingerprint = Fingerprinter::shared().of(0, name.as_bytes());
    Check::new(Key { fingerprint, group: 0 }, limit, cost)
}

async fn apply(
    store: &UpstreamStore,
    verb: Verb,
    charge: Charge,
    checks: &[(&str, Check<'_>)],
) -> Vec<Decision> {
    let names: Vec<String> = checks.iter().map(|(name, _)| (*name).to_owned()).collect();
    let checks: Vec<Check<'_>> = checks.iter().map(|(_, check)| *check).collect();
    let batch = Batch { names: &names, ..Batch::new(verb, charge, NOW, &checks) };
    let mut answers = Answers::new();
    store.apply(&batch, &mut answers).await.expect("the store answers");
    answers.iter().map(|answer| answer.decision).collect()
}

async fn ask(store: &UpstreamStore, limit: &Limit, cost: u64) -> Decision {
    let checks = [(NAME, check(NAME, limit, cost))];
    apply(store, Verb::Check, Charge::Always, &checks).await[0]
}

/// The commands of upstream for each hit.
fn hit(server: &Server, key: &str, cost: u64) -> Reply {
    let sum = server.tell(&["INCRBY", key, &cost.to_string()]);
    server.tell(&["EXPIRE", key, "360"]);
    sum
}

fn count(server: &Server, key: &str) -> Option<String> {
    server.tell(&["GET", key]).text()
}

#[tokio::test]
async fn what_upstream_counted_is_counted_on() {
    let server = Server::redis();
    let (store, limit) = (upstream(&server).await, window(5, Period::MINUTE));
    hit(&server, KEY, 3);
    assert_eq!(ask(&store, &limit, 1).await.remaining, 1);
    hit(&server, KEY, 1);
    let refused = ask(&store, &limit, 1).await;
    assert!(!refused.is_admitted());
    assert_eq!(refused.reset_after.get(), 43_000_000_000);
}

#[tokio::test]
async fn upstream_counts_on_what_we_counted_also_what_was_refused() {
    let server = Server::redis();
    let (store, limit) = (upstream(&server).await, window(5, Period::MINUTE));
    assert!(ask(&store, &limit, 4).await.is_admitted());
    assert!(!ask(&store, &limit, 4).await.is_admitted());
    assert_eq!(hit(&server, KEY, 1), Reply::Number(9));
    let Reply::Number(lives) = server.tell(&["TTL", KEY]) else { panic!("no time to live") };
    assert!((55..=360).contains(&lives), "{lives}");
}

#[tokio::test]
async fn a_key_outlives_its_window_by_less_than_the_jitter() {
    let server = Server::redis();
    let store = UpstreamStore::new(
        connected(&server).await,
        UpstreamLayout { prefix: "shared_".to_owned(), jitter_max: 0 },
    );
    ask(&store, &window(5, Period::MINUTE), 1).await;
    let Reply::Number(lives) = server.tell(&["TTL", KEY]) else { panic!("no time to live") };
    assert!((55..=60).contains(&lives), "{lives}");
}

#[tokio::test]
async fn limits_per_second_live_in_a_server_of_their_own() {
    let (server, fast) = (Server::redis(), Server::redis());
    let store = upstream(&server).await.with_per_second(connected(&fast).await);
    let (second, minute) = (window(5, Period::SECOND), window(5, Period::MINUTE));
    let checks = [("api_a_", check("a", &second, 2)), ("api_b_", check("b", &minute, 3))];
    let decided = apply(&store, Verb::Check, Charge::Always, &checks).await;
    assert_eq!([decided[0].remaining, decided[1].remaining], [3, 2]);
    assert_eq!(count(&fast, "shared_api_a_1800000017").as_deref(), Some("2"));
    assert_eq!(count(&server, "shared_api_b_1800000000").as_deref(), Some("3"));
    assert_eq!(server.tell(&["DBSIZE"]), Reply::Number(1));
    assert_eq!(fast.tell(&["DBSIZE"]), Reply::Number(1));
}

#[tokio::test]
async fn other_limits_are_kept_our_way() {
    let server = Server::redis();
    let store = upstream(&server).await;
    let bucket = Limit::new(TokenBucket::new(5, Period::SECOND, 5));
    let window = window(5, Period::MINUTE);
    let checks = [("api_a_", check("a", &bucket, 2)), ("api_b_", check("b", &window, 1))];
    let decided = apply(&store, Verb::Check, Charge::Always, &checks).await;
    assert_eq!([decided[0].remaining, decided[1].remaining], [3, 4]);
    let keys = server.tell(&["KEYS", "tg{*"]);
    assert_eq!(keys.list().len(), 1);
}

#[tokio::test]
async fn a_request_that_one_limit_refuses_leaves_no_trace_where_refusals_do_not_count() {
    let server = Server::redis();
    let store = upstream(&server).await;
    let plain = |limit| Limit::new(FixedWindow::new(limit, Window::Every(Period::MINUTE)));
    let (wide, narrow) = (plain(10), plain(1));
    let checks = [("api_w_", check("w", &wide, 2)), ("api_n_", check("n", &narrow, 2))];
    let decided = apply(&store, Verb::Check, Charge::AllOrNothing, &checks).await;
    assert_eq!(decided.iter().map(Decision::is_admitted).collect::<Vec<_>>(), [true, false]);
    assert_eq!(decided[0].remaining, 10);
    assert_eq!(count(&server, "shared_api_w_1800000000").as_deref(), Some("0"));
    assert_eq!(count(&server, "shared_api_n_1800000000").as_deref(), Some("0"));
}

#[tokio::test]
async fn peek_take_refund_and_reset_do_what_they_say() {
    let server = Server::redis();
    let (store, limit) = (upstream(&server).await, window(5, Period::MINUTE));
    let one = async |verb, cost| {
        let checks = [(NAME, check(NAME, &limit, cost))];
        apply(&store, verb, Charge::Always, &checks).await[0]
    };
    assert_eq!(one(Verb::Take, 3).await.taken, 3);
    assert_eq!(one(Verb::Take, 9).await.taken, 2);
    assert_eq!(one(Verb::Peek, 1).await.remaining, 0);
    assert_eq!(count(&server, KEY).as_deref(), Some("5"));
    assert_eq!(one(Verb::Refund, 2).await.remaining, 2);
    assert_eq!(one(Verb::Refund, 9).await.remaining, 5);
    assert_eq!(count(&server, KEY).as_deref(), Some("0"));
    assert_eq!(one(Verb::Charge, 7).await.taken, 7);
    assert_eq!(one(Verb::Reset, 0).await.remaining, 5);
    assert_eq!(count(&server, KEY), None);
}

#[tokio::test]
async fn one_counter_that_stands_twice_is_charged_twice() {
    let server = Server::redis();
    let (store, limit) = (upstream(&server).await, window(5, Period::MINUTE));
    let one = check(NAME, &limit, 2);
    let observed = Check { role: Role::Observed, ..one };
    let decided =
        apply(&store, Verb::Check, Charge::Always, &[(NAME, one), (NAME, observed)]).await;
    assert_eq!([decided[0].remaining, decided[1].remaining], [3, 1]);
    assert_eq!(count(&server, KEY).as_deref(), Some("4"));
}

#[tokio::test]
async fn a_counter_that_holds_no_number_is_an_error_in_words() {
    let server = Server::redis();
    let (store, limit) = (upstream(&server).await, window(5, Period::MINUTE));
    server.tell(&["SET", KEY, "many"]);
    let checks = [check(NAME, &limit, 1)];
    let names = [NAME.to_owned()];
    for verb in [Verb::Check, Verb::Peek] {
        let batch = Batch { names: &names, ..Batch::new(verb, Charge::Always, NOW, &checks) };
        let error = store.apply(&batch, &mut Answers::new()).await.expect_err("no number");
        assert!(error.to_string().contains("the store cannot be used"), "{error}");
    }
}
