//! A node's count of an eventual key, as it is reported to a remote.
//!
//! A report carries the *cumulative* count, not the units since the last report, so it can be repeated: the remote
//! remembers the highest count of each node and charges only what is new. Whatever was not confirmed is reported again,
//! and no unit is charged twice. If the remote has lost counts (a failover, a restart without persistence), it charges
//! those that still count from the next report.

use tidegate_algorithms::{CheckInput, Decision, Limit, Nanos, State, Timestamp};

use crate::batch::{Check, Key};

/// A record outlives the counts in it by this, so that no clock error makes a remote forget a count that still matters.
const KEPT_LONGER: Nanos = Nanos::from_secs(60);

/// One node's cumulative count of a key.
#[derive(Clone, Debug)]
pub struct CountReport {
    /// The key.
    pub key: Key,
    /// The limit that the remote applies.
    pub limit: Limit,
    /// The number of this count. A node that drops the key and counts it again starts from 0 under a higher number.
    pub epoch: u64,
    /// Units that the node has admitted since it began to count.
    pub total: u64,
    /// The part of `total` that the remote has confirmed; the first units are confirmed first.
    pub confirmed: u64,
    /// The part of `total` that still counts under the limit; the last units count longest.
    pub current: u64,
    /// How long ago the first unconfirmed unit was admitted.
    pub age: Nanos,
}

/// A remote's record of the reports of one node and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRecord {
    /// The number of the count.
    pub epoch: u64,
    /// The highest total that was reported.
    pub total: u64,
}

/// What a remote has besides the record of the reporting node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Records of other nodes, or no counter: a missing record of this node was lost.
    RecordsOrNothing,
    /// A counter without any record: the records were evicted, and the counter was not.
    OnlyCounter,
}

/// The charge that follows from a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueCharge {
    /// The units to charge.
    pub units: u64,
    /// The age of the charge, for buckets: they have been refilling since.
    pub age: Nanos,
}

/// The remote's answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportAnswer {
    /// What remains of the limit, with the counts of all nodes.
    pub decision: Decision,
    /// The units that were charged.
    pub charged: u64,
    /// The part of them beyond the limit.
    pub over: u64,
}

impl CountReport {
    /// The charge that follows from this report, given the node's record. The script has the same rule (`report.lua`).
    pub fn due(&self, record: Option<ReportRecord>, remains: Remains) -> DueCharge {
        let expired = self.total.saturating_sub(self.current);
        let (known, age) = match record {
            // A late duplicate.
            Some(record) if record.epoch > self.epoch => (self.total, self.age),
            Some(record) if record.epoch == self.epoch => (record.total, self.age),
            _ if self.confirmed == 0 => (0, self.age),
            None if remains == Remains::OnlyCounter => (self.confirmed, self.age),
            // The remote lost it.
            _ => (expired, Nanos::ZERO),
        };
        // A bucket refills by itself; the units of a window that ended must not be charged to the next one.
        let known = if self.is_bucket() { known } else { known.max(expired) };
        DueCharge { units: self.total.saturating_sub(known), age }
    }

    /// Charges a state with what is due at `now`.
    pub fn charge(&self, state: &mut State, due: DueCharge, now: Timestamp) -> ReportAnswer {
        let peek = |state: &State| self.limit.peek(&mut state.clone(), CheckInput::new(0, now));
        let before = peek(state);
        if due.units > 0 {
            let at = self.charged_at(state, due.age, now);
            self.limit.overcharge(state, CheckInput::new(due.units, at));
        }
        let over = due.units.saturating_sub(before.remaining);
        ReportAnswer { decision: peek(state), charged: due.units, over }
    }

    /// A bucket that was full is charged as of when it became full, at most `age` ago, so that it has refilled since.
    fn charged_at(&self, state: &State, age: Nanos, now: Timestamp) -> Timestamp {
        let earlier = Timestamp::from_nanos(now.as_nanos().saturating_sub(age.get()));
        match state {
            State::Bucket(bucket) => bucket.idle_at().max(earlier).min(now),
            State::Unused if self.is_bucket() => earlier,
            _ => now,
        }
    }

