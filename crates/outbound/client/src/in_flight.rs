//! How many calls may be in flight to one target, learned from its refusals.

/// Calls that leave before the first answer: until then nothing is known of the target.
const UNANSWERED_MAX: u32 = 8;
/// The share of the calls in flight that remains after a refusal, in percent.
const CUT_PERCENT: u32 = 80;

/// A limit of calls in flight: none until the service states or shows one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlightLimit {
    /// The limit in force.
    limit: Option<u32>,
    /// What the service stated: never exceeded.
    stated: Option<u32>,
    /// Answers since the limit was raised last.
    answers: u32,
    in_flight: u32,
    has_answer: bool,
}

impl InFlightLimit {
    /// Whether another call may leave.
    pub(crate) fn has_room(&self) -> bool {
        let limit = if self.has_answer { self.limit } else { Some(UNANSWERED_MAX) };
        limit.is_none_or(|limit| self.in_flight < limit)
    }

    /// Counts a call that was answered.
    pub(crate) const fn count_answer(&mut self) {
        self.has_answer = true;
        self.count_end();
    }

    /// Counts a call that leaves.
    pub(crate) const fn count_send(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// Counts a call that ended without an answer.
    pub(crate) const fn count_end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Lowers the limit, because the service had too many of our calls in flight. The refused call is counted still.
    pub(crate) fn cut(&mut self) {
        let lowered = self.in_flight.saturating_mul(CUT_PERCENT) / 100;
        self.limit = Some(lowered.min(self.limit.unwrap_or(u32::MAX)).max(1));
        self.answers = 0;
    }

    /// Raises the limit by one for each round of answers.
    pub(crate) fn raise(&mut self) {
        let Some(limit) = self.limit else { return };
        self.answers += 1;
        if self.answers >= limit {
            self.answers = 0;
            self.limit = Some(limit.saturating_add(1).min(self.stated.unwrap_or(u32::MAX)));
        }
    }

    /// Keeps to what the service states.
    pub(crate) fn state(&mut self, quota: u64) {
        let stated = u32::try_from(quota).unwrap_or(u32::MAX).max(1);
        if self.stated != Some(stated) {
            self.stated = Some(stated);
            self.limit = Some(self.limit.map_or(stated, |limit| limit.min(stated)));
        }
    }
}
