//! The history of each counter since its last cut.
//!
//! A history is cut where a promise starts over: when the limit's terms change, and when the clock
//! steps back by more than a late reading explains. It is also cut where the window of a late
//! reading is unknown, and where the store may have dropped an idle counter before a late reading.
//! Usage before a cut can only lower what is admitted after it, so every bound holds after the
//! cut.

use std::collections::BTreeMap;

use crate::written_rules::{Kind, Subject, Terms};

/// One charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// The reading of the clock.
    pub(crate) at: u64,
    /// When it counts: a late reading counts as of the latest use.
    pub(crate) counted_at: u64,
    pub(crate) cost: u64,
    /// The delay in the answer.
    pub(crate) delay: u64,
    /// Whether only the soft allowance admitted it.
    pub(crate) soft: bool,
}

/// Slots in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldSlot {
    /// The permit that holds them.
    pub(crate) permit: u64,
    pub(crate) count: u64,
    /// False after a cut: another algorithm does not keep it.
    pub(crate) certain: bool,
}

/// The history of one counter since its last cut.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    pub(crate) terms: Terms,
    pub(crate) admissions: Vec<Admission>,
    pub(crate) held: Vec<HeldSlot>,
    /// When the history was cut, or began.
    pub(crate) since: u64,
    /// The latest instant that the counter has seen since then.
    pub(crate) latest: u64,
    /// The latest instant of all. After a step back, usage there may count again when the clock
    /// returns to it.
    pub(crate) furthest: u64,
    /// Whether the counter was unused at the start, so that the history is complete.
    pub(crate) whole: bool,
    /// Whether a reading came late since the last cut.
    pub(crate) late: bool,
    /// The number of the clock's peaks before the last use.
    pub(crate) peaks_passed: usize,
}

impl Track {
    /// The history of an unused counter.
    pub(crate) const fn unused(terms: Terms, now: u64) -> Self {
        Track {
            terms,
            admissions: Vec::new(),
            held: Vec::new(),
            since: now,
            latest: now,
            furthest: now,
            whole: true,
            late: false,
            peaks_passed: 0,
        }
    }

    /// Records a use of the counter under these terms, and cuts the history where necessary.
    /// `peaks` are the instants from which the clock stepped back.
    pub(crate) fn look(&mut self, terms: Terms, now: u64, peaks: &[u64]) {
        let stepped_back = now.saturating_add(terms.lag_max()) < self.latest;
        let unclear = now < self.latest && self.counts_by_window() && !self.used_at_latest();
        let new_peaks = peaks.get(self.peaks_passed..).unwrap_or_default();
        let ahead = new_peaks.iter().copied().max().unwrap_or(0);
        let unclear = unclear || (now < ahead && !self.outlives(ahead));
        self.peaks_passed = peaks.len();
        if terms != self.terms || now < self.latest {
            self.held.iter_mut().for_each(|held| held.certain = false);
        }
        if terms != self.terms || stepped_back || unclear {
            self.terms = terms;
            self.admissions.clear();
            self.since = now;
            self.latest = now;
            self.whole = false;
            self.late = false;
        } else if now >= self.furthest.saturating_add(terms.idle_after()) {
            self.admissions.clear();
            self.whole = true;
            self.late = false;
        }
        self.late |= now < self.latest;
        self.latest = self.latest.max(now);
        self.furthest = self.furthest.max(now);
    }

    const fn counts_by_window(&self) -> bool {
        matches!(self.terms.kind, Kind::FixedWindow { .. } | Kind::SlidingWindow { .. })
    }

    /// Whether the latest use charged something. If not, the window of a late reading depends on
    /// what the store kept.
    fn used_at_latest(&self) -> bool {
        self.admissions.last().is_some_and(|last| last.counted_at == self.latest)
    }

    /// Whether the last charge alone kept the counter in use until this instant. If not, the store
    /// may have dropped it, and a late reading finds it unused.
    fn outlives(&self, instant: u64) -> bool {
        let Some(last) = self.admissions.last() else { return false };
        let passed = u128::from(instant.saturating_sub(last.counted_at));
        match self.terms.kind {
            Kind::TokenBucket { amount, period, .. } | Kind::LeakyBucket { amount, period, .. } => {
                passed * u128::from(amount) < u128::from(last.cost) * u128::from(period)
            }
            Kind::FixedWindow { window, .. } => {
                self.counts_own_window() && window.number(instant) == window.number(last.counted_at)
            }
            Kind::SlidingLog { period, .. } | Kind::SlidingWindow { period, .. } => {
                passed < u128::from(period)
            }
            Kind::Concurrency { .. } => false,
        }
    }

    /// Records a charge.
    pub(crate) fn charge(&mut self, now: u64, cost: u64, delay: u64, soft: bool) {
        if cost > 0 {
            let counted_at = self.admissions.last().map_or(now, |last| last.counted_at.max(now));
            self.admissions.push(Admission { at: now, counted_at, cost, delay, soft });
        }
    }

    /// Records the slots of a permit.
    pub(crate) fn hold(&mut self, permit: u64, count: u64) {
        if matches!(self.terms.kind, Kind::Concurrency { .. }) && count > 0 {
            self.held.push(HeldSlot { permit, count, certain: true });
        }
    }

