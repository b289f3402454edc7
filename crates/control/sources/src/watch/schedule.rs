//! When to load the texts again.
//!
//! A change starts a quiet time and further changes restart it, so that the writes of an editor
//! or a copy of many files cause one load. A directory that keeps changing is loaded after a
//! maximum delay. Between changes the texts are polled slowly, since events can be lost and some
//! file systems have none.
//!
//! Pure: times are durations since a start, and callers pass `now`.

use std::time::Duration;

use tidegate_macros::defaults;

/// The shortest time between two polls, whatever the settings.
const POLL_MIN: Duration = Duration::from_millis(10);

defaults! {
    /// How a watch detects changes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WatchSettings {
        /// The quiet time after a change before the texts are read. Default: 200 ms.
        pub quiet: Duration = Duration::from_millis(200),
        /// The longest delay by a directory that keeps changing. Default: 2 s.
        pub postponed_max: Duration = Duration::from_secs(2),
        /// The time between two polls. Default: 30 s.
        pub poll: Duration = Duration::from_secs(30),
        /// The time between two polls while there are no events. Default: 5 s.
        pub poll_without_events: Duration = Duration::from_secs(5),
        /// Whether file system events are used. Default: yes.
        pub detection: ChangeDetection,
    }
}

/// How changes are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeDetection {
    /// By file system events and a slow poll.
    #[default]
    Events,
    /// By polling only, for file systems without events.
    Polling,
}

/// Why the texts are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A reload was requested.
    Asked,
    /// A change, and the quiet time after it.
    Changed,
    /// The time for a poll.
    Poll,
}

/// Changes and requests since the last load.
#[derive(Debug)]
pub(super) struct Schedule {
    settings: WatchSettings,
    poll: Duration,
    asked: bool,
    /// The first and the last change since the last load.
    changes: Option<(Duration, Duration)>,
    looked: Duration,
}

impl Schedule {
    pub(super) fn new(settings: WatchSettings, now: Duration) -> Self {
        let poll = settings.poll.max(POLL_MIN);
        Schedule { settings, poll, asked: false, changes: None, looked: now }
    }

    /// Notes a change.
    pub(super) fn changed(&mut self, now: Duration) {
        let (first, _) = self.changes.unwrap_or((now, now));
        self.changes = Some((first, now));
    }

    /// Notes a requested reload.
    pub(super) const fn asked(&mut self) {
        self.asked = true;
    }

    /// Sets whether events work.
    pub(super) fn set_detection(&mut self, detection: ChangeDetection) {
        let poll = match detection {
            ChangeDetection::Events => self.settings.poll,
            ChangeDetection::Polling => self.settings.poll_without_events.min(self.settings.poll),
        };
        self.poll = poll.max(POLL_MIN);
    }

    /// When the next load is due.
    pub(super) fn due_at(&self) -> Duration {
        if self.asked {
            return Duration::ZERO;
        }
        let poll = self.looked.saturating_add(self.poll);
        self.quiet_at().map_or(poll, |quiet| quiet.min(poll))
    }

    /// Why a load is due, if one is.
    pub(super) fn due(&self, now: Duration) -> Option<Reason> {
        if self.asked {
            Some(Reason::Asked)
        } else if self.quiet_at().is_some_and(|quiet| quiet <= now) {
            Some(Reason::Changed)
        } else {
            (self.due_at() <= now).then_some(Reason::Poll)
        }
    }

    /// Notes a load.
    pub(super) const fn looked(&mut self, now: Duration) {
        self.asked = false;
        self.changes = None;
        self.looked = now;
    }

    fn quiet_at(&self) -> Option<Duration> {
        let (first, last) = self.changes?;
        let quiet = last.saturating_add(self.settings.quiet);
        Some(quiet.min(first.saturating_add(self.settings.postponed_max)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn timing() -> Schedule {
        Schedule::new(WatchSettings::default(), ms(0))
    }

    #[test]
    fn a_change_is_looked_at_when_it_has_been_quiet() {
        let mut timing = timing();
        timing.changed(ms(1000));
        assert_eq!(timing.due_at(), ms(1200));
        assert_eq!(timing.due(ms(1199)), None);
        assert_eq!(timing.due(ms(1200)), Some(Reason::Changed));
    }

    #[test]
    fn further_changes_put_the_look_off() {
        let mut timing = timing();
        timing.changed(ms(1000));
        timing.changed(ms(1150));
        assert_eq!(timing.due(ms(1200)), None);
        assert_eq!(timing.due(ms(1350)), Some(Reason::Changed));
    }

    #[test]
    fn a_directory_that_never_rests_is_looked_at_after_a_while() {
        let mut timing = timing();
        for at in (1000..3000).step_by(100) {
            timing.changed(ms(at));
            assert_eq!(timing.due(ms(at)), None);
        }
        assert_eq!(timing.due(ms(3000)), Some(Reason::Changed));
        timing.looked(ms(3000));
        timing.changed(ms(3050));
        assert_eq!(timing.due_at(), ms(3250));
    }

    #[test]
    fn somebody_who_asks_does_not_wait() {
        let mut timing = timing();
        timing.changed(ms(1000));
        timing.asked();
        assert_eq!(timing.due_at(), ms(0));
        assert_eq!(timing.due(ms(1000)), Some(Reason::Asked));
    }

    #[test]
    fn a_look_answers_everything_before_it() {
        let mut timing = timing();
        timing.changed(ms(1000));
        timing.asked();
        timing.looked(ms(1100));
        assert_eq!(timing.due(ms(1200)), None);
        assert_eq!(timing.due_at(), ms(31_100));
    }

    #[test]
    fn rules_are_polled_when_nothing_happens() {
        let timing = timing();
        assert_eq!(timing.due(ms(29_999)), None);
        assert_eq!(timing.due(ms(30_000)), Some(Reason::Poll));
    }

    #[test]
    fn rules_are_polled_more_often_while_there_are_no_events() {
        let mut timing = timing();
        timing.set_detection(ChangeDetection::Polling);
        assert_eq!(timing.due_at(), ms(5000));
        timing.set_detection(ChangeDetection::Events);
        assert_eq!(timing.due_at(), ms(30_000));
    }

    #[test]
    fn no_setting_makes_it_spin_or_overflow() {
        let zero = WatchSettings { poll: ms(0), ..WatchSettings::default() };
        assert_eq!(Schedule::new(zero, ms(5)).due_at(), ms(15));
        let never = WatchSettings {
            quiet: Duration::MAX,
            postponed_max: Duration::MAX,
            poll: Duration::MAX,
            ..WatchSettings::default()
        };
        let mut timing = Schedule::new(never, ms(5));
        timing.changed(ms(10));
        assert_eq!(timing.due_at(), Duration::MAX);
        assert_eq!(timing.due(ms(1_000_000)), None);
    }
}
