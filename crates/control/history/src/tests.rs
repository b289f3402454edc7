use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_800_000_000;

fn history() -> History {
    let series = vec![("admitted", SeriesKind::Rate), ("queue", SeriesKind::Gauge)];
    History::new(HistorySettings::new(series))
}

fn refused(identity: u64, refused: u64) -> LimitReading {
    LimitReading { identity, total: Counts { refused, ..Counts::default() }, in_shadow: false }
}

#[test]
fn rates_are_per_second_and_gauges_are_maxima_in_every_step() {
    let mut history = history();
    for second in 0..=60 {
        history.record(NOW + second, &[second * 6, second % 10], []);
    }
    let fine = history.series(&["admitted", "queue"], NOW + 51, 1);
    assert_eq!((fine.step, fine.times.len()), (1, 10));
    assert_eq!(fine.values[0], [Some(6.0); 10]);
    assert_eq!(fine.values[1][8], Some(9.0));
    let coarse = history.series(&["queue", "nonsense", "admitted"], NOW, 20);
    assert_eq!((coarse.step, &*coarse.names), (20, &["queue", "admitted"][..]));
    assert_eq!(coarse.values[0][0], Some(9.0));
    assert_eq!(coarse.values[1][1], Some(6.0));
}

#[test]
fn a_gap_in_the_readings_has_no_values() {
    let mut history = history();
    history.record(NOW, &[0, 1], []);
    history.record(NOW + 1, &[5, 1], []);
    history.record(NOW + 5, &[9, 2], []);
    let columns = history.series(&["admitted", "queue"], NOW, 1);
    assert_eq!(columns.values[0], [None, Some(5.0), None, None, None, Some(4.0)]);
    assert_eq!(columns.values[1][2..5], [None; 3]);
}

#[test]
fn an_answer_has_at_most_the_maximum_of_points() {
    let mut history = history();
    for step in 0..2_160 {
        history.record(NOW + step * 10, &[step, 0], []);
    }
    let columns = history.series(&["admitted"], 0, 10);
    assert!(columns.times.len() <= POINTS_MAX, "{}", columns.times.len());
    assert!(columns.times.is_sorted());
}

#[test]
fn days_and_hours_move_on_and_old_ones_are_forgotten() {
    let mut history = history();
    history.record(NOW, &[0, 0], [refused(7, 4)]);
    history.record(NOW + DAY, &[0, 0], [refused(7, 5)]);
    let view = history.limit(7).unwrap();
    assert_eq!((view.days[0].refused, view.days[1].refused), (1, 4));
    assert_eq!((view.hours[0].refused, view.hours[1].refused), (1, 0));
    history.record(NOW + 14 * DAY, &[0, 0], [refused(7, 5)]);
    let days: Vec<u32> = history.limit(7).unwrap().days.iter().map(|day| day.refused).collect();
    assert_eq!(days[13], 1, "{days:?}");
    assert_eq!(days.iter().sum::<u32>(), 1);
}

#[test]
fn the_last_hour_of_a_busy_limit_is_exact() {
    let mut history = history();
    for minute in 0..120 {
        history.record(NOW + minute * 60, &[0, 0], [refused(7, minute)]);
    }
    let view = history.limit(7).unwrap();
    assert_eq!(view.last_hour.refused, 60);
    assert_eq!(view.fine().iter().filter(|step| step.counts.refused > 0).count(), 60);
}

#[test]
fn a_clock_that_is_set_back_loses_seconds_but_no_days() {
    let mut history = history();
    history.record(NOW, &[0, 0], [refused(7, 4)]);
    history.record(NOW - DAY, &[1, 0], [refused(7, 6)]);
    history.record(NOW - DAY + 1, &[3, 0], [refused(7, 7)]);
    assert_eq!(history.limit(7).unwrap().days[0].refused, 7);
    let columns = history.series(&["admitted"], 0, 1);
    assert_eq!(columns.times, [NOW - DAY, NOW - DAY + 1]);
    // A small step back is a late reading.
    history.record(NOW - DAY, &[9, 0], [refused(7, 9)]);
    assert_eq!(history.last(), Some(NOW - DAY + 1));
}

#[test]
fn a_restarted_counter_begins_from_zero() {
    let mut history = history();
    history.record(NOW, &[100, 0], [refused(7, 100)]);
    history.record(NOW + 1, &[3, 0], [refused(7, 3)]);
    assert_eq!(history.limit(7).unwrap().days[0].refused, 103);
    assert_eq!(history.series(&["admitted"], 0, 1).values[0][1], Some(3.0));
}

