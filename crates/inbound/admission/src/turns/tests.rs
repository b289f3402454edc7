//! Turns, on a paused clock.

use tokio::time::advance;

use super::*;

const ONE: TurnKind = TurnKind(1);
const OTHER: TurnKind = TurnKind(2);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Takes turns of one bucket, within these bounds.
struct Harness {
    turns: Arc<Turns>,
    bounds: TurnBounds,
    began: Instant,
}

impl Harness {
    fn new(waiting_max: usize, wait_max: Duration) -> Self {
        let delay = DelaySettings { waiting_max, ..DelaySettings::default() };
        let bounds = TurnBounds::new(WaitMode::Delay, wait_max, &delay, 0);
        Harness { turns: Arc::new(Turns::new()), bounds, began: Instant::now() }
    }

    fn take(&self, kind: TurnKind, after: u64) -> Result<Turn, NoTurn> {
        self.turns.claim(kind, ms(after), self.bounds)
    }

    /// When the turn is, from the beginning.
    fn at(&self, turn: &Turn) -> Duration {
        turn.at.duration_since(self.began)
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_request_takes_a_spare_turn_once() {
    let harness = Harness::new(10, ms(1_000));
    let kept = harness.take(ONE, 100).unwrap();
    drop(harness.take(ONE, 200).unwrap());
    let next = harness.take(ONE, 300).unwrap();
    assert_eq!((harness.at(&kept), harness.at(&next)), (ms(100), ms(200)));
    // The turn that the next one was assigned is spare now.
    let later = harness.take(ONE, 400).unwrap();
    assert_eq!(harness.at(&later), ms(300));
    assert_eq!(harness.at(&harness.take(OTHER, 500).unwrap()), ms(500));
    assert_eq!(harness.turns.waiting(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_spare_turn_that_has_passed_or_is_later_is_not_taken() {
    let harness = Harness::new(10, ms(1_000));
    drop(harness.take(ONE, 100).unwrap());
    drop(harness.take(ONE, 400).unwrap());
    advance(ms(150)).await;
    let turn = harness.take(ONE, 100).unwrap();
    assert_eq!(harness.at(&turn), ms(250));
    turn.wait().await;
    assert!(turn.has_come());
    drop(turn);
    let spare = harness.turns.spare.lock();
    assert_eq!((spare.by_kind.len(), spare.by_time.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_too_far_off_is_left_to_later_requests() {
    let harness = Harness::new(10, ms(100));
    assert_eq!(harness.take(ONE, 250).unwrap_err(), NoTurn(ms(150)));
    assert_eq!(harness.turns.waiting(), 0);
    advance(ms(150)).await;
    let turn = harness.take(ONE, 200).unwrap();
    assert_eq!(harness.at(&turn), ms(250));
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_and_spare_turns_are_bounded() {
    let harness = Harness::new(2, ms(1_000));
    let held = [harness.take(ONE, 100).unwrap(), harness.take(ONE, 200).unwrap()];
    assert_eq!(harness.take(ONE, 300).unwrap_err(), NoTurn(ms(300)));
    assert_eq!(harness.take(ONE, 400).unwrap_err(), NoTurn(ms(300)));
    // The queue has a maximum of its own.
    let queued = TurnBounds { mode: WaitMode::Queue, ..harness.bounds };
    assert_eq!(harness.at(&harness.turns.claim(ONE, ms(500), queued).unwrap()), ms(300));
    drop(held);
    assert_eq!(harness.turns.spare.lock().by_time.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_clock_is_refused() {
    let harness = Harness::new(2, Duration::MAX);
    assert!(harness.turns.claim(ONE, Duration::MAX, harness.bounds).is_err());
    assert_eq!(harness.turns.waiting(), 0);
}
