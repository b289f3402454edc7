//! The begin and the end of fixed windows.

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Zoned};

use crate::period::Period;
use crate::time::{Nanos, Timestamp};

/// Seconds in a day.
const DAY: u64 = 86_400;

/// How fixed windows follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// Windows of one length, counted from the Unix epoch: a minute starts at
    /// second zero, a week on a Thursday, in UTC.
    Every(Period),
    /// Days, weeks, months or years of a time zone's calendar.
    Calendar(CalendarUnit, TimeZone),
}

/// A unit of the calendar; its length varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From one midnight to the next: 23, 24 or 25 hours.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first to the first.
    Month,
    /// From the first of January to the next.
    Year,
}

impl CalendarUnit {
    /// An upper bound of the length, including daylight saving.
    pub const fn longest(self) -> Nanos {
        let (_, longest) = self.days();
        // A zone that changes its offset may add up to a day (Samoa, 2011).
        Nanos::from_secs((longest + 1) * DAY)
    }

    /// The usual length: 24 hours, 7, 30 or 365 days.
    pub(crate) const fn nominal(self) -> Nanos {
        let (usual, _) = self.days();
        Nanos::from_secs(usual * DAY)
    }

    /// The usual and the largest number of days.
    const fn days(self) -> (u64, u64) {
        match self {
            CalendarUnit::Day => (1, 1),
            CalendarUnit::Week => (7, 7),
            CalendarUnit::Month => (30, 31),
            CalendarUnit::Year => (365, 366),
        }
    }

    /// The first day of the unit that contains a day.
    fn first_day(self, date: Date) -> Option<Date> {
        match self {
            CalendarUnit::Day => Some(date),
            CalendarUnit::Week => {
                let into = date.weekday().since(Weekday::Monday);
                date.checked_sub(Span::new().days(into)).ok()
            }
            CalendarUnit::Month => Some(date.first_of_month()),
            CalendarUnit::Year => Some(date.first_of_year()),
        }
    }

    /// The first start of a unit after `now`, if the calendar reaches that far.
    fn next_start(self, now: &Zoned) -> Option<Zoned> {
        let first = self.first_day(now.date())?;
        let step = match self {
            CalendarUnit::Day => Span::new().days(1),
            CalendarUnit::Week => Span::new().weeks(1),
            CalendarUnit::Month => Span::new().months(1),
            CalendarUnit::Year => Span::new().years(1),
        };
        let midnight = first.checked_add(step).ok()?.at(0, 0, 0, 0);
        // A midnight that the zone skips is the instant that it skips to. A midnight that occurs
        // twice starts the unit twice: clocks set back from 00:01 to 23:01 are in the old day
        // again.
        let midnight = now.time_zone().to_ambiguous_zoned(midnight);
        let first = midnight.clone().compatible().ok()?;
        if first > *now { Some(first) } else { midnight.later().ok().filter(|second| second > now) }
    }
}

impl Window {
    /// The begin of the window that contains `now`.
    pub fn begin(&self, now: Timestamp) -> Timestamp {
        let of_multiple = |length| Timestamp::from_nanos(now.as_nanos() - now.as_nanos() % length);
        match self {
            Window::Every(period) => of_multiple(period.as_nanos()),
            Window::Calendar(unit, zone) => calendar_begin(*unit, zone, now)
                .unwrap_or_else(|| of_multiple(unit.longest().get())),
        }
    }

    /// The end of the window that contains `now`: after `now`, unless that is the last instant.
    pub fn end(&self, now: Timestamp) -> Timestamp {
        match self {
            Window::Every(period) => end_of_multiple(now, period.as_nanos()),
            Window::Calendar(unit, zone) => calendar_end(*unit, zone, now)
                .unwrap_or_else(|| end_of_multiple(now, unit.longest().get())),
        }
    }

    /// The end of the window that `now` counts in, given the end of a known window that is not
    /// over.
    ///
    /// A late reading, just before a window that another reading has opened already, counts in that
    /// window: as a step back it would end the window and drop its count. The calendar is only
    /// consulted if the known end is too far away to be the present window's.
    #[inline]
    pub(crate) fn end_given(&self, known: Timestamp, now: Timestamp) -> Timestamp {
        match self {
            Window::Every(period) => {
                let end = end_of_multiple(now, period.as_nanos());
                let late =
                    known.since(end) == period.as_span() && end.since(now) <= period.lag_max();
                if late { known } else { end }
            }
            Window::Calendar(unit, _) if known > now && known.since(now) <= unit.longest() => known,
            Window::Calendar(..) => self.end(now),
        }
    }
}

#[inline]
fn end_of_multiple(now: Timestamp, length: u64) -> Timestamp {
    let begun = now.as_nanos() - now.as_nanos() % length;
    Timestamp::from_nanos(begun.saturating_add(length))
}

fn calendar_begin(unit: CalendarUnit, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    let zoned = zoned(now, zone)?;
    let midnight = zone.to_ambiguous_zoned(unit.first_day(zoned.date())?.at(0, 0, 0, 0));
    // The second midnight of a day that begins twice, if it has passed.
    let (first, second) = (midnight.clone().compatible().ok()?, midnight.later().ok()?);
    let begun = if second <= zoned { second } else { first };
    instant(&begun)
}

fn calendar_end(unit: CalendarUnit, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    instant(&unit.next_start(&zoned(now, zone)?)?)
}

fn zoned(now: Timestamp, zone: &TimeZone) -> Option<Zoned> {
    let now = jiff::Timestamp::from_nanosecond(i128::from(now.as_nanos())).ok()?;
    Some(now.to_zoned(zone.clone()))
}

fn instant(zoned: &Zoned) -> Option<Timestamp> {
    u64::try_from(zoned.timestamp().as_nanosecond()).ok().map(Timestamp::from_nanos)
}

#[cfg(test)]
mod tests;
