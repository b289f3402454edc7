use jiff::Zoned;
use proptest::prelude::*;

use super::*;
use crate::fixed_window::FixedWindow;
use crate::limit::Limit;
use crate::tests::harness::{Harness, secs};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

fn instant(zoned: &Zoned) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(zoned.timestamp().as_nanosecond()).unwrap())
}

/// An instant such as `2024-03-31T12:00[Europe/Berlin]`.
fn at(text: &str) -> Timestamp {
    instant(&text.parse().unwrap())
}

fn end(unit: CalendarUnit, text: &str) -> Timestamp {
    let zoned: Zoned = text.parse().unwrap();
    Window::Calendar(unit, zoned.time_zone().clone()).end(instant(&zoned))
}

/// The length in seconds of the window that begins at `text`.
fn length(unit: CalendarUnit, text: &str) -> u64 {
    end(unit, text).since(at(text)).get() / 1_000_000_000
}

#[test]
fn a_day_ends_at_the_zones_midnight() {
    assert_eq!(
        end(CalendarUnit::Day, "2024-06-15T14:30[Europe/Berlin]"),
        at("2024-06-16T00:00[Europe/Berlin]")
    );
    assert_eq!(
        end(CalendarUnit::Day, "2024-06-15T23:59:59.999999999[Asia/Kathmandu]"),
        at("2024-06-15T18:15[UTC]")
    );
    assert_eq!(length(CalendarUnit::Day, "2024-06-15T00:00[Asia/Kathmandu]"), DAY);
}

#[test]
fn a_window_begins_where_the_one_before_ended() {
    for text in [
        "2024-06-15T14:30[Europe/Berlin]",
        "2024-03-31T03:30[Europe/Berlin]",
        "2024-10-27T02:30[Europe/Berlin]",
        "2024-01-01T00:00[UTC]",
        "2018-11-04T00:30[America/Sao_Paulo]",
        "2011-12-31T12:00[Pacific/Apia]",
    ] {
        let zoned: Zoned = text.parse().unwrap();
        let now = instant(&zoned);
        let units =
            [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];
        for unit in units {
            let window = Window::Calendar(unit, zoned.time_zone().clone());
            let begin = window.begin(now);
            assert!(begin <= now, "{unit:?} of {text}");
            assert_eq!(window.end(begin), window.end(now), "{unit:?} of {text}");
            let before = Timestamp::from_nanos(begin.as_nanos() - 1);
            assert_eq!(window.end(before), begin, "{unit:?} of {text}");
        }
        let every = Window::Every(Period::HOUR);
        assert_eq!(
            every.begin(now),
            every.end(Timestamp::from_nanos(now.as_nanos() - HOUR * 1_000_000_000))
        );
    }
}

#[test]
fn a_day_is_an_hour_shorter_or_longer_when_the_clocks_change() {
    for (day, hours) in [
        ("2024-03-31T00:00[Europe/Berlin]", 23),
        ("2024-10-27T00:00[Europe/Berlin]", 25),
        ("2024-03-10T00:00[America/New_York]", 23),
        ("2024-11-03T00:00[America/New_York]", 25),
    ] {
        assert_eq!(length(CalendarUnit::Day, day), hours * HOUR, "{day}");
    }
}

#[test]
fn lord_howe_changes_by_half_an_hour() {
    let begins = "2024-10-06T00:00[Australia/Lord_Howe]";
    let ends = "2024-04-07T00:00[Australia/Lord_Howe]";
    assert_eq!(length(CalendarUnit::Day, begins), 23 * HOUR + HOUR / 2);
    assert_eq!(length(CalendarUnit::Day, ends), 24 * HOUR + HOUR / 2);
}

#[test]
fn the_day_that_samoa_skipped_has_no_window() {
    assert_eq!(
        end(CalendarUnit::Day, "2011-12-29T12:00[Pacific/Apia]"),
        at("2011-12-31T00:00[Pacific/Apia]")
    );
    assert_eq!(length(CalendarUnit::Day, "2011-12-29T00:00[Pacific/Apia]"), DAY);
    assert_eq!(length(CalendarUnit::Week, "2011-12-26T00:00[Pacific/Apia]"), 6 * DAY);
    assert_eq!(length(CalendarUnit::Month, "2011-12-01T00:00[Pacific/Apia]"), 30 * DAY);
}

#[test]
fn a_midnight_that_does_not_exist_is_the_instant_the_clocks_skip_to() {
    for (evening, morning) in [
        ("2018-11-03T20:00[America/Sao_Paulo]", "2018-11-04T01:00[America/Sao_Paulo]"),
        ("2022-03-26T20:00[Asia/Beirut]", "2022-03-27T01:00[Asia/Beirut]"),
    ] {
        assert_eq!(end(CalendarUnit::Day, evening), at(morning));
        assert_eq!(length(CalendarUnit::Day, morning), 23 * HOUR);
    }
}

#[test]
fn a_midnight_that_comes_twice_still_lies_ahead() {
    // Clocks went back from 00:01 on the 29th to 23:01 on the 28th.
    let first = at("2006-10-29T00:00-02:30[America/St_Johns]");
    let second = at("2006-10-29T00:00-03:30[America/St_Johns]");
    assert_eq!(second.since(first), secs(HOUR));
    let day = Window::Calendar(CalendarUnit::Day, zone("America/St_Johns"));
    assert_eq!(day.end(at("2006-10-28T22:00[America/St_Johns]")), first);
    for after in [60, 61, 1_800, 3_599] {
        assert_eq!(day.end(first.after(secs(after))), second);
    }
    assert_eq!(day.end(second), at("2006-10-30T00:00[America/St_Johns]"));
}