    /// How long a record of this report is kept: longer than any unit of it counts.
    pub fn kept_for(&self, now: Timestamp) -> Nanos {
        let mut full = State::Unused;
        let capacity = self.limit.algorithm().capacity();
        self.limit.overcharge(&mut full, CheckInput::new(capacity.max(1), now));
        Nanos::new(full.idle_at().since(now).get().saturating_add(KEPT_LONGER.get()))
    }

    /// Whether the remote has charged units that it had confirmed before, so it has lost counts.
    pub(crate) const fn reveals_loss(&self, answer: &ReportAnswer) -> bool {
        answer.charged > self.total.saturating_sub(self.confirmed)
    }

    /// A check of the key that costs nothing.
    pub(crate) fn check(&self) -> Check<'_> {
        Check::new(self.key, &self.limit, 0)
    }

    /// Whether the limit is a bucket.
    pub(crate) fn is_bucket(&self) -> bool {
        self.limit.algorithm().bucket_terms().is_some()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::{FixedWindow, Period, TokenBucket, Window};

    use super::*;
    use crate::fingerprint::Fingerprinter;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
    const OTHERS: Remains = Remains::RecordsOrNothing;

    fn report(total: u64, confirmed: u64, current: u64) -> CountReport {
        let key = Key { fingerprint: Fingerprinter::seeded(1).of(1, b"a"), group: 1 };
        let limit = Limit::new(FixedWindow::new(1_000, Window::Every(Period::HOUR)));
        CountReport { key, limit, epoch: 7, total, confirmed, current, age: Nanos::from_secs(1) }
    }

    fn record(epoch: u64, total: u64) -> Option<ReportRecord> {
        Some(ReportRecord { epoch, total })
    }

    #[test]
    fn only_what_is_new_is_charged() {
        assert_eq!(report(10, 0, 10).due(None, OTHERS).units, 10);
        assert_eq!(report(10, 0, 10).due(record(7, 10), OTHERS).units, 0, "a repeated report");
        assert_eq!(report(15, 10, 15).due(record(7, 10), OTHERS).units, 5);
        assert_eq!(report(8, 5, 8).due(record(7, 10), OTHERS).units, 0, "an overtaken report");
        assert_eq!(report(3, 0, 3).due(record(6, 10), OTHERS).units, 3, "a count that began again");
        assert_eq!(report(3, 0, 3).due(record(8, 1), OTHERS).units, 0, "a report of an old count");
    }

    #[test]
    fn counts_that_the_remote_lost_are_charged_as_far_as_they_matter() {
        let lost = report(100, 90, 40);
        assert_eq!(lost.due(None, OTHERS), DueCharge { units: 40, age: Nanos::ZERO });
        assert_eq!(lost.due(record(6, 5), OTHERS).units, 40);
        assert_eq!(lost.due(record(7, 70), OTHERS).units, 30, "a replica that was behind");
        assert_eq!(lost.due(None, Remains::OnlyCounter).units, 10, "only the records are gone");
    }

    #[test]
    fn units_of_a_window_that_ended_are_not_charged() {
        assert_eq!(report(100, 50, 20).due(record(7, 50), OTHERS).units, 20);
    }

    #[test]
    fn a_bucket_refills_what_was_charged_late() {
        let limit = Limit::new(TokenBucket::new(100, Period::SECOND, 100));
        let report = CountReport { limit, ..report(80, 0, 80) };
        let answer = report.charge(&mut State::Unused, report.due(None, OTHERS), NOW);
        assert_eq!(answer.decision.remaining, 100, "80 units refill in less than a second");
        let fresh = CountReport { age: Nanos::ZERO, ..report.clone() };
        let mut state = State::Unused;
        let answer = fresh.charge(&mut state, fresh.due(None, OTHERS), NOW);
        assert_eq!((answer.decision.remaining, answer.over), (20, 0));
        let again = report.charge(&mut state, DueCharge { units: 30, age: report.age }, NOW);
        assert_eq!((again.decision.remaining, again.over), (0, 10), "it was not full");
    }

    #[test]
    fn a_record_outlives_every_unit_of_its_report() {
        let limit = Limit::new(TokenBucket::new(1, Period::MINUTE, 10));
        let report = CountReport { limit, ..report(1, 0, 1) };
        assert_eq!(report.kept_for(NOW).as_secs_ceil(), 11 * 60);
    }
}
