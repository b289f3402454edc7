//! Keys expire after their state is idle, and soon after it.

use tidegate_algorithms::{
    Concurrency, FixedWindow, LeakyBucket, Limit, Period, SlidingLog, SlidingWindow, Soft,
    TokenBucket, Window,
};
use tidegate_stores::Verb;

use super::{check, connected, one};
use tidegate_test_servers::resp::Reply;
use tidegate_test_servers::server::Server;

#[tokio::test]
async fn every_key_goes_by_itself_soon_after_it_stops_mattering() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    let minute = Period::MINUTE;
    let soft = Soft { over_percent: 50, lasting: minute };
    let window = FixedWindow::new(9, Window::Every(minute));
    // A bucket's key lives until a stretch of time ends, here of 32 s.
    let limits = [
        (Limit::new(TokenBucket::new(10, minute, 10)), 6 + 32 + 2),
        (Limit::new(window), 62),
        (Limit::new(SlidingWindow::new(9, minute, 2).expect("in range")), 92),
        (Limit::new(SlidingLog::new(9, minute).expect("small")), 62),
        (Limit::new(Concurrency::new(9, minute).expect("small")), 62),
        (Limit::new(TokenBucket::new(10, minute, 1)).with_soft(soft), 6 + 32 + 2),
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

/// Seconds that a bucket's only key still has to live beyond its state.
fn outlives(server: &Server) -> i64 {
    let script = "local key = redis.call('KEYS', '*')[1]
        local raw = redis.call('GET', key)
        local high = struct.unpack('>I6', raw)
        local ends = (high - high % 16384) / 16384
        return redis.call('TTL', key) - (ends - redis.call('TIME')[1])";
    match server.tell(&["EVAL", script, "0"]) {
        Reply::Number(seconds) => seconds,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_bucket_never_expires_before_it_is_full_whoever_wrote_it() {
    let server = Server::redis();
    let store = connected(&server.url()).await;
    // From a token in less than a millisecond to one in a day; each with a
    // smaller and a larger bucket of the same pace, which share the key.
    let paces = [(2_000, Period::SECOND), (1, Period::SECOND), (10, Period::MINUTE)];
    let paces = paces.into_iter().chain([(1, Period::MINUTE), (7, Period::HOUR), (1, Period::DAY)]);
    let buckets = paces.flat_map(|(amount, period)| {
        let token = |burst| Limit::new(TokenBucket::new(amount, period, burst));
        [token(300), token(90_000), Limit::new(LeakyBucket::new(amount, period, 5_000))]
    });
    let first = Limit::new(TokenBucket::new(3, Period::SECOND, 300));
    one(&store, Verb::Check, check("key", &first, 10)).await;
    for limit in buckets {
        // The key is there from the bucket before, perhaps of another pace: a
        // refusal settles it and charges nothing.
        for cost in [100_000, 1, 1, 1, 2, 1, 30, 1, 1] {
            one(&store, Verb::Check, check("key", &limit, cost)).await;
            assert!(outlives(&server) >= 1, "{limit:?} charged {cost}");
        }
        for verb in [Verb::Take, Verb::Check, Verb::Refund, Verb::Check] {
            one(&store, verb, check("key", &limit, 3)).await;
            assert!(outlives(&server) >= 1, "{limit:?} after {verb:?}");
        }
    }
    let overwritten = server.info(&["INFO", "commandstats"], "cmdstat_setrange");
    assert!(overwritten.is_some(), "some were overwritten in place");
}
