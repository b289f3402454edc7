use proptest::prelude::*;

use super::*;

const TICK: Nanos = Nanos::from_millis(250);

fn after(law: &ControlLaw, state: LawState, utilization: f64, seconds: u64) -> LawState {
    let steps = seconds * 1_000_000_000 / law.period.get();
    (0..steps).fold(state, |state, _| law.step(state, utilization, 0.0, law.period))
}

#[test]
fn nothing_is_shed_before_overload_has_lasted() {
    let law = ControlLaw::default();
    let held = (0..7).fold(LawState::default(), |state, _| law.step(state, 1.5, 0.0, TICK));
    assert_eq!(held.admitted(), 1.0);
    assert!(law.step(held, 1.5, 0.0, TICK).admitted() < 1.0);
}

#[test]
fn full_strength_sheds_to_a_third_in_one_time_constant() {
    let state = after(&ControlLaw::default(), LawState::default(), 1.4, 2 + 15);
    assert!((state.admitted() - 0.362).abs() < 0.01, "{}", state.admitted());
}

#[test]
fn between_the_thresholds_nothing_moves() {
    let law = ControlLaw::default();
    let shed = after(&law, LawState::default(), 1.4, 10);
    assert_eq!(after(&law, shed, 1.0, 600).admitted(), shed.admitted());
}

#[test]
fn an_interrupted_overload_has_to_last_anew() {
    let law = ControlLaw::default();
    let mut state = LawState::default();
    for _ in 0..100 {
        state = after(&law, state, 1.5, 1);
        state = law.step(state, 1.1, 0.0, TICK);
    }
    assert_eq!(state.admitted(), 1.0);
}

#[test]
fn calm_restores_everything() {
    let law = ControlLaw::default();
    let shed = after(&law, LawState::default(), 1.5, 40);
    assert!(shed.admitted() < 0.1);
    assert_eq!(after(&law, shed, 0.3, 4).admitted(), shed.admitted(), "calm has to last too");
    assert_eq!(after(&law, shed, 0.3, 180).admitted(), 1.0);
}

#[test]
fn a_restore_that_had_to_be_taken_back_makes_the_next_slower() {
    let law = ControlLaw::default();
    let mut state = after(&law, LawState::default(), 1.5, 20);
    let mut slower = Vec::new();
    for _ in 0..5 {
        state = after(&law, state, 0.5, 10);
        state = after(&law, state, 1.5, 5);
        slower.push(state.restore_slower());
    }
    assert_eq!(slower, [2.0, 4.0, 8.0, 8.0, 8.0]);
    let forgiven = after(&law, state, 1.0, 121);
    assert_eq!(forgiven.restore_slower(), 4.0);
    assert_eq!(after(&law, state, 1.0, 600).restore_slower(), 1.0);
}

#[test]
fn one_overload_blames_one_restore_once() {
    let law = ControlLaw::default();
    let shed = after(&law, LawState::default(), 1.5, 20);
    let mut state = after(&law, shed, 0.5, 10);
    for _ in 0..4 {
        state = after(&law, state, 1.5, 3);
        state = after(&law, state, 1.0, 1);
    }
    assert_eq!(state.restore_slower(), 2.0);
}

#[test]
fn a_late_step_counts_for_a_second_at_most() {
    let law = ControlLaw::default();
    let warm = after(&law, LawState::default(), 1.5, 2);
    let late = law.step(warm, 1.5, 0.0, Nanos::from_secs(3600));
    assert_eq!(late, law.step(warm, 1.5, 0.0, Nanos::from_secs(1)));
}

#[test]
fn shedding_stops_at_the_floor_and_a_floor_that_rises_lifts_nothing() {
    let law = ControlLaw::default();
    let shed = (0..400).fold(LawState::default(), |state, _| law.step(state, 1.5, 0.2, TICK));
    assert_eq!(shed.admitted(), 0.2);
    assert_eq!(law.step(shed, 1.5, 0.6, TICK).admitted(), 0.2);
}

#[test]
fn stripes_law_waits_half_a_minute_and_takes_two_minutes_for_everything() {
    let law = ControlLaw::STRIPE;
    let early = after(&law, LawState::default(), 1.0, 24);
    assert_eq!(early.admitted(), 1.0);
    let half = after(&law, early, 1.0, 64);
    assert!((half.admitted() - (1.0 - 64.0 / 120.0)).abs() < 1e-9);
    assert_eq!(after(&law, early, 1.0, 160).admitted(), 0.0);
    let calm = after(&law, after(&law, early, 1.0, 160), 0.0, 120);
    assert!((calm.admitted() - 1.0).abs() < 1e-9);
}

#[test]
fn signals_that_are_no_numbers_move_nothing() {
    let law = ControlLaw::default();
    let state = law.step(LawState::default(), f64::NAN, f64::NAN, TICK);
    assert_eq!(state.admitted(), 1.0);
    let wild = after(&law, LawState::default(), f64::INFINITY, 60);
    assert!((0.0..=1.0).contains(&wild.admitted()));
    assert!((0.0..=1.0).contains(&after(&law, wild, f64::NEG_INFINITY, 60).admitted()));
}

