//! The admissions of nodes, compared with the counts of the store.

use std::time::Duration;

use tidegate_stores::Consistency;
use tokio::time::Instant;

use crate::fleet::Fleet;
use crate::load::{Load, LoadReport, Rests, Subject, WIDE};
use tidegate_test_servers::eventually;

/// Far longer than a probe, a new connection and a second of jitter take, because the machine may be busy.
const RECOVERY_MAX: Duration = Duration::from_secs(20);

/// A beat and a round trip on a busy machine.
const BEAT_AND_WAY: Duration = Duration::from_millis(100 + 2 * 1_000);
/// The same, and five calls that are not answered until the breaker opens.
const UNTIL_OPEN: Duration = Duration::from_millis(100 + 2 * 1_000 + 5 * 500);

impl Fleet {
    /// Waits until the store stands behind every answer again, and says how long that took.
    #[track_caller]
    pub(crate) fn measure_recovery(&self, fault: &str, load: &Load) {
        let begun = Instant::now();
        self.wait_until_well();
        load.wait_for(Rests::OnTheStore, 3);
        let took = begun.elapsed();
        println!("{fault}: the store is asked again after {took:?}");
        assert!(took < RECOVERY_MAX, "{fault}: {took:?}");
    }

    /// How long nodes may not have known of each other's counts.
    pub(crate) fn unknowing(&self) -> Duration {
        if self.sum(|metrics| metrics.outages) == 0 { BEAT_AND_WAY } else { UNTIL_OPEN }
    }

    /// Ends the load, and checks everything that has to hold after any fault.
    #[track_caller]
    pub(crate) fn audit(&self, fault: &str, load: Load) -> LoadReport {
        let seen = load.stop();
        println!("{fault}: {}", seen.words());
        self.wait_until_settled();
        seen.assert_decided_in_time();
        seen.assert_limits_held(self.unknowing());
        for subject in seen.subjects.iter().filter(|subject| subject.quota() == WIDE) {
            self.assert_counted_once(&seen, subject);
        }
        seen
    }

    /// Nothing was counted twice, and nothing is missing except calls that may have run or not.
    #[track_caller]
    fn assert_counted_once(&self, seen: &LoadReport, subject: &Subject) {
        let name = subject.name;
        let firm = seen.of(name, |tally| tally.firm);
        let admitted = seen.of(name, |tally| tally.firm + tally.local);
        // A request that was not answered in time may have been charged or not.
        let open = self.sum(|metrics| metrics.failures);
        let unsure = self.sum(|metrics| metrics.unsure);
        let (least, most) = match subject.policy.consistency {
            Consistency::Exact if unsure == 0 => (admitted.saturating_sub(open), admitted),
            Consistency::Exact => (firm, admitted),
            // Slices are charged before they are used, and some are lost.
            Consistency::Leased => (firm, u64::MAX),
            Consistency::Eventual if unsure == 0 => (admitted, admitted),
            Consistency::Eventual => (0, admitted),
        };
        let counted = eventually(&format!("that {name} is counted: {least} of {admitted}"), || {
            Some(self.counted(subject)).filter(|counted| *counted >= least)
        });
        assert!(counted <= most, "{name}: {counted} counted, {admitted} admitted");
    }
}
