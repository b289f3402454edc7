use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::adaptive_limit::AdaptiveSettings;
use crate::category::Cohort;

const START: Timestamp = Timestamp::from_secs(1_000);

fn level(category: Category) -> Level {
    Level::new(category, Cohort::numbered(0))
}

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// A gate and a clock, both turned by hand.
struct Bench {
    gate: GateState,
    now: Timestamp,
    inside: Vec<SlotId>,
}

impl Bench {
    fn new(limit: u64) -> Self {
        let gate = GateState::new(GateSettings::new(limit), START);
        Bench { gate, now: START, inside: Vec::new() }
    }

    /// A gate whose slots are all held, the reserved ones by critical requests.
    fn full(limit: u64) -> Self {
        let mut bench = Bench::new(limit);
        for _ in 0..limit {
            assert!(bench.arrives(Category::Critical));
        }
        bench
    }

    fn arrive(&mut self, category: Category) -> Turn {
        let turn = self.gate.arrive(self.now, level(category), None);
        if let Turn::Enter(slot) = turn {
            self.inside.push(slot);
        }
        turn
    }

    fn arrives(&mut self, category: Category) -> bool {
        matches!(self.arrive(category), Turn::Enter(_))
    }

    fn waits(&mut self, category: Category) -> Ticket {
        match self.arrive(category) {
            Turn::Wait { ticket, .. } => ticket,
            other => panic!("waits: {other:?}"),
        }
    }

    fn leaves(&mut self) {
        let slot = self.inside.remove(0);
        assert!(self.gate.leave(self.now, slot, Completion::Succeeded));
    }

    fn advance(&mut self, span: Nanos) {
        self.now = self.now.after(span);
    }

    /// Who came in and who was refused since the last time.
    fn events(&mut self) -> (Vec<Ticket>, Vec<(Ticket, Cause)>) {
        let (mut entered, mut refused) = (Vec::new(), Vec::new());
        while let Some(event) = self.gate.next_event() {
            match event.outcome {
                Ok(slot) => {
                    self.inside.push(slot);
                    entered.push(event.ticket);
                }
                Err(cause) => refused.push((event.ticket, cause)),
            }
        }
        (entered, refused)
    }
}

#[test]
fn lets_in_up_to_the_limit_and_keeps_some_slots_for_critical_requests() {
    let mut bench = Bench::new(40);
    for _ in 0..38 {
        assert!(bench.arrives(Category::Post));
    }
    assert!(!bench.arrives(Category::Post));
    assert!(bench.arrives(Category::Critical));
    assert!(bench.arrives(Category::Critical));
    assert!(!bench.arrives(Category::Critical));
    assert_eq!((bench.gate.in_flight(), bench.gate.queued()), (40, 2));
}

#[test]
fn critical_requests_inside_count_for_the_slots_that_are_kept_for_them() {
    let mut bench = Bench::new(40);
    (0..2).for_each(|_| assert!(bench.arrives(Category::Critical)));
    (0..38).for_each(|_| assert!(bench.arrives(Category::Post), "no slot is idle"));
    assert!(!bench.arrives(Category::Post));
}

#[test]
fn a_gate_of_one_serves_everybody() {
    let mut bench = Bench::new(1);
    assert!(bench.arrives(Category::Test));
    bench.waits(Category::Test);
    assert_eq!(Bench::new(0).gate.limit(), 1, "a gate of none would serve no request");
}

#[test]
fn a_freed_slot_goes_to_the_highest_category() {
    let mut bench = Bench::full(10);
    bench.waits(Category::Get);
    let critical = bench.waits(Category::Critical);
    bench.waits(Category::Post);
    bench.leaves();
    assert_eq!(bench.events(), (vec![critical], vec![]));
}