    /// Records that a permit returned its slots, under the terms of its admission. Slots of a hard
    /// limit leave no record of a soft allowance.
    pub(crate) fn give_back(&mut self, permit: u64, taken_under: Terms, now: u64) {
        self.held.retain(|held| held.permit != permit);
        self.whole &= taken_under.soft.is_some() == self.terms.soft.is_some();
        if now < self.latest {
            self.held.iter_mut().for_each(|held| held.certain = false);
        }
        self.late |= now < self.latest;
        self.latest = self.latest.max(now);
        self.furthest = self.furthest.max(now);
    }

    /// Whether a fixed window's count belongs to the present window. After a cut it may belong to
    /// another one until that ends.
    pub(crate) fn counts_own_window(&self) -> bool {
        let Kind::FixedWindow { window, .. } = self.terms.kind else { return true };
        let settled = self.since.saturating_add(2 * self.terms.period());
        self.whole || window.number(self.latest) > window.number(settled)
    }

    /// Slots that are certainly in use.
    pub(crate) fn surely_held(&self) -> u64 {
        self.held.iter().filter(|held| held.certain).map(|held| held.count).sum()
    }

    /// Slots in use, if certain.
    pub(crate) fn exactly_held(&self) -> Option<u64> {
        self.held.iter().all(|held| held.certain).then(|| self.surely_held())
    }
}

/// The histories of all counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(BTreeMap<Subject, Track>);

impl History {
    /// The history of a counter that is used now.
    pub(crate) fn look(
        &mut self,
        subject: &Subject,
        terms: Terms,
        now: u64,
        peaks: &[u64],
    ) -> &mut Track {
        if !self.0.contains_key(subject) {
            let track = Track { peaks_passed: peaks.len(), ..Track::unused(terms, now) };
            self.0.insert(subject.clone(), track);
        }
        let track = self.0.get_mut(subject).expect("it was just put there");
        track.look(terms, now, peaks);
        track
    }

    /// Records that a permit returned its slots of a counter.
    pub(crate) fn give_back(&mut self, subject: &Subject, permit: u64, terms: Terms, now: u64) {
        if let Some(track) = self.0.get_mut(subject) {
            track.give_back(permit, terms, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    const NOW: u64 = 1_700_000_000 * SECOND;

    fn log(limit: u64) -> Terms {
        let kind = Kind::SlidingLog { limit, period: 10 * SECOND, count_refused: false };
        Terms { kind, soft: None }
    }

    fn used(terms: Terms) -> Track {
        let mut track = Track::unused(terms, NOW);
        track.charge(NOW, 1, 0, false);
        track
    }

    #[test]
    fn other_terms_cut_the_history() {
        let mut track = used(log(5));
        track.look(log(5), NOW, &[]);
        assert_eq!(track.admissions.len(), 1);
        track.look(log(6), NOW, &[]);
        assert!(track.admissions.is_empty() && !track.whole);
    }

    #[test]
    fn a_step_back_cuts_the_history_and_a_late_reading_does_not() {
        let mut track = used(log(5));
        track.look(log(5), NOW - SECOND, &[NOW]);
        assert!(track.late && track.admissions.len() == 1);
        track.charge(NOW - SECOND, 1, 0, false);
        assert_eq!(track.admissions[1].counted_at, NOW);
        track.look(log(5), NOW - SECOND - 1, &[NOW]);
        assert!(track.admissions.is_empty() && !track.late);
    }

    #[test]
    fn a_late_reading_after_the_counter_may_have_been_dropped_cuts_the_history() {
        let mut track = used(log(5));
        track.look(log(5), NOW + 9 * SECOND + 1, &[NOW + 10 * SECOND]);
        assert!(track.admissions.is_empty());
        let mut track = used(log(5));
        track.look(log(5), NOW + 9 * SECOND, &[NOW + 10 * SECOND - 1]);
        assert_eq!(track.admissions.len(), 1);
    }

    #[test]
    fn a_rested_counter_has_its_whole_history_again() {
        let mut track = used(log(5));
        track.look(log(6), NOW, &[]);
        track.look(log(6), NOW + log(6).idle_after(), &[]);
        assert!(track.whole);
    }

    #[test]
    fn what_was_used_before_a_step_back_is_forgotten_once_the_clock_is_past_it_again() {
        let mut track = used(log(5));
        let idle = log(5).idle_after();
        track.look(log(5), NOW - 5 * idle, &[NOW]);
        track.look(log(5), NOW - 3 * idle, &[NOW]);
        assert!(!track.whole, "it may remember what was used at the peak");
        track.look(log(5), NOW + idle, &[NOW]);
        assert!(track.whole);
    }

    #[test]
    fn slots_are_held_until_given_back_and_unsure_after_a_cut() {
        let slots = |limit| Terms {
            kind: Kind::Concurrency { limit, time_to_live: 10 * SECOND },
            soft: None,
        };
        let mut track = Track::unused(slots(5), NOW);
        track.hold(1, 2);
        track.hold(2, 1);
        assert_eq!(track.exactly_held(), Some(3));
        track.give_back(1, slots(5), NOW + SECOND);
        assert_eq!(track.exactly_held(), Some(1));
        track.look(slots(5), NOW + 30 * SECOND, &[]);
        assert_eq!(track.exactly_held(), Some(1), "also after three times its time to live");
        track.look(slots(4), NOW + 31 * SECOND, &[]);
        assert_eq!((track.exactly_held(), track.surely_held()), (None, 0));
        track.give_back(2, slots(5), NOW + 31 * SECOND);
        assert_eq!(track.exactly_held(), Some(0));
    }
}
