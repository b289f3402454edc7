//! The hot path allocates nothing: neither for those who come in, nor for those refused.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_algorithms::{Clock, ManualClock, Nanos, Timestamp};
use tidegate_overload::{
    Arrival, Caller, Category, Completion, Mode, Pass, Protection, ProtectionSettings,
};

type TestClock = Arc<ManualClock>;

/// Asks a gate that has free slots.
fn ask(protection: &Protection<TestClock>, category: Category) -> Option<Pass<TestClock>> {
    let arrival = Arrival::Counted { category, caller: Caller::named("ada"), deadline: None };
    let Ok(screened) = protection.screen(arrival) else { return None };
    let entering = pin!(protection.enter(screened));
    match entering.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(pass)) => Some(pass),
        Poll::Ready(Err(_)) => None,
        Poll::Pending => panic!("there is room or none, but nothing to wait for"),
    }
}

fn protection(settings: ProtectionSettings) -> Protection<TestClock> {
    Protection::new(settings, Arc::new(ManualClock::at(Timestamp::from_secs(1_000))))
}

#[test]
fn admitting_and_finishing_allocates_nothing() {
    for mode in [Mode::ENFORCE, Mode::Shadow, Mode::Off] {
        let settings = ProtectionSettings::new(64);
        let (worker_mode, fleet_mode, gate_mode) = (mode, mode, mode);
        let protection =
            protection(ProtectionSettings { worker_mode, fleet_mode, gate_mode, ..settings });
        drop(ask(&protection, Category::Get));
        let allocated = allocation_counter::measure(|| {
            for _ in 0..100 {
                let pass = ask(&protection, Category::Get).expect("there is room");
                pass.finish(protection.clock().now(), Completion::Succeeded);
            }
        });
        assert_eq!(allocated.count_total, 0, "{mode:?}");
    }
}

#[test]
fn refusing_allocates_nothing() {
    let protection = protection(ProtectionSettings::new(10));
    let held: Vec<_> = (0..8).map(|_| ask(&protection, Category::Post)).collect();
    assert!(held.iter().all(Option::is_some));
    assert!(ask(&protection, Category::Post).is_none());
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            assert!(ask(&protection, Category::Post).is_none());
        }
    });
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn a_tick_does_the_same_work_whatever_the_load() {
    let protection = protection(ProtectionSettings::new(64));
    let tick = |requests: u32| {
        for _ in 0..requests {
            drop(ask(&protection, Category::Get));
        }
        protection.clock().advance(Nanos::from_millis(250));
        allocation_counter::measure(|| protection.tick()).count_total
    };
    tick(10);
    let idle = tick(0);
    assert_eq!(tick(10_000), idle);
}