#[test]
fn ten_thousand_limits_fit_the_default_budget_with_all_their_rings() {
    let mut history = history();
    for second in 0..3 {
        let limits = (0..10_000).map(|identity| refused(identity, second * (identity + 1)));
        history.record(NOW + second * 60, &[0, 0], limits);
    }
    assert!(history.bytes() <= 8 << 20, "{} bytes", history.bytes());
    assert_eq!(history.limits_summed(), 0);
    assert_eq!(history.limit(9_999).unwrap().days[0].refused, 20_000);
    assert!(!history.limit(9_999).unwrap().fine().is_empty());
}

#[test]
fn limits_beyond_the_budget_are_summed_and_removed_ones_make_room() {
    let settings = HistorySettings { budget_bytes: 100_000, ..HistorySettings::new(Vec::new()) };
    let mut history = History::new(settings);
    for second in 0..3 {
        let limits = (0..10_000).map(|identity| refused(identity, second));
        history.record(NOW + second, &[], limits);
    }
    assert!(history.bytes() <= 100_000, "{} bytes", history.bytes());
    let summed = history.limits_summed();
    assert!(summed > 9_000);
    assert_eq!(u64::from(history.others().days[0].refused), summed * 2);
    for second in 0..200 {
        history.record(NOW + 3 + second, &[], [refused(77_777, second)]);
    }
    assert!(history.limit(77_777).is_some() && history.limit(1).is_none());
}

#[test]
fn days_survive_as_bytes_and_go_on_counting() {
    let mut before = history();
    before.record(NOW, &[0, 0], [refused(7, 4)]);
    let shadow = LimitReading { in_shadow: true, ..refused(8, 2) };
    before.record(NOW + 1, &[0, 0], [refused(7, 4), shadow]);
    let bytes = before.encode();
    let mut after = History::decode(before.settings.clone(), &bytes).unwrap();
    let shadow = LimitReading { in_shadow: true, ..refused(8, 0) };
    after.record(NOW + DAY, &[0, 0], [refused(7, 1), shadow]);
    let view = after.limit(7).unwrap();
    assert_eq!((view.days[0].refused, view.days[1].refused, view.first_seen), (1, 4, NOW));
    assert_eq!(after.limit(8).unwrap().shadow_since, Some(NOW + 1));
}

#[test]
fn foreign_old_and_damaged_bytes_are_told_apart() {
    let mut history = history();
    history.record(NOW, &[0, 0], [refused(7, 4)]);
    let bytes = history.encode();
    let settings = history.settings.clone();
    let error = |bytes: &[u8]| History::decode(settings.clone(), bytes).unwrap_err();
    assert_eq!(error(b""), HistoryFileError::Foreign);
    assert_eq!(error(b"{\"json\": true}     "), HistoryFileError::Foreign);
    let mut other = bytes.clone();
    other[16] = 9;
    assert_eq!(error(&other), HistoryFileError::Version { version: 9 });
    for length in 20..bytes.len() {
        assert_eq!(error(&bytes[..length]), HistoryFileError::Damaged, "{length} bytes");
    }
    for index in 20..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 0x40;
        assert_eq!(error(&changed), HistoryFileError::Damaged, "byte {index}");
    }
}

proptest! {
    /// The days of a limit are those that a plain list of events has.
    #[test]
    fn days_are_those_of_a_plain_list(steps in vec((0_u64..200_000, 0_u64..9), 1..60)) {
        let mut history = history();
        let (mut now, mut total) = (NOW, 0);
        let mut events = Vec::new();
        for (passed, hits) in steps {
            now += passed + 1;
            total += hits;
            events.push((now / DAY, hits));
            history.record(now, &[0, 0], [refused(7, total)]);
        }
        let view = history.limit(7).unwrap();
        for (back, day) in view.days.iter().enumerate() {
            let number = now / DAY - u64::try_from(back).unwrap();
            let plain: u64 =
                events.iter().filter(|(day, _)| *day == number).map(|(_, hits)| hits).sum();
            prop_assert_eq!(u64::from(day.refused), plain, "{} days ago", back);
        }
    }

    /// No bytes make the reader panic.
    #[test]
    fn any_bytes_are_read_or_rejected(mut bytes in vec(any::<u8>(), 0..400), whole in any::<bool>()) {
        if whole {
            let mut head = history().encode();
            head.extend(&bytes);
            bytes = head;
        }
        let _ = History::decode(HistorySettings::new(Vec::new()), &bytes);
    }
}