#[test]
fn a_limit_holds_in_the_hour_that_comes_twice() {
    let day = Window::Calendar(CalendarUnit::Day, zone("America/St_Johns"));
    let mut t = Harness::new(Limit::new(FixedWindow::new(3, day)));
    t.set(at("2006-10-28T23:30-03:30[America/St_Johns]"));
    assert_eq!(t.burst(9), 3);
}

#[test]
fn a_week_starts_on_monday() {
    for now in ["2024-07-01T00:00[Europe/Berlin]", "2024-07-07T23:59[Europe/Berlin]"] {
        assert_eq!(end(CalendarUnit::Week, now), at("2024-07-08T00:00[Europe/Berlin]"));
    }
    let spring = "2024-03-25T00:00[Europe/Berlin]";
    assert_eq!(length(CalendarUnit::Week, spring), 7 * DAY - HOUR);
}

#[test]
fn months_and_years_have_the_calendars_lengths() {
    for (month, days) in [
        ("2023-02-01T00:00[UTC]", 28),
        ("2024-02-01T00:00[UTC]", 29),
        ("2100-02-01T00:00[UTC]", 28),
        ("2024-04-01T00:00[UTC]", 30),
        ("2024-12-01T00:00[UTC]", 31),
    ] {
        assert_eq!(length(CalendarUnit::Month, month), days * DAY, "{month}");
    }
    for (year, days) in [("2023", 365), ("2024", 366), ("2000", 366), ("2100", 365)] {
        let first = format!("{year}-01-01T00:00[America/New_York]");
        assert_eq!(length(CalendarUnit::Year, &first), days * DAY, "{year}");
    }
}

#[test]
fn the_last_instants_that_can_be_named_have_an_end() {
    for unit in UNITS {
        let window = Window::Calendar(unit, zone("Pacific/Apia"));
        assert_eq!(window.end(Timestamp::MAX), Timestamp::MAX);
        assert!(window.end(Timestamp::EPOCH) > Timestamp::EPOCH);
    }
}

#[test]
fn a_count_is_kept_until_its_calendar_window_ends() {
    let day = Window::Calendar(CalendarUnit::Day, zone("Europe/Berlin"));
    let mut t = Harness::new(Limit::new(FixedWindow::new(3, day)));
    t.set(at("2024-10-27T01:00[Europe/Berlin]"));
    assert_eq!(t.burst(9), 3);
    let refused = t.check(1);
    t.assert_honest(1, &refused);
    t.set(at("2024-10-27T23:59:59.999999999[Europe/Berlin]"));
    assert!(t.refuses(1));
    t.set(at("2024-10-28T00:00[Europe/Berlin]"));
    assert_eq!(t.burst(9), 3);
}

#[test]
fn a_step_back_out_of_a_calendar_window_keeps_the_count_and_does_not_freeze() {
    let day = Window::Calendar(CalendarUnit::Day, zone("Europe/Berlin"));
    for (back, longest) in [(1, 2 * DAY), (20 * HOUR, 2 * DAY), (366 * DAY, DAY)] {
        let mut t = Harness::new(Limit::new(FixedWindow::new(3, day.clone())));
        t.set(at("2024-06-15T00:00[Europe/Berlin]"));
        t.spend(3);
        t.step_back(secs(back));
        let refused = t.check(1);
        t.assert_honest(1, &refused);
        assert!(refused.reset_after <= secs(longest), "back by {back} s");
    }
}

const UNITS: [CalendarUnit; 4] =
    [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];

#[test]
fn an_end_lies_ahead_around_every_change_of_every_zone() {
    let from = jiff::Timestamp::from_second(1).unwrap();
    let to = jiff::Timestamp::from_second(2_200_000_000).unwrap();
    let mut seen = 0;
    for name in jiff::tz::db().available() {
        let zone = zone(name.as_str());
        let changes = zone.following(from).map(|change| change.timestamp());
        for change in changes.take_while(|change| *change < to) {
            let change = Timestamp::from_nanos(u64::try_from(change.as_nanosecond()).unwrap());
            let before = Timestamp::from_nanos(change.as_nanos() - 1);
            for now in [before, change, change.after(secs(1_700))] {
                let unit = CalendarUnit::Day;
                let end = Window::Calendar(unit, zone.clone()).end(now);
                assert!(end > now, "{name:?} at {now:?}");
                assert!(end.since(now) <= unit.longest(), "{name:?} at {now:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 10_000, "{seen}");
}

proptest! {
    #[test]
    fn every_instant_of_a_window_has_the_same_end_and_it_lies_ahead(
        now in 0..=17_000_000_000_000_000_000_u64,
        part in 0..=100_u64,
        unit in proptest::sample::select(&UNITS[..]),
        name in proptest::sample::select(vec![
            "UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu",
            "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "Asia/Beirut",
        ]),
    ) {
        let window = Window::Calendar(unit, zone(name));
        let now = Timestamp::from_nanos(now);
        let end = window.end(now);
        prop_assert!(end > now);
        prop_assert!(end.since(now) <= unit.longest());
        let later = now.after(Nanos::new(end.since(now).get() / 101 * part));
        prop_assert_eq!(window.end(later), end);
        prop_assert!(window.end(end) > end);
    }

    #[test]
    fn windows_of_one_length_tile_time(now: u64, length in 1_000_000..=31_622_400_000_000_000_u64) {
        let window = Window::Every(crate::tests::harness::period(Nanos::new(length)));
        let now = Timestamp::from_nanos(now);
        let end = window.end(now);
        prop_assert!(end > now || now == Timestamp::MAX);
        prop_assert!(end.since(now) <= Nanos::new(length));
        prop_assert!(end == Timestamp::MAX || end.as_nanos().is_multiple_of(length));
    }
}
