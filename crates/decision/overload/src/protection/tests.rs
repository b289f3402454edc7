use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use tidegate_algorithms::{ManualClock, Nanos, Percent};

use super::entry::contain_future;
use super::*;
use crate::gate::Completion;

const START: Timestamp = Timestamp::from_secs(1_000_000);

/// A manual clock with a switch that makes it fail.
#[derive(Clone, Debug)]
struct TestClock {
    hand: Arc<ManualClock>,
    fails: Arc<AtomicBool>,
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        assert!(!self.fails.load(Relaxed), "the clock fails");
        self.hand.now()
    }
}

struct Bench {
    protection: Arc<Protection<TestClock>>,
    clock: TestClock,
}

impl Bench {
    fn new(limit: u64) -> Self {
        Bench::with(ProtectionSettings::new(limit))
    }

    fn with(settings: ProtectionSettings) -> Self {
        let hand = Arc::new(ManualClock::at(START));
        let clock = TestClock { hand, fails: Arc::default() };
        Bench { protection: Arc::new(Protection::new(settings, clock.clone())), clock }
    }

    fn in_modes(limit: u64, worker: Mode, fleet: Mode, gate: Mode) -> Self {
        let settings = ProtectionSettings::new(limit);
        let (worker_mode, fleet_mode, gate_mode) = (worker, fleet, gate);
        Bench::with(ProtectionSettings { worker_mode, fleet_mode, gate_mode, ..settings })
    }

    async fn ask(&self, arrival: Arrival) -> Result<Pass<TestClock>, Refusal> {
        match self.protection.screen(arrival) {
            Ok(screened) => self.protection.enter(screened).await,
            Err(refusal) => Err(refusal),
        }
    }