#[test]
fn the_reserved_slot_waits_for_a_critical_request() {
    let mut bench = Bench::new(10);
    assert!(bench.arrives(Category::Critical));
    (0..9).for_each(|_| assert!(bench.arrives(Category::Post)));
    let get = bench.waits(Category::Get);
    bench.leaves();
    assert_eq!(bench.events(), (vec![], vec![]), "nine others are inside, the tenth is reserved");
    bench.leaves();
    assert_eq!(bench.events(), (vec![get], vec![]));
}

#[test]
fn a_burst_is_served_oldest_first_and_a_standing_queue_newest_first() {
    let mut bench = Bench::full(10);
    let tickets: Vec<Ticket> = (0..4).map(|_| bench.waits(Category::Post)).collect();
    bench.advance(ms(50));
    bench.leaves();
    assert_eq!(bench.events(), (vec![tickets[0]], vec![]));
    bench.advance(ms(49));
    let newest = bench.waits(Category::Post);
    bench.advance(ms(2));
    bench.leaves();
    let (entered, refused) = bench.events();
    assert_eq!(entered, [newest]);
    assert_eq!(refused.len(), 3, "the others waited for longer than a standing queue allows");
}

#[test]
fn critical_requests_wait_as_in_a_burst_also_in_a_standing_queue() {
    let mut bench = Bench::full(10);
    bench.waits(Category::Post);
    bench.advance(ms(80));
    let critical = bench.waits(Category::Critical);
    let post = bench.waits(Category::Post);
    bench.advance(ms(30));
    bench.gate.expire(bench.now);
    let (_, refused) = bench.events();
    assert!(refused.contains(&(post, Cause::QueueTimeout)));
    bench.leaves();
    assert_eq!(bench.events(), (vec![critical], vec![]));
}

#[test]
fn an_idle_gate_does_not_take_its_first_queue_for_a_standing_one() {
    let mut bench = Bench::full(10);
    bench.advance(Nanos::from_secs(60));
    let first = bench.waits(Category::Critical);
    bench.advance(ms(50));
    bench.waits(Category::Critical);
    bench.leaves();
    assert_eq!(bench.events(), (vec![first], vec![]));
}

#[test]
fn a_full_queue_gives_up_the_oldest_of_its_lowest_category() {
    let mut bench = Bench::full(8);
    let first = bench.waits(Category::Test);
    let second = bench.waits(Category::Test);
    let get = bench.waits(Category::Get);
    bench.waits(Category::Post);
    bench.waits(Category::Critical);
    assert_eq!(bench.events().1, [(first, Cause::QueueFull)]);
    bench.waits(Category::Critical);
    assert_eq!(bench.events().1, [(second, Cause::QueueFull)]);
    assert_eq!(bench.arrive(Category::Test), Turn::Refuse(Cause::QueueFull));
    bench.waits(Category::Get);
    assert_eq!(bench.events().1, [(get, Cause::QueueFull)], "an equal gives way to the newer");
}

#[test]
fn whoever_waits_for_too_long_is_refused() {
    let mut bench = Bench::full(10);
    let ticket = bench.waits(Category::Get);
    bench.advance(ms(100));
    bench.gate.expire(bench.now);
    assert_eq!(bench.events().1, [(ticket, Cause::QueueTimeout)]);
    assert_eq!(bench.gate.time_out(bench.now, ticket), None, "its event has come");
    assert_eq!(bench.gate.queued(), 0);
}

#[test]
fn the_wait_is_a_third_of_the_time_that_is_left_at_most() {
    let mut bench = Bench::full(10);
    let deadline = Some(bench.now.after(ms(30)));
    let turn = bench.gate.arrive(bench.now, level(Category::Get), deadline);
    let Turn::Wait { until, ticket } = turn else { panic!("{turn:?}") };
    assert_eq!(until, bench.now.after(ms(10)));
    assert_eq!(bench.gate.time_out(until, ticket), Some(Cause::QueueTimeout));
}