#[test]
fn demand_that_is_known_to_fit_is_admitted_at_once() {
    let law = ControlLaw::default();
    let shed = after(&law, LawState::default(), 1.5, 40);
    assert!(shed.admitted() < 0.1);
    assert_eq!(law.open(shed, 0.1, 0.9).admitted(), 1.0);
    let half = law.open(shed, 0.1, 2.0).admitted();
    assert!((0.4..0.5).contains(&half), "a part of what does not fit: {half}");
    assert_eq!(law.open(shed, 1.0, 0.9), shed, "the process is busy all the same");
    assert_eq!(law.open(shed, f64::NAN, f64::NAN), shed);
}

#[test]
fn demand_is_mistrusted_for_two_minutes_when_overload_comes_back_soon_after_opening() {
    let law = ControlLaw::default();
    let shed = after(&law, LawState::default(), 1.5, 40);
    let again = after(&law, after(&law, law.open(shed, 0.1, 0.5), 0.5, 20), 1.5, 10);
    assert!(again.admitted() < 1.0);
    assert_eq!(law.open(again, 0.1, 0.5), again);
    let quiet = after(&law, again, 1.0, 121);
    assert_eq!(law.open(quiet, 0.1, 0.5).admitted(), 1.0);
    let later = after(&law, after(&law, law.open(shed, 0.1, 0.5), 0.5, 40), 1.5, 10);
    assert_eq!(law.open(later, 0.1, 0.5).admitted(), 1.0, "a new overload is not a mistake");
}

#[test]
fn stripes_law_never_opens_at_once() {
    let law = ControlLaw::STRIPE;
    let shed = after(&law, LawState::default(), 1.0, 160);
    assert_eq!(law.open(shed, 0.0, 0.0), shed);
}

/// In a plant that answers at once, the fraction settles and stays settled, however
/// much too much is offered.
#[test]
fn settles_without_swinging_at_every_overload() {
    let law = ControlLaw::default();
    for offered in [1.3, 2.0, 3.0, 5.0, 10.0, 20.0] {
        let (mut state, mut smooth) = (LawState::default(), 0.0f64);
        let mut track = Vec::new();
        for _ in 0..2400 {
            let raw = (offered * state.admitted()).min(1.5);
            smooth += (raw - smooth) * (1.0 - (-0.25f64).exp());
            state = law.step(state, smooth, 0.0, TICK);
            track.push(state.admitted() * offered);
        }
        let settled = &track[800..];
        let low = settled.iter().copied().fold(f64::MAX, f64::min);
        let high = settled.iter().copied().fold(0.0, f64::max);
        assert!(low > 0.95 && high < 1.2 && high - low < 0.05, "{offered}: {low} to {high}");
    }
}

proptest! {
    #[test]
    fn the_fraction_stays_a_fraction_and_moves_no_faster_than_the_law_says(
        signals in prop::collection::vec((0.0..2.0f64, 0.0..0.5f64, 0u64..3_000), 1..300),
    ) {
        for law in [ControlLaw::default(), ControlLaw::STRIPE] {
            let mut state = LawState::default();
            for (utilization, floor, millis) in &signals {
                let passed = Nanos::from_millis(*millis).min(law.step_max);
                let next = law.step(state, *utilization, *floor, passed);
                prop_assert!((0.0..=1.0).contains(&next.admitted()));
                prop_assert!((1.0..=RESTORE_SLOWER_MAX).contains(&next.restore_slower()));
                let (fall, rise) = match law.change {
                    Change::ByFactor { shed, restore } => (shed, restore),
                    Change::ByAmount { full } => (full, full),
                };
                let moved = next.admitted() - state.admitted();
                let completes = next.admitted() == 1.0 && state.admitted() >= COMPLETE_FROM;
                prop_assert!(-moved <= ratio(passed, fall) + 1e-12);
                prop_assert!(completes || moved <= ratio(passed, rise) + 1e-12);
                state = next;
            }
        }
    }

    #[test]
    fn opening_never_admits_less_and_admits_no_more_than_fits(
        warm in prop::collection::vec(0.0..2.0f64, 0..100),
        utilization in 0.0..2.0f64,
        demand in 0.0..20.0f64,
    ) {
        let law = ControlLaw::default();
        let state = warm.iter().fold(LawState::default(), |state, signal| law.step(state, *signal, 0.0, TICK));
        let open = law.open(state, utilization, demand);
        prop_assert!((state.admitted()..=1.0).contains(&open.admitted()));
        prop_assert!(open == state || open.admitted() * demand < 0.97);
    }

    #[test]
    fn more_load_never_admits_more(
        warm in prop::collection::vec(0.0..2.0f64, 0..100),
        low in 0.0..2.0f64,
        more in 0.0..1.0f64,
    ) {
        let law = ControlLaw::default();
        let state = warm.iter().fold(LawState::default(), |state, signal| law.step(state, *signal, 0.0, TICK));
        let less_loaded = law.step(state, low, 0.0, TICK);
        let more_loaded = law.step(state, low + more, 0.0, TICK);
        prop_assert!(more_loaded.admitted() <= less_loaded.admitted());
    }
}
