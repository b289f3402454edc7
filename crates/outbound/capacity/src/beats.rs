//! When a member sends its next heartbeat.
//!
//! A member keeps a phase: its regular heartbeats come at fixed distances from it. Members that found distinct phases
//! therefore stay out of each other's way, and a lost race, in which another member's write came between the read and
//! the write, makes the loser draw a new phase. After a few seconds hardly any race is left, without a clock that
//! members share.

use tidegate_algorithms::{Nanos, Timestamp};

use crate::holder::Hunger;

/// The instants of a member's heartbeats. Takes the time as an argument.
#[derive(Clone, Copy, Debug)]
pub struct BeatSchedule {
    phase: Timestamp,
    urgent_at: Option<Timestamp>,
}

impl BeatSchedule {
    /// The shortest time between two heartbeats that a change of the demand causes.
    pub const URGENT_GAP: Nanos = Nanos::from_millis(250);
    /// The shortest time between a heartbeat and the next regular one, unless the period is shorter than two of it.
    const GAP: Nanos = Nanos::from_millis(500);
    /// The period of a member that has its fair share and wants no more.
    const SATISFIED: Nanos = Nanos::from_secs(4);
    /// The period of a member that wants more than its fair share, or whose share changed a moment ago.
    const HUNGRY: Nanos = Nanos::from_secs(1);
    /// The period of a member below its fair share.
    const BELOW_SHARE: Nanos = Nanos::from_millis(500);
    /// The period of a member that the store never answered.
    const UNANSWERED: Nanos = Nanos::from_millis(250);
    /// The least time of the store for each heartbeat of hungry members: many of them send fewer heartbeats.
    const STORE_TIME: Nanos = Nanos::from_millis(50);

    /// A schedule that begins now.
    pub const fn new(now: Timestamp) -> Self {
        BeatSchedule { phase: now, urgent_at: None }
    }

    /// How long a member waits between two heartbeats, at most a third of its lease.
    pub fn period(hunger: Hunger, members: usize, lease: Nanos) -> Nanos {
        let members = u64::try_from(members).unwrap_or(u64::MAX);
        let all = Self::STORE_TIME.get().saturating_mul(members);
        let period = match hunger {
            Hunger::Unanswered => Self::UNANSWERED.get(),
            Hunger::BelowShare => Self::BELOW_SHARE.get(),
            Hunger::Hungry | Hunger::Watchful => {
                Self::HUNGRY.get().max(all.min(Self::SATISFIED.get()))
            }
            Hunger::Satisfied => Self::SATISFIED.get(),
        };
        Nanos::new(period.min(lease.get() / 3).max(1))
    }

    /// The next regular heartbeat after one that ended at `now`. `lost` says that it lost a race; `random` then moves
    /// the phase.
    pub fn next(&mut self, now: Timestamp, period: Nanos, lost: bool, random: u64) -> Timestamp {
        let period = period.get().max(1);
        if lost {
            self.phase = now.after(Nanos::new(random % period));
        }
        // Not at once again, and not a whole period too late either.
        let earliest = now.after(Nanos::new((period / 2).min(Self::GAP.get())));
        let periods = earliest.since(self.phase).get().div_ceil(period);
        self.phase.after(Nanos::new(periods.saturating_mul(period)))
    }

    /// The first instant at which a change of the demand may cause a heartbeat.
    pub fn urgent_from(&self, now: Timestamp) -> Timestamp {
        self.urgent_at.map_or(now, |at| at.after(Self::URGENT_GAP)).max(now)
    }

    /// A change of the demand causes a heartbeat at `now`.
    pub const fn note_urgent(&mut self, now: Timestamp) {
        self.urgent_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Nanos = Nanos::from_secs(15);

    fn millis(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn heartbeats_keep_their_phase_however_long_they_take() {
        let mut schedule = BeatSchedule::new(millis(300));
        let second = Nanos::from_secs(1);
        assert_eq!(schedule.next(millis(310), second, false, 0), millis(1_300));
        assert_eq!(schedule.next(millis(1_390), second, false, 0), millis(2_300));
        // A slow heartbeat does not cause the next one at once.
        assert_eq!(schedule.next(millis(3_200), second, false, 0), millis(4_300));
    }

    #[test]
    fn a_lost_race_moves_the_phase() {
        let mut schedule = BeatSchedule::new(millis(0));
        let second = Nanos::from_secs(1);
        let next = schedule.next(millis(1_020), second, true, 600_000_000);
        assert_eq!(next, millis(1_620));
        assert_eq!(schedule.next(millis(1_630), second, false, 7), millis(2_620));
        // A phase that comes too soon is used a period later.
        let next = schedule.next(millis(2_640), second, true, 100_000_000);
        assert_eq!(next, millis(3_740));
    }

    #[test]
    fn a_change_of_the_demand_is_heard_at_once_and_then_four_times_a_second_at_most() {
        let mut schedule = BeatSchedule::new(millis(0));
        assert_eq!(schedule.urgent_from(millis(10)), millis(10));
        schedule.note_urgent(millis(10));
        assert_eq!(schedule.urgent_from(millis(20)), millis(260));
        assert_eq!(schedule.urgent_from(millis(500)), millis(500));
    }

    #[test]
    fn many_hungry_members_send_fewer_heartbeats_and_never_too_few_for_their_lease() {
        let period = |hunger, members| BeatSchedule::period(hunger, members, LEASE);
        assert_eq!(period(Hunger::Hungry, 10), Nanos::from_secs(1));
        assert_eq!(period(Hunger::Hungry, 50), Nanos::from_millis(2_500));
        assert_eq!(period(Hunger::Hungry, 1_000), Nanos::from_secs(4));
        let short = BeatSchedule::period(Hunger::Satisfied, 1, Nanos::from_secs(3));
        assert_eq!(short, Nanos::from_secs(1));
    }
}