#[test]
fn what_cannot_be_done_in_time_is_refused_at_the_door_and_in_the_queue() {
    let mut bench = Bench::full(20);
    bench.advance(ms(20));
    (0..20).for_each(|_| bench.leaves());
    assert_eq!(bench.gate.service_time(), ms(20));
    (0..20).for_each(|_| assert!(bench.arrives(Category::Critical)));
    let soon = Some(bench.now.after(ms(19)));
    let turn = bench.gate.arrive(bench.now, level(Category::Critical), soon);
    assert_eq!(turn, Turn::Refuse(Cause::Deadline));
    let enough = Some(bench.now.after(ms(21)));
    let turn = bench.gate.arrive(bench.now, level(Category::Critical), enough);
    let Turn::Wait { ticket, .. } = turn else { panic!("{turn:?}") };
    bench.advance(ms(2));
    bench.leaves();
    assert_eq!(bench.events().1, [(ticket, Cause::Deadline)]);
}

#[test]
fn errors_and_lost_clients_do_not_teach_the_service_time() {
    let mut bench = Bench::full(40);
    bench.advance(ms(20));
    (0..20).for_each(|_| bench.leaves());
    for completion in [Completion::Failed, Completion::Abandoned] {
        bench.advance(Nanos::from_secs(9));
        let slot = bench.inside.remove(0);
        bench.gate.leave(bench.now, slot, completion);
    }
    assert_eq!(bench.gate.service_time(), ms(20));
}

#[test]
fn a_place_that_is_given_up_goes_to_no_one_else() {
    let mut bench = Bench::full(10);
    let gone = bench.waits(Category::Critical);
    let stays = bench.waits(Category::Critical);
    assert!(bench.gate.give_up(bench.now, gone));
    assert!(!bench.gate.give_up(bench.now, gone));
    bench.leaves();
    assert_eq!(bench.events(), (vec![stays], vec![]));
}

#[test]
fn a_slot_that_is_held_for_too_long_is_taken_back() {
    let mut bench = Bench::full(10);
    bench.advance(Nanos::from_secs(15 * 60 + 1));
    assert_eq!(bench.gate.take_back(bench.now), 10);
    assert_eq!(bench.gate.in_flight(), 0);
    let late = bench.inside[0];
    assert!(!bench.gate.leave(bench.now, late, Completion::Succeeded));
    assert_eq!(bench.gate.counts().late, 1);
}

#[test]
fn a_higher_limit_lets_waiting_requests_in() {
    let mut bench = Bench::full(10);
    let tickets: Vec<Ticket> = (0..3).map(|_| bench.waits(Category::Critical)).collect();
    bench.gate.set_limit(bench.now, 12);
    assert_eq!(bench.events().0, &tickets[..2]);
    bench.gate.set_limit(bench.now, 4);
    (0..8).for_each(|_| bench.leaves());
    assert_eq!(bench.events().0, [], "twelve were inside, four may be");
    bench.leaves();
    assert_eq!(bench.events().0, &tickets[2..]);
}

#[test]
fn a_gate_that_may_not_refuse_lets_in_beyond_the_limit_and_says_what_it_would_have_done() {
    let mut bench = Bench::full(10);
    for _ in 0..5 {
        let anyway = bench.gate.arrive_forced(bench.now, level(Category::Get));
        assert!(!anyway.would_refuse, "the queue would have had a place");
    }
    assert!(bench.gate.arrive_forced(bench.now, level(Category::Get)).would_refuse);
    assert_eq!((bench.gate.in_flight(), bench.gate.within()), (16, 10));
    bench.leaves();
    assert!(bench.arrives(Category::Critical), "requests beyond take no other's slot");
}

#[test]
fn the_window_tells_means_over_time() {
    let mut bench = Bench::full(10);
    bench.waits(Category::Critical);
    bench.advance(ms(50));
    bench.leaves();
    bench.events();
    bench.advance(ms(50));
    let window = bench.gate.take_window(bench.now);
    assert_eq!((window.in_flight, window.queued), (10.0, 0.5));
    assert_eq!(window.queue_wait.get(), ms(50).get() / 11);
}

