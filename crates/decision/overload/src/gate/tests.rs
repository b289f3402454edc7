use std::time::Duration;

use tidegate_algorithms::ManualClock;
use tokio::task::yield_now;

use super::*;
use crate::category::{Category, Cohort};
use crate::tokio_clock::TokioClock;

const LOW: Level = Level::new(Category::Get, Cohort::numbered(1));
const HIGH: Level = Level::new(Category::Critical, Cohort::numbered(1));

fn gate(limit: u64) -> Arc<Gate<TokioClock>> {
    Arc::new(Gate::new(GateSettings::new(limit), TokioClock::starting_at(Timestamp::from_secs(9))))
}

impl Gate<TokioClock> {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

async fn inside(gate: &Arc<Gate<TokioClock>>, level: Level) -> Slot<TokioClock> {
    match gate.enter(gate.now(), level, None).await {
        Ok(slot) => slot,
        Err(cause) => panic!("refused: {cause:?}"),
    }
}

/// A task that waits at the gate, once it does.
async fn waiting(
    gate: &Arc<Gate<TokioClock>>,
    level: Level,
) -> tokio::task::JoinHandle<Result<Slot<TokioClock>, Cause>> {
    let before = gate.view().queued;
    let mine = Arc::clone(gate);
    let task = tokio::spawn(async move { mine.enter(mine.now(), level, None).await });
    yield_now().await;
    assert_eq!(gate.view().queued, before + 1);
    task
}

#[tokio::test(start_paused = true)]
async fn a_slot_gives_itself_back_and_the_next_comes_in() {
    let gate = gate(2);
    let slots = [inside(&gate, HIGH).await, inside(&gate, HIGH).await];
    let task = waiting(&gate, HIGH).await;
    drop(slots);
    let entered = task.await.unwrap();
    assert!(entered.is_ok());
    assert_eq!(gate.view().in_flight, 1);
    drop(entered);
    assert_eq!(gate.view().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_gives_the_slot_back() {
    let gate = gate(2);
    let mine = Arc::clone(&gate);
    let task = tokio::spawn(async move {
        let _slot = inside(&mine, LOW).await;
        panic!("the handler fails");
    });
    assert!(task.await.is_err());
    assert_eq!(gate.view().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_gives_its_place_up() {
    let gate = gate(2);
    let _slots = [inside(&gate, HIGH).await, inside(&gate, HIGH).await];
    let task = waiting(&gate, HIGH).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(gate.view().queued, 0);
    assert_eq!(gate.view().counts.gave_up, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_with_a_slot_it_was_just_given_gives_it_back() {
    let gate = gate(2);
    let slots = [inside(&gate, HIGH).await, inside(&gate, HIGH).await];
    let task = waiting(&gate, HIGH).await;
    drop(slots);
    assert_eq!(gate.view().in_flight, 1, "given, and not yet taken");
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(gate.view().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_for_longer_than_a_burst_may_last() {
    let gate = gate(2);
    let _slots = [inside(&gate, HIGH).await, inside(&gate, HIGH).await];
    let began = gate.now();
    let entered = gate.enter(began, HIGH, None).await;
    assert!(matches!(entered, Err(Cause::QueueTimeout)));
    assert!(gate.now().since(began) <= Nanos::from_millis(102));
    assert_eq!(gate.view().queued, 0);
}

#[tokio::test(start_paused = true)]
async fn a_critical_request_displaces_one_that_waits() {
    let gate = gate(2);
    let slots = [inside(&gate, HIGH).await, inside(&gate, HIGH).await];
    let low = waiting(&gate, LOW).await;
    let mine = Arc::clone(&gate);
    let high = tokio::spawn(async move { mine.enter(mine.now(), HIGH, None).await });
    let displaced = low.await.unwrap();
    assert!(matches!(displaced, Err(Cause::QueueFull)));
    drop(slots);
    assert!(high.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_tick_refuses_those_who_wait_in_a_standing_queue() {
    let gate = gate(10);
    let mut slots = Vec::new();
    for _ in 0..10 {
        slots.push(inside(&gate, HIGH).await);
    }
    let _first = waiting(&gate, LOW).await;
    tokio::time::sleep(Duration::from_millis(90)).await;
    let second = waiting(&gate, LOW).await;
    tokio::time::sleep(Duration::from_millis(15)).await;
    gate.tick(gate.now());
    assert!(matches!(second.await.unwrap(), Err(Cause::QueueTimeout)));
}

#[test]
fn deadlines_are_hopeless_by_the_service_time_of_the_last_tick() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1)));
    let gate = Arc::new(Gate::new(GateSettings::new(64), Arc::clone(&clock)));
    let soon = |millis| Some(clock.now().after(Nanos::from_millis(millis)));
    assert!(!gate.is_hopeless(clock.now(), None));
    assert!(!gate.is_hopeless(clock.now(), soon(1)));
    assert!(gate.is_hopeless(clock.now(), soon(0)));
    for _ in 0..20 {
        let (slot, _) = gate.enter_forced(clock.now(), LOW);
        clock.advance(Nanos::from_millis(20));
        slot.unwrap().finish(Completion::Succeeded);
    }
    gate.tick(clock.now());
    assert!(gate.is_hopeless(clock.now(), soon(19)));
    assert!(!gate.is_hopeless(clock.now(), soon(20)));
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_slot_comes_back_and_its_late_release_frees_no_other() {
    let gate = gate(2);
    let late = [inside(&gate, HIGH).await, inside(&gate, HIGH).await];
    tokio::time::advance(Duration::from_secs(15 * 60 + 1)).await;
    gate.tick(gate.now());
    assert_eq!(gate.view().counts.taken_back, 2);
    let _others = [inside(&gate, HIGH).await, inside(&gate, HIGH).await];
    drop(late);
    assert_eq!((gate.view().in_flight, gate.view().counts.late), (2, 2));
}

#[test]
fn threads_that_come_and_go_leave_nothing_behind() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1)));
    let gate = Arc::new(Gate::new(GateSettings::new(4), Arc::clone(&clock)));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    match gate.arrive(clock.now(), HIGH, None) {
                        GateEntry::Decided(Ok(id)) => {
                            gate.leave(clock.now(), id, Completion::Abandoned);
                        }
                        GateEntry::Decided(Err(_)) => {}
                        GateEntry::Queued(position) => drop(position),
                    }
                    assert!(gate.view().in_flight <= 4);
                }
            });
        }
    });
    let view = gate.view();
    assert_eq!((view.in_flight, view.queued), (0, 0));
    assert_eq!(view.counts.entered, view.counts.left);
}