    fn screened(&self, category: Category) -> ScreenedRequest {
        match self.protection.screen(from("ada", category)) {
            Ok(screened) => screened,
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    async fn admits(&self, category: Category) -> Pass<TestClock> {
        match self.ask(from("ada", category)).await {
            Ok(pass) => pass,
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    async fn refuses(&self, category: Category) -> Refusal {
        match self.ask(from("ada", category)).await {
            Ok(_) => panic!("admitted"),
            Err(refusal) => refusal,
        }
    }

    /// How often a limiter gave an answer.
    fn count(&self, limiter: Limiter, answer: Answer) -> u64 {
        let decisions = self.protection.decisions().into_iter();
        let mine = decisions.filter(|count| count.limiter == limiter && count.answer == answer);
        mine.map(|count| count.count).sum()
    }

    fn held(&self) -> (u64, u64, u64) {
        let gauges = self.protection.gauges();
        (gauges.gate.in_flight, gauges.gate.queued, gauges.fleet.in_flight)
    }

    /// Many callers ask while as many are inside as fit, for so many ticks.
    async fn overload(&self, ticks: u32) {
        let mut inside = Vec::new();
        for tick in 0..ticks {
            for number in 0..60u32 {
                let category = Category::ALL[(number % 4) as usize];
                let caller = Caller::numbered(mix(u64::from(tick * 60 + number)));
                let arrival = Arrival::Counted { category, caller, deadline: None };
                if let Ok(pass) = self.ask(arrival).await {
                    inside.push(pass);
                }
            }
            self.clock.hand.advance(Nanos::from_millis(250));
            self.protection.tick();
            inside.drain(..inside.len().saturating_sub(200));
        }
    }
}

fn from(caller: &str, category: Category) -> Arrival {
    Arrival::Counted { category, caller: Caller::named(caller), deadline: None }
}

#[tokio::test(start_paused = true)]
async fn the_fleets_reserve_is_for_critical_requests() {
    let bench = Bench::new(100);
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(bench.admits(Category::Post).await);
    }
    let refusal = bench.refuses(Category::Post).await;
    assert_eq!((refusal.cause, refusal.category), (Cause::ShedFleet, Category::Post));
    assert!(refusal.fleet_saturated);
    for _ in 0..20 {
        held.push(bench.admits(Category::Critical).await);
    }
    assert_eq!(bench.held(), (100, 0, 80));
    drop(held);
    assert_eq!(bench.held(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_the_gate_refuses_gives_the_fleets_credit_back() {
    let bench = Bench::new(10);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(bench.admits(Category::Critical).await);
    }
    let refusal = bench.refuses(Category::Post).await;
    assert_eq!(refusal.cause, Cause::QueueTimeout);
    assert_eq!(bench.held(), (10, 0, 0));
    assert_eq!(bench.count(Limiter::Fleet, Answer::Allow), 11);
    assert_eq!(bench.count(Limiter::Gate, Answer::Reject), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_while_it_waits_gives_everything_up() {
    let bench = Bench::new(10);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(bench.admits(Category::Critical).await);
    }
    let Ok(screened) = bench.protection.screen(from("ada", Category::Post)) else {
        panic!("the worker shedder is calm")
    };
    let protection = Arc::clone(&bench.protection);
    let task = tokio::spawn(async move { protection.enter(screened).await });
    tokio::task::yield_now().await;
    assert_eq!(bench.held(), (10, 1, 1));
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(bench.held(), (10, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_are_never_refused_and_never_counted() {
    let bench = Bench::new(1);
    let _held = bench.admits(Category::Critical).await;
    for _ in 0..100 {
        let admission = bench.ask(Arrival::Exempt).await;
        assert!(matches!(admission, Ok(pass) if !pass.holds_slot()));
    }
    assert_eq!(bench.held(), (1, 0, 0));
    assert_eq!(bench.count(Limiter::Worker, Answer::Allow), 1);
}

#[tokio::test(start_paused = true)]
async fn the_worker_shedder_refuses_before_anything_is_held() {
    let bench = Bench::in_modes(10, Mode::ENFORCE, Mode::ENFORCE, Mode::Shadow);
    bench.overload(400).await;
    let gauges = bench.protection.gauges();
    assert!(gauges.worker.admitted < 0.5, "{:?}", gauges.worker);
    let before = bench.count(Limiter::Fleet, Answer::Reject);
    let refusal = bench.refuses(Category::Test).await;
    assert_eq!(refusal.cause, Cause::ShedWorker);
    assert_eq!(bench.count(Limiter::Fleet, Answer::Reject), before);
    assert!(refusal.retry_after >= Nanos::from_secs(5), "twice as long in deep overload");
    let _pass = bench.admits(Category::Critical).await;
    assert!(gauges.offered_demand > gauges.gate.in_flight as f64);
}

#[tokio::test(start_paused = true)]
async fn a_hopeless_deadline_is_refused_at_once() {
    let bench = Bench::new(10);
    for _ in 0..20 {
        let pass = bench.admits(Category::Get).await;
        bench.clock.hand.advance(Nanos::from_millis(50));
        pass.finish(bench.clock.now(), Completion::Succeeded);
    }
    bench.protection.tick();
    let deadline = Some(bench.clock.now().after(Nanos::from_millis(49)));
    let caller = Caller::named("ada");
    let arrival = Arrival::Counted { category: Category::Critical, caller, deadline };
    let Err(refusal) = bench.protection.screen(arrival) else { panic!("there is too little time") };
    assert_eq!(refusal.cause, Cause::Deadline);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_after_its_deadline_is_no_goodput() {
    let bench = Bench::new(10);
    let deadline = Some(START.after(Nanos::from_millis(20)));
    let arrival =
        Arrival::Counted { category: Category::Get, caller: Caller::named("ada"), deadline };
    let Ok(in_time) = bench.ask(arrival).await else { panic!("there is room") };
    let Ok(late) = bench.ask(arrival).await else { panic!("there is room") };
    in_time.finish(START.after(Nanos::from_millis(20)), Completion::Succeeded);
    late.finish(START.after(Nanos::from_millis(21)), Completion::Succeeded);
    let latency = bench.protection.gauges().latencies[Category::Get.rank()];
    assert_eq!((latency.count(), latency.sum), (1, Nanos::from_millis(20)));
}

#[tokio::test(start_paused = true)]
async fn a_killed_limiter_refuses_no_request_and_what_it_held_comes_back() {
    let bench = Bench::new(10);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(bench.admits(Category::Post).await);
    }
    assert_eq!(bench.refuses(Category::Post).await.cause, Cause::ShedFleet);
    bench.protection.kill(Limiter::Fleet, None);
    bench.protection.kill(Limiter::Gate, Some(START.after(Nanos::from_secs(60))));
    for _ in 0..30 {
        held.push(bench.admits(Category::Test).await);
    }
    assert!(bench.protection.is_killed(Limiter::Gate));
    drop(held);
    assert_eq!(bench.held(), (0, 0, 0));
    bench.protection.revive(Limiter::Fleet);
    bench.clock.hand.advance(Nanos::from_secs(60));
    assert!(!bench.protection.is_killed(Limiter::Gate));
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(bench.admits(Category::Post).await);
    }
    assert_eq!(bench.refuses(Category::Post).await.cause, Cause::ShedFleet);
}

#[tokio::test(start_paused = true)]
async fn killing_everything_lets_everybody_through_uncounted() {
    let bench = Bench::new(1);
    bench.protection.kill_all(None);
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(bench.admits(Category::Test).await);
    }
    assert_eq!(bench.held(), (0, 0, 0));
    assert!(bench.protection.decisions().iter().all(|count| count.count == 0));
    bench.protection.revive_all();
    let _first = bench.admits(Category::Test).await;
    assert_eq!(bench.refuses(Category::Test).await.cause, Cause::ShedFleet);
}

#[tokio::test(start_paused = true)]
async fn a_worker_shedder_that_comes_back_begins_with_everything_admitted() {
    let bench = Bench::in_modes(10, Mode::ENFORCE, Mode::Off, Mode::Off);
    bench.overload(200).await;
    assert!(bench.protection.gauges().worker.admitted < 0.5);
    let until = bench.clock.now().after(Nanos::from_secs(10));
    bench.protection.kill(Limiter::Worker, Some(until));
    bench.overload(39).await;
    assert_eq!(bench.protection.gauges().worker.admitted, 1.0);
    bench.overload(6).await;
    assert_eq!(bench.protection.gauges().worker.admitted, 1.0, "the hold is armed");
    bench.overload(40).await;
    assert!(bench.protection.gauges().worker.admitted < 1.0);
}

#[tokio::test(start_paused = true)]
async fn dark_limiters_refuse_no_request_and_count_those_they_would_have() {
    let bench = Bench::in_modes(10, Mode::Shadow, Mode::Shadow, Mode::Shadow);
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(bench.admits(Category::Post).await);
    }
    assert_eq!(bench.count(Limiter::Fleet, Answer::WouldReject), 32);
    assert_eq!(bench.count(Limiter::Gate, Answer::WouldReject), 40 - 9 - 5);
    assert_eq!(bench.held(), (40, 0, 8), "those who would be refused are not in the grant");
    drop(held);
    assert_eq!(bench.held(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dark_worker_shedder_does_not_wind_up() {
    let bench = Bench::in_modes(100, Mode::Shadow, Mode::Off, Mode::Off);
    bench.overload(1_000).await;
    let worker = bench.protection.gauges().worker;
    assert_eq!(worker.utilization, 1.5, "everything runs");
    assert!(worker.predicted_utilization < 1.3, "{worker:?}");
    assert!((0.4..0.7).contains(&worker.admitted), "half of twice as much: {worker:?}");
    assert!(bench.count(Limiter::Worker, Answer::WouldReject) > 0);
    assert_eq!(bench.count(Limiter::Worker, Answer::Reject), 0);
}

#[tokio::test(start_paused = true)]
async fn a_percentage_refuses_the_same_callers_always() {
    let half = Mode::Enforce(Percent::new(50));
    let bench = Bench::in_modes(1, Mode::Off, half, Mode::Off);
    let _held = bench.admits(Category::Post).await;
    let mut refused = 0;
    for number in 0..100 {
        let name = number.to_string();
        let refuses = async || bench.ask(from(&name, Category::Post)).await.is_err();
        let first = refuses().await;
        assert_eq!(first, refuses().await);
        refused += u32::from(first);
    }
    assert!((30..70).contains(&refused), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_fails_lets_the_request_through_and_is_counted() {
    let bench = Bench::new(1);
    let held = bench.admits(Category::Post).await;
    bench.clock.fails.store(true, Relaxed);
    for _ in 0..3 {
        let admission = bench.ask(from("ada", Category::Post)).await;
        assert!(admission.is_ok());
    }
    bench.protection.tick();
    bench.clock.fails.store(false, Relaxed);
    assert_eq!(bench.count(Limiter::Worker, Answer::ErrorOpen), 3);
    drop(held);
    assert_eq!(bench.held(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_future_that_fails_is_contained() {
    let failed = contain_future(async {
        tokio::task::yield_now().await;
        assert!(std::hint::black_box(false), "the limiter fails");
    });
    assert_eq!(failed.await, None);
    assert_eq!(contain_future(async { 7 }).await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_tells_the_same_times_to_come_back() {
    async fn times(seed: u64) -> Vec<Nanos> {
        let bench = Bench::with(ProtectionSettings { seed, ..ProtectionSettings::new(1) });
        let _held = bench.admits(Category::Post).await;
        let mut times = Vec::new();
        for _ in 0..10 {
            times.push(bench.refuses(Category::Post).await.retry_after);
        }
        times
    }
    assert_eq!(times(1).await, times(1).await);
    assert_ne!(times(1).await, times(2).await);
}

#[derive(Clone, Debug)]
enum Step {
    Ask { category: usize, caller: u64 },
    Finish { which: usize },
    Pass { millis: u64 },
    Kill { limiter: usize, millis: Option<u64> },
    Revive { limiter: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..4, 0u64..50).prop_map(|(category, caller)| Step::Ask { category, caller }),
        3 => any::<usize>().prop_map(|which| Step::Finish { which }),
        2 => (0u64..400).prop_map(|millis| Step::Pass { millis }),
        1 => (0usize..3, prop::option::of(0u64..2_000))
            .prop_map(|(limiter, millis)| Step::Kill { limiter, millis }),
        1 => (0usize..3).prop_map(|limiter| Step::Revive { limiter }),
    ]
}

/// Runs the steps, and ends what is still running.
async fn run(bench: &Bench, steps: &[Step]) {
    let mut held = Vec::new();
    for step in steps {
        match step {
            Step::Ask { category, caller } => {
                let caller = Caller::numbered(*caller);
                let category = Category::ALL[*category];
                let arrival = Arrival::Counted { category, caller, deadline: None };
                if let Ok(pass) = bench.ask(arrival).await {
                    held.push(pass);
                }
            }
            Step::Finish { which } if !held.is_empty() => {
                let pass = held.swap_remove(which % held.len());
                pass.finish(bench.clock.now(), Completion::Succeeded);
            }
            Step::Finish { .. } => {}
            Step::Pass { millis } => {
                bench.clock.hand.advance(Nanos::from_millis(*millis));
                bench.protection.tick();
            }
            Step::Kill { limiter, millis } => {
                let until =
                    millis.map(|millis| bench.clock.now().after(Nanos::from_millis(millis)));
                bench.protection.kill(Limiter::ALL[*limiter], until);
            }
            Step::Revive { limiter } => bench.protection.revive(Limiter::ALL[*limiter]),
        }
    }
}

#[tokio::test]
async fn a_caller_that_did_not_read_has_a_quarter_of_the_gate_for_a_minute() {
    let bench = Bench::in_modes(8, Mode::Off, Mode::Off, Mode::ENFORCE);
    let stalled = bench.admits(Category::Get).await;
    stalled.finish(bench.clock.now(), Completion::Stalled);
    assert!(bench.ask(from("bob", Category::Get)).await.is_ok());
    let first = bench.admits(Category::Get).await;
    let second = bench.admits(Category::Critical).await;
    assert_eq!(bench.refuses(Category::Critical).await.cause, Cause::QueueFull);
    let other = bench.ask(from("bob", Category::Get)).await;
    assert!(other.is_ok(), "other callers have the whole gate");
    drop(first);
    let third = bench.admits(Category::Get).await;
    assert_eq!(bench.refuses(Category::Get).await.cause, Cause::QueueFull);
    bench.clock.hand.advance(Nanos::from_secs(61));
    let fourth = bench.admits(Category::Get).await;
    drop((second, third, fourth, other));
    assert_eq!(bench.protection.gate().view().in_flight, 0);
}

proptest! {
    #[test]
    fn whatever_is_killed_when_nothing_stays_held(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new(4);
            run(&bench, &steps).await;
            assert_eq!(bench.held(), (0, 0, 0));
            let counts = bench.protection.gauges().gate.counts;
            assert_eq!(counts.entered, counts.left);
        });
    }

    #[test]
    fn dark_limiters_change_no_answer(steps in prop::collection::vec(step(), 1..100)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let bench = Bench::in_modes(2, Mode::Shadow, Mode::Shadow, Mode::Shadow);
            let asked = steps.iter().filter(|step| matches!(step, Step::Ask { .. })).count();
            run(&bench, &steps).await;
            let rejected: u64 =
                Limiter::ALL.iter().map(|limiter| bench.count(*limiter, Answer::Reject)).sum();
            assert_eq!(rejected, 0);
            assert_eq!(bench.protection.gauges().gate.counts.entered, asked as u64);
            assert_eq!(bench.held(), (0, 0, 0));
        });
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_must_wait_is_told_so_and_gives_everything_up_when_dropped() {
    let bench = Bench::new(4);
    let mut inside = Vec::new();
    for _ in 0..4 {
        inside.push(bench.admits(Category::Critical).await);
    }
    let screened = bench.screened(Category::Post);
    let entering = bench.protection.try_enter(screened);
    assert!(matches!(entering, Entry::Queued(_)), "{entering:?}");
    assert_eq!(bench.held(), (4, 1, 1));
    drop(entering);
    assert_eq!(bench.held(), (4, 0, 0));
    drop(inside);
    let entering = bench.protection.try_enter(screened);
    assert!(matches!(entering, Entry::Entered(_)), "{entering:?}");
    assert_eq!(bench.held(), (1, 0, 1));
    drop(entering);
    assert_eq!(bench.held(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_goes_in_when_somebody_leaves() {
    let bench = Bench::new(4);
    let mut inside = Vec::new();
    for _ in 0..4 {
        inside.push(bench.admits(Category::Critical).await);
    }
    let Entry::Queued(waiting) = bench.protection.try_enter(bench.screened(Category::Critical))
    else {
        panic!("there is no room")
    };
    inside.pop();
    let Ok(pass) = waiting.wait().await else { panic!("there is room") };
    assert!(pass.holds_slot());
    assert_eq!((bench.held(), bench.count(Limiter::Gate, Answer::Allow)), ((4, 0, 0), 5));
}
