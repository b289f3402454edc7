//! Counts over time, in bounded memory: of the whole service and of each limit.
//!
//! [`History`] takes one reading a second of counters that others keep, so that decisions pay nothing for it. It stores
//! the growth of each counter in rings of three resolutions, under one budget in bytes:
//!
//! | Of | Step and span |
//! |---|---|
//! | the service | 1 second for 15 minutes, 10 seconds for 6 hours |
//! | the 256 busiest limits | 10 seconds for an hour |
//! | every limit | this hour and the hour before, 14 days |
//!
//! Limits beyond the budget are summed in one row. The hours and days of limits survive a restart as bytes
//! ([`History::encode`], [`History::decode`]); reading and writing files is left to the program. Time is passed in, in
//! seconds since 1970 (UTC).
//!
//! ```
//! use tidegate_history::{Counts, History, HistorySettings, LimitReading, SeriesKind};
//!
//! let settings = HistorySettings::new(vec![("admitted", SeriesKind::Rate)]);
//! let mut history = History::new(settings);
//! for second in 0..10 {
//!     let limit = LimitReading {
//!         identity: 7,
//!         total: Counts { refused: 3 * second, ..Counts::default() },
//!         in_shadow: false,
//!     };
//!     history.record(1_800_000_000 + second, &[second * 5], [limit]);
//! }
//! let limit = history.limit(7).unwrap();
//! assert_eq!(limit.days[0].refused, 27);
//! ```

mod counts;
mod file;
mod limits;
mod ring;
mod series;

pub use counts::{Counts, SpanCounts};
pub use file::HistoryFileError;
pub use limits::{DAYS, FineStep, LimitReading, LimitView};
pub use series::{Columns, POINTS_MAX, SeriesKind};

use limits::LimitHistories;
use series::ServiceHistory;

/// Seconds of a day.
pub const DAY: u64 = 86_400;
/// Seconds of an hour.
pub const HOUR: u64 = 3_600;
/// A clock that steps back by more than this many seconds was set: rings of seconds begin again.
const STEP_BACK_MAX: u64 = 60;

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// The most bytes of all rings.
    pub budget_bytes: usize,
    /// The series of the service, by name.
    pub series: Vec<(&'static str, SeriesKind)>,
}

impl HistorySettings {
    /// These series, and a budget of 8 MiB.
    pub const fn new(series: Vec<(&'static str, SeriesKind)>) -> Self {
        HistorySettings { budget_bytes: 8 << 20, series }
    }
}

/// Counts of the service and of its limits over time.
#[derive(Debug)]
pub struct History {
    settings: HistorySettings,
    service: ServiceHistory,
    limits: LimitHistories,
    last: Option<u64>,
}

impl History {
    /// Nothing yet.
    pub fn new(settings: HistorySettings) -> Self {
        let service = ServiceHistory::new(&settings.series);
        let left = settings.budget_bytes.saturating_sub(service.bytes());
        History { service, limits: LimitHistories::new(left), settings, last: None }
    }

    /// Takes a reading: the value of each series of the settings (a counter's total, or a gauge), and the totals of
    /// every limit. At most one reading counts in each second.
    pub fn record(
        &mut self,
        now: u64,
        service: &[u64],
        limits: impl IntoIterator<Item = LimitReading>,
    ) {
        match self.last {
            Some(last) if now.saturating_add(STEP_BACK_MAX) < last => {
                self.service.restart();
                self.limits.restart_fine();
            }
            Some(last) if now <= last => return,
            Some(_) | None => {}
        }
        self.last = Some(now);
        self.service.record(now, service);
        self.limits.record(now, limits);
    }

    /// When the last reading was taken.
    pub const fn last(&self) -> Option<u64> {
        self.last
    }

    /// The series of these names since an instant. Steps of less than ten seconds are served for the last 15 minutes.
    /// Unknown names have no column; there are at most [`POINTS_MAX`] points.
    pub fn series(&self, names: &[&str], since: u64, step: u64) -> Columns {
        self.service.columns(names, since, step)
    }

    /// The names of all series.
    pub fn series_names(&self) -> impl Iterator<Item = &'static str> {
        self.settings.series.iter().map(|(name, _)| *name)
    }

    /// The history of a limit, by its identity.
    pub fn limit(&self, identity: u64) -> Option<LimitView<'_>> {
        self.limits.view(identity, self.last.unwrap_or(0))
    }

    /// The limits that the budget has no room for, summed.
    pub fn others(&self) -> LimitView<'_> {
        self.limits.others(self.last.unwrap_or(0))
    }

    /// How many limits are in the sum of [`History::others`].
    pub const fn limits_summed(&self) -> u64 {
        self.limits.summed()
    }

    /// The bytes in use.
    pub fn bytes(&self) -> usize {
        self.service.bytes() + self.limits.bytes()
    }

    /// The hours and days of all limits, for a file.
    pub fn encode(&self) -> Vec<u8> {
        file::encode(&self.limits, self.last.unwrap_or(0))
    }

    /// A history that goes on from [`History::encode`].
    ///
    /// # Errors
    /// When the bytes are not a history, of another version, or damaged.
    pub fn decode(settings: HistorySettings, bytes: &[u8]) -> Result<Self, HistoryFileError> {
        let mut history = History::new(settings);
        file::decode(&mut history.limits, bytes)?;
        Ok(history)
    }
}

#[cfg(test)]
mod tests;