#[test]
fn an_adaptive_limit_falls_when_more_inside_only_takes_longer() {
    let adaptive = Some(AdaptiveSettings::new(100));
    let settings = GateSettings { adaptive, ..GateSettings::new(40) };
    let mut bench = Bench::new(40);
    bench.gate = GateState::new(settings, START);
    // A second of so many at once. Four are done in 20 ms, more only take longer.
    let second = |bench: &mut Bench, at_once: u64| {
        let inside = at_once.min(bench.gate.limit());
        let millis = 5 * inside.max(4);
        for _ in 0..1_000 / millis {
            (0..inside).for_each(|_| assert!(bench.arrives(Category::Critical)));
            bench.advance(ms(millis));
            (0..inside).for_each(|_| bench.leaves());
        }
        bench.gate.adapt(bench.now)
    };
    (0..20).for_each(|_| assert_eq!(second(&mut bench, 4), Some(40)));
    (0..40).for_each(|_| _ = second(&mut bench, 40));
    assert!(bench.gate.limit() < 20, "{}", bench.gate.limit());
    assert_eq!(bench.gate.adapt(bench.now), None, "the window has just begun");
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { category: usize, deadline: Option<u64> },
    ForcedEntry { category: usize },
    Leave { which: usize },
    LeaveTwice { which: usize },
    GiveUp { which: usize },
    Limit { limit: u64 },
    Pass { millis: u64 },
    Late { millis: u64 },
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..4, prop::option::of(0u64..400))
            .prop_map(|(category, deadline)| Step::Arrive { category, deadline }),
        1 => (0usize..4).prop_map(|category| Step::ForcedEntry { category }),
        6 => any::<usize>().prop_map(|which| Step::Leave { which }),
        1 => any::<usize>().prop_map(|which| Step::LeaveTwice { which }),
        1 => any::<usize>().prop_map(|which| Step::GiveUp { which }),
        1 => (0u64..20).prop_map(|limit| Step::Limit { limit }),
        3 => (0u64..60).prop_map(|millis| Step::Pass { millis }),
        1 => (0u64..30).prop_map(|millis| Step::Late { millis }),
        1 => Just(Step::Tick),
    ]
}

/// Everybody who came, kept apart from the gate.
#[derive(Default)]
struct Ledger {
    inside: Vec<SlotId>,
    waiting: HashMap<Ticket, Category>,
    gone: Vec<SlotId>,
    entered: u64,
    left: u64,
}

impl Ledger {
    fn hear(&mut self, gate: &mut GateState) -> Result<(), TestCaseError> {
        while let Some(event) = gate.next_event() {
            let category = self.waiting.remove(&event.ticket);
            prop_assert!(category.is_some(), "an event without a request");
            if let Ok(slot) = event.outcome {
                prop_assert!(!self.inside.contains(&slot), "one slot, two holders");
                self.inside.push(slot);
                self.entered += 1;
                // Whoever ranks higher and waits would have gone first.
                let higher = self.waiting.values().any(|other| Some(*other) > category);
                prop_assert!(!higher, "{category:?} before a higher one");
            }
        }
        Ok(())
    }

    fn leave(&mut self, gate: &mut GateState, now: Timestamp, which: usize) -> Option<SlotId> {
        if self.inside.is_empty() {
            return None;
        }
        let slot = self.inside.swap_remove(which % self.inside.len());
        assert!(gate.leave(now, slot, Completion::Succeeded));
        self.left += 1;
        self.gone.push(slot);
        Some(slot)
    }
}

