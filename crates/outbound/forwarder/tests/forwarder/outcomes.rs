//! What becomes of records whose attempts do not succeed.

use std::time::Duration;

use tidegate_delivery::AttemptOutcome;
use tidegate_forwarder::{AmbiguousRule, TypeSettings};
use tidegate_queue::DeadLetterReason;
use tokio::time::sleep;

use crate::bench::{Arrival, Bench, answering, operations, orders, records};

fn failed() -> AttemptOutcome {
    AttemptOutcome::Failed { detail: "status 500".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_poison_record_becomes_a_dead_letter_after_ten_attempts_and_others_pass() {
    let poison = |arrival: &Arrival| match arrival.body.as_str() {
        "7" => failed(),
        _ => AttemptOutcome::Delivered,
    };
    let bench = Bench::start(&operations(1_000), orders(), answering(poison)).await;
    bench.enqueue(records(200, 1)).await;
    bench.drain(Duration::from_secs(3_600)).await;
    let queue = bench.forwarder.queue("orders").unwrap();
    let dead = queue.list_dead_letters(None, 10).await.unwrap();
    assert_eq!((dead.len(), dead[0].reason), (1, DeadLetterReason::Rejected));
    assert_eq!(dead[0].detail, "after 10 attempts: status 500");
    let arrivals = bench.target.arrivals();
    let numbers: Vec<u32> =
        arrivals.iter().filter(|one| one.body == "7").map(|one| one.number).collect();
    assert_eq!(numbers, (1..=10).collect::<Vec<_>>());
    assert_eq!(arrivals.len(), 199 + 10);
}

#[tokio::test(start_paused = true)]
async fn throttled_answers_spend_no_attempt() {
    let began = tokio::time::Instant::now();
    let answer = move |_: &Arrival| match began.elapsed() < Duration::from_secs(60) {
        true => AttemptOutcome::Throttled { hold: None },
        false => AttemptOutcome::Delivered,
    };
    let bench = Bench::start(&operations(100), orders(), answering(answer)).await;
    bench.enqueue(records(20, 1)).await;
    bench.drain(Duration::from_secs(600)).await;
    let arrivals = bench.target.arrivals();
    assert!(arrivals.iter().all(|arrival| arrival.number == 1));
    let counts = bench.counts().await;
    assert!(counts.throttled > 20 && counts.dead == 0, "{counts:?}");
    assert_eq!(counts.delivered, 20);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_dead_for_a_minute_kills_no_record() {
    let began = tokio::time::Instant::now();
    let answer = move |_: &Arrival| match began.elapsed() < Duration::from_secs(60) {
        true => failed(),
        false => AttemptOutcome::Delivered,
    };
    let bench = Bench::start(&operations(500), orders(), answering(answer)).await;
    bench.enqueue(records(2_000, 1)).await;
    sleep(Duration::from_secs(30)).await;
    let status = bench.forwarder.status("orders").await.unwrap().unwrap();
    assert_eq!((status.forecast.state, status.forecast.cause), ("stalled", "down"));
    bench.drain(Duration::from_secs(300)).await;
    let counts = bench.counts().await;
    assert_eq!((counts.delivered, counts.dead), (2_000, 0));
    // Few records probe the dead target; the others keep their attempts.
    let early =
        bench.target.arrivals().iter().filter(|one| one.at < Duration::from_secs(60)).count();
    assert!(early < 600, "{early}");
}

#[tokio::test(start_paused = true)]
async fn retries_leave_room_for_fresh_records() {
    // Every first attempt fails, so that each record needs two.
    let answer =
        |arrival: &Arrival| if arrival.number == 1 { failed() } else { AttemptOutcome::Delivered };
    let every_fifth = move |arrival: &Arrival| match arrival.body.parse::<u32>().unwrap() % 5 {
        0 => AttemptOutcome::Delivered,
        _ => answer(arrival),
    };
    let bench = Bench::start(&operations(100), orders(), answering(every_fifth)).await;
    bench.enqueue(records(2_000, 1)).await;
    sleep(Duration::from_secs(15)).await;
    let arrivals = bench.target.arrivals();
    let retries = arrivals.iter().filter(|arrival| arrival.number > 1).count();
    assert!(retries * 4 <= arrivals.len(), "{retries} of {}", arrivals.len());
    bench.drain(Duration::from_secs(300)).await;
    assert_eq!(bench.counts().await.delivered, 2_000);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_retried_held_or_buried() {
    for (rule, dead, sends) in
        [(AmbiguousRule::Retry, 0, 2), (AmbiguousRule::Hold, 0, 2), (AmbiguousRule::Bury, 1, 1)]
    {
        let answer = |arrival: &Arrival| match arrival.number {
            1 => AttemptOutcome::Ambiguous { detail: "the connection broke".to_owned() },
            _ => AttemptOutcome::Delivered,
        };
        let settings = TypeSettings { on_ambiguous: rule, ..orders() };
        let bench = Bench::start(&operations(100), settings, answering(answer)).await;
        bench.enqueue(records(1, 1)).await;
        let took = bench.drain(Duration::from_secs(7_200)).await;
        assert_eq!(bench.counts().await.dead, dead, "{rule:?}");
        assert_eq!(bench.target.arrivals().len(), sends, "{rule:?}");
        let held = took >= Duration::from_secs(3_600);
        assert_eq!(held, rule == AmbiguousRule::Hold, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_record_becomes_a_dead_letter_at_once() {
    let answer = |_: &Arrival| AttemptOutcome::Rejected { detail: "status 422".to_owned() };
    let bench = Bench::start(&operations(100), orders(), answering(answer)).await;
    bench.enqueue(records(3, 1)).await;
    bench.drain(Duration::from_secs(60)).await;
    assert_eq!(bench.target.arrivals().len(), 3);
    assert_eq!(bench.counts().await.dead, 3);
}

#[tokio::test(start_paused = true)]
async fn a_time_to_wait_stalls_the_forecast_and_opens_gently() {
    let answer = |arrival: &Arrival| match arrival.at < Duration::from_secs(2) {
        true => AttemptOutcome::Throttled { hold: Some(Duration::from_secs(30)) },
        false => AttemptOutcome::Delivered,
    };
    let bench = Bench::start(&operations(100), orders(), answering(answer)).await;
    bench.enqueue(records(500, 1)).await;
    sleep(Duration::from_secs(10)).await;
    let forecast = bench.forwarder.status("orders").await.unwrap().unwrap().forecast;
    assert_eq!((forecast.state, forecast.cause), ("stalled", "hold"));
    bench.drain(Duration::from_secs(300)).await;
    let arrivals = bench.target.arrivals();
    assert!(crate::bench::most_in(&arrivals, Duration::from_secs(1), |_| 1) <= 100);
    assert_eq!(bench.counts().await.delivered, 500);
}
