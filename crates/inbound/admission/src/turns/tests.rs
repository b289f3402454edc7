//! Turns, on tokio's clock.

use tokio::time::advance;

use super::*;

const ONE: Kind = Kind(1);
const OTHER: Kind = Kind(2);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Takes turns of one bucket, within these bounds.
struct Bench {
    turns: Arc<Turns>,
    patience: Patience,
    began: Instant,
}

impl Bench {
    fn new(waiting_max: usize, wait_max: Duration) -> Self {
        let bounds = DelaySettings { waiting_max, ..DelaySettings::default() };
        let patience = Patience::new(Later::Delay, wait_max, &bounds, 0);
        Bench { turns: Arc::new(Turns::new()), patience, began: Instant::now() }
    }

    fn take(&self, kind: Kind, after: u64) -> Result<Turn, NoTurn> {
        self.turns.claim(kind, ms(after), self.patience)
    }

    /// When the turn is, from the beginning.
    fn at(&self, turn: &Turn) -> Duration {
        turn.at.duration_since(self.began)
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_given_up_is_the_next_requests_and_is_taken_once() {
    let bench = Bench::new(10, ms(1_000));
    let kept = bench.take(ONE, 100).unwrap();
    drop(bench.take(ONE, 200).unwrap());
    let next = bench.take(ONE, 300).unwrap();
    assert_eq!((bench.at(&kept), bench.at(&next)), (ms(100), ms(200)));
    // What the next was told is spare now.
    let later = bench.take(ONE, 400).unwrap();
    assert_eq!(bench.at(&later), ms(300));
    assert_eq!(bench.at(&bench.take(OTHER, 500).unwrap()), ms(500));
    assert_eq!(bench.turns.waiting(), 3);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_given_a_turn_that_has_passed_or_is_later_than_its_own() {
    let bench = Bench::new(10, ms(1_000));
    drop(bench.take(ONE, 100).unwrap());
    drop(bench.take(ONE, 400).unwrap());
    advance(ms(150)).await;
    let turn = bench.take(ONE, 100).unwrap();
    assert_eq!(bench.at(&turn), ms(250));
    turn.come().await;
    assert!(turn.has_come());
    drop(turn);
    let spare = bench.turns.spare.lock();
    assert_eq!((spare.of_kind.len(), spare.in_time.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_too_far_off_is_left_to_those_who_come_later() {
    let bench = Bench::new(10, ms(100));
    assert_eq!(bench.take(ONE, 250).unwrap_err(), NoTurn(ms(150)));
    assert_eq!(bench.turns.waiting(), 0);
    advance(ms(150)).await;
    let turn = bench.take(ONE, 200).unwrap();
    assert_eq!(bench.at(&turn), ms(250));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_and_the_turns_that_are_kept_are_bounded() {
    let bench = Bench::new(2, ms(1_000));
    let held = [bench.take(ONE, 100).unwrap(), bench.take(ONE, 200).unwrap()];
    assert_eq!(bench.take(ONE, 300).unwrap_err(), NoTurn(ms(300)));
    assert_eq!(bench.take(ONE, 400).unwrap_err(), NoTurn(ms(300)));
    // One that is kept for later has its room elsewhere.
    let kept = Patience { later: Later::Queue, ..bench.patience };
    assert_eq!(bench.at(&bench.turns.claim(ONE, ms(500), kept).unwrap()), ms(300));
    drop(held);
    assert_eq!(bench.turns.spare.lock().in_time.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_too_long_to_be_told() {
    let bench = Bench::new(2, Duration::MAX);
    assert!(bench.turns.claim(ONE, Duration::MAX, bench.patience).is_err());
    assert_eq!(bench.turns.waiting(), 0);
}