fn run(steps: &[Step]) -> Result<Vec<String>, TestCaseError> {
    let mut gate = GateState::new(GateSettings::new(8), START);
    let mut ledger = Ledger::default();
    let mut now = START;
    let mut log = Vec::new();
    for step in steps {
        match step {
            Step::Arrive { category, deadline } => {
                let category = Category::ALL[*category];
                let deadline = deadline.map(|millis| now.after(ms(millis)));
                let turn = gate.arrive(now, level(category), deadline);
                log.push(format!("{turn:?}"));
                ledger.hear(&mut gate)?;
                match turn {
                    Turn::Enter(slot) => {
                        prop_assert!(gate.within() <= gate.limit());
                        ledger.inside.push(slot);
                        ledger.entered += 1;
                    }
                    Turn::Wait { ticket, until } => {
                        prop_assert!(until <= now.after(ms(100)));
                        ledger.waiting.insert(ticket, category);
                    }
                    Turn::Refuse(Cause::QueueFull) => {
                        let lower = ledger.waiting.values().any(|other| *other <= category);
                        prop_assert!(!lower, "refused while somebody lower waits");
                    }
                    Turn::Refuse(_) => prop_assert!(deadline.is_some()),
                }
            }
            Step::ForcedEntry { category } => {
                let anyway = gate.arrive_forced(now, level(Category::ALL[*category]));
                ledger.inside.extend(anyway.slot);
                ledger.entered += u64::from(anyway.slot.is_some());
            }
            Step::Leave { which } => _ = ledger.leave(&mut gate, now, *which),
            Step::LeaveTwice { which } => {
                if let Some(slot) = ledger.leave(&mut gate, now, *which) {
                    prop_assert!(!gate.leave(now, slot, Completion::Succeeded));
                }
            }
            Step::GiveUp { which } => {
                let mut tickets: Vec<Ticket> = ledger.waiting.keys().copied().collect();
                tickets.sort_unstable_by_key(|ticket| ticket.index());
                if let Some(ticket) = tickets.get(which % tickets.len().max(1)) {
                    prop_assert!(gate.give_up(now, *ticket));
                    ledger.waiting.remove(ticket);
                }
            }
            Step::Limit { limit } => gate.set_limit(now, *limit),
            Step::Pass { millis } => now = now.after(ms(*millis)),
            Step::Late { millis } => {
                now = Timestamp::from_nanos(now.as_nanos().saturating_sub(ms(*millis).get()));
            }
            Step::Tick => gate.expire(now),
        }
        ledger.hear(&mut gate)?;
        prop_assert_eq!(gate.in_flight(), ledger.inside.len() as u64);
        prop_assert_eq!(gate.queued(), ledger.waiting.len());
        prop_assert_eq!(gate.counts().entered, ledger.entered);
        prop_assert_eq!(gate.counts().left, ledger.left);
        prop_assert_eq!(ledger.entered, ledger.left + gate.in_flight());
    }
    Ok(log)
}

#[test]
fn after_an_overload_a_queue_is_a_burst_and_may_be_twice_as_long() {
    let mut bench = Bench::full(8);
    let first = bench.waits(Category::Get);
    bench.advance(ms(90));
    let second = bench.waits(Category::Get);
    // Not empty for longer than 100 ms: a standing queue, in which 5 ms are the longest wait.
    bench.advance(ms(8));
    bench.gate.set_recovering(true);
    bench.gate.expire(bench.now);
    assert_eq!(bench.events(), (vec![], vec![]));
    bench.advance(ms(4));
    bench.leaves();
    assert_eq!(bench.events(), (vec![second], vec![(first, Cause::QueueTimeout)]));
    assert_eq!(bench.gate.queue_max(), 8);
    bench.gate.set_recovering(false);
    assert_eq!(bench.gate.queue_max(), 4);
}

proptest! {
    #[test]
    fn slots_held_are_those_entered_and_not_left_and_no_request_is_overtaken_by_a_lower_category(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let first = run(&steps)?;
        prop_assert_eq!(first, run(&steps)?, "replays");
    }
}
