//! When turns come, on a clock that only the test turns.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_pacer::{LeakyBucket, Pacer, Period, Turn};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn pacer(amount: u64, period: Period, queue: u64) -> Arc<Pacer> {
    let bucket = LeakyBucket::new(amount, period, queue);
    Arc::new(Pacer::new(bucket).expect("the default budget is large enough"))
}

/// One request for a turn: when it was made, and when it was answered how.
#[derive(Clone, Copy, Debug)]
struct TurnRequest {
    asked: Duration,
    answered: Duration,
    turn: Turn,
}

/// Requests a turn after each pause, without waiting for the answers.
async fn request_turns(pacer: &Arc<Pacer>, pauses: &[u64]) -> Vec<TurnRequest> {
    let start = Instant::now();
    let mut requests = JoinSet::new();
    for pause in pauses {
        sleep(ms(*pause)).await;
        let pacer = Arc::clone(pacer);
        requests.spawn(async move {
            let asked = start.elapsed();
            let turn = pacer.turn("a").await;
            TurnRequest { asked, answered: start.elapsed(), turn }
        });
        // Polls it before the next one starts.
        tokio::task::yield_now().await;
    }
    let mut requests = requests.join_all().await;
    requests.sort_by_key(|request| (request.answered, request.asked));
    requests
}

fn departures(requests: &[TurnRequest]) -> Vec<Duration> {
    requests
        .iter()
        .filter(|request| request.turn == Turn::Yours)
        .map(|request| request.answered)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn turns_are_exactly_one_interval_apart() {
    let pacer = pacer(10, Period::SECOND, 4);
    let requests = request_turns(&pacer, &[0; 5]).await;
    assert_eq!(departures(&requests), [0, 100, 200, 300, 400].map(ms));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_queue_it_says_when_there_is_room() {
    let pacer = pacer(10, Period::SECOND, 1);
    let first = request_turns(&pacer, &[0; 3]).await;
    let full = first.iter().find(|request| request.turn != Turn::Yours).expect("one is too many");
    assert_eq!((full.turn, full.answered), (Turn::Full { retry_after: ms(100) }, ms(0)));
    assert_eq!(pacer.turn("a").await, Turn::Yours);
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_zero_lets_no_caller_wait() {
    let pacer = pacer(10, Period::SECOND, 0);
    assert_eq!(pacer.turn("a").await, Turn::Yours);
    assert_eq!(pacer.turn("a").await, Turn::Full { retry_after: ms(100) });
    sleep(ms(100)).await;
    assert_eq!(pacer.turn("a").await, Turn::Yours);
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_each_other() {
    let pacer = pacer(1, Period::SECOND, 0);
    let start = Instant::now();
    for key in ["a", "b", "c"] {
        assert_eq!(pacer.turn(key).await, Turn::Yours);
    }
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_heavy_call_keeps_the_next_one_away_for_longer() {
    let pacer = pacer(10, Period::SECOND, 9);
    let start = Instant::now();
    assert_eq!(pacer.turn_costing("a", 4).await, Turn::Yours);
    assert_eq!(pacer.turn("a").await, Turn::Yours);
    assert_eq!(start.elapsed(), ms(400));
    assert_eq!(pacer.turn_costing("a", 11).await, Turn::Never);
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_where_nothing_flows_out() {
    assert_eq!(pacer(0, Period::SECOND, 9).turn("a").await, Turn::Never);
}

#[tokio::test(start_paused = true)]
async fn one_who_gives_up_leaves_a_gap_and_no_caller_moves_up() {
    let pacer = pacer(10, Period::SECOND, 5);
    let start = Instant::now();
    assert_eq!(pacer.turn("a").await, Turn::Yours);
    assert!(timeout(ms(20), pacer.turn("a")).await.is_err());
    assert_eq!(pacer.turn("a").await, Turn::Yours);
    assert_eq!(start.elapsed(), ms(200));
}

#[tokio::test(start_paused = true)]
async fn one_who_never_began_to_wait_has_taken_nothing() {
    let pacer = pacer(10, Period::SECOND, 0);
    drop(pacer.turn("a"));
    assert_eq!(pacer.turn("a").await, Turn::Yours);
}

fn paused<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn turns_come_as_from_a_queue_with_a_constant_outflow(
        interval in 1..60_u64,
        queue in 0..8_u64,
        pauses in prop::collection::vec(prop_oneof![3 => Just(0), 2 => 0..90_u64], 1..40),
    ) {
        let requests = paused(async {
            let period = Period::new(ms(interval)).expect("at least a millisecond");
            request_turns(&pacer(1, period, queue), &pauses).await
        });
        // The queue itself, as simple as can be.
        let (mut now, mut free) = (0, 0);
        let mut expected = Vec::new();
        for pause in &pauses {
            now += pause;
            let turn = free.max(now);
            if turn - now <= queue * interval {
                expected.push((ms(turn), ms(now), Turn::Yours));
                free = turn + interval;
            } else {
                let retry_after = ms(turn - now - queue * interval);
                expected.push((ms(now), ms(now), Turn::Full { retry_after }));
            }
        }
        let by_order = |(answered, asked, turn): &(Duration, Duration, Turn)| {
            (*answered, *asked, format!("{turn:?}"))
        };
        let seen = requests.iter().map(|request| (request.answered, request.asked, request.turn));
        let mut seen: Vec<_> = seen.collect();
        seen.sort_by_key(by_order);
        expected.sort_by_key(by_order);
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn no_call_leaves_early_and_no_more_wait_than_may(
        amount in 1..3000_u64,
        queue in 0..20_u64,
        pauses in prop::collection::vec(0..4_u64, 1..60),
    ) {
        let requests = paused(async { request_turns(&pacer(amount, Period::SECOND, queue), &pauses).await });
        let left = departures(&requests);
        let nanos = |places: usize| {
            Duration::from_nanos(u64::try_from(places).expect("few") * 1_000_000_000 / amount)
        };
        for first in 0..left.len() {
            for later in first + 1..left.len() {
                // Woken up to a millisecond late, the first may be; none is early.
                prop_assert!(left[later] + ms(1) >= left[first] + nanos(later - first));
            }
        }
        for request in &requests {
            let at = request.asked;
            let waiting = |other: &&TurnRequest| other.asked <= at && at < other.answered;
            let waiting = requests.iter().filter(waiting).count();
            // Woken late by the timer, at most those of one millisecond still stand there.
            let late = usize::try_from(amount.div_ceil(1000)).expect("few");
            prop_assert!(waiting <= usize::try_from(queue).expect("few") + late);
        }
    }
}
