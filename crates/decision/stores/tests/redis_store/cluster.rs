//! Requests whose keys lie in several slots of a cluster.

use std::sync::Arc;

use tidegate_algorithms::{Decision, FixedWindow, Limit, Period, Timestamp, Window};
use tidegate_stores::{Check, Fingerprint, Key, RedisStore, Role, Verb};

use super::{apply, check, connected, fingerprint, one};
use tidegate_test_servers::cluster::Cluster;
use tidegate_test_servers::eventually;
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::{Flavour, Server, Setup};

fn of<'a>(fingerprint: Fingerprint, limit: &'a Limit) -> Check<'a> {
    Check::new(Key { fingerprint, group: 0 }, limit, 1)
}

/// Two keys of different masters; the slot of the first is called first.
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
async fn a_refusal_in_one_slot_charges_nothing_in_another() {
    let cluster = Cluster::start(Flavour::Redis);
    let store = connected(&cluster.url()).await;
    let window = |limit| Limit::new(FixedWindow::new(limit, Window::Every(Period::MAX)));
    let (wide, narrow) = (window(10), window(1));
    let [first, second] = apart(&cluster, &store).await;
    for (one, other) in [(&wide, &narrow), (&narrow, &wide)] {
        let checks = [of(first, one), of(second, other)];
        apply(&store, Verb::Reset, &checks).await;
        let admitted =
            |decided: &[Decision]| decided.iter().map(Decision::is_admitted).collect::<Vec<_>>();
        assert_eq!(admitted(&apply(&store, Verb::Check, &checks).await), [true, true]);
        for _ in 0..3 {
            let decided = apply(&store, Verb::Check, &checks).await;
            for (check, decision) in checks.iter().zip(decided) {
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
    let decided = apply(&store, Verb::Check, &all).await;
    assert_eq!([decided[0].is_admitted(), decided[1].is_admitted()], [false, false]);
    assert_eq!(decided[2].remaining, 4, "nothing is charged once both are used up");
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
    // The process dies here, so nothing is refunded.
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
