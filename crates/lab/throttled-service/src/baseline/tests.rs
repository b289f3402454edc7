use std::time::Duration;

use tidegate_algorithms::Timestamp;
use tidegate_capacity::{Cost, Dimension, TargetLimit};

use super::{
    BackoffClient, BaselineClient, BaselineReport, BatcherFleet, BatcherSettings, NaiveClient,
    run_in_virtual_time,
};
use crate::arrivals::{ArrivalLog, ArrivalTime};
use crate::judge::{Judge, LimitKind, ServiceLimit};
use crate::settings::Latency;

const SECOND: Duration = Duration::from_secs(1);

fn run(client: &mut dyn BaselineClient, units: u64, seconds: u64) -> (BaselineReport, ArrivalLog) {
    let limit = TargetLimit::per_second(Dimension::Units, 20_000);
    let mut judge = Judge::new(&[ServiceLimit { limit, kind: LimitKind::FixedWindow }]);
    let latency = Latency { median: Duration::from_millis(10), spread: 0.5 };
    let end = Timestamp::from_secs(seconds);
    run_in_virtual_time(client, &mut judge, Cost::units(units), latency, end, 1)
}

#[test]
fn naive_rounds_send_thirty_thousand_for_ten_thousand_records() {
    let (report, log) = run(&mut NaiveClient::new(10_000), 10, 60);
    assert_eq!((report.accepted, report.sends), (10_000, 30_000));
    assert_eq!(report.throttled, 20_000);
    assert_eq!(log.duplicates(), 0);
}

#[test]
fn backoff_sends_several_times_as_much_as_it_has() {
    let (report, _) = run(&mut BackoffClient::new(10_000, 1), 10, 120);
    assert_eq!(report.accepted, 10_000);
    assert!((30_000..60_000).contains(&report.sends), "{report:?}");
    assert!(report.elapsed > 5 * SECOND, "{report:?}");
}

fn fleet(processes: usize, partitions: usize, factor: u64, cost: u64) -> BatcherFleet {
    let settings = BatcherSettings { processes, partitions, factor, cost, seed: 1 };
    BatcherFleet::new(1_000_000, settings)
}

#[test]
fn a_flush_passes_its_quota_by_one_record_and_forgets_the_excess() {
    // 1,000 units a second in 20 partitions; records of 99 units: two for each quota of 100 units.
    let mut fleet = fleet(1, 20, 50, 99);
    let (_, log) = run(&mut fleet, 99, 120);
    let busiest = log.busiest(Dimension::Units, SECOND, ArrivalTime::Received);
    assert!(busiest >= 1_900, "{busiest}");
}

#[test]
fn a_fleet_with_less_than_ten_units_a_second_sends_nothing() {
    let (report, _) = run(&mut fleet(1, 9, 1, 1), 1, 60);
    assert_eq!(report.sends, 0);
}

#[test]
fn blind_attempts_leave_partitions_unused() {
    for (processes, lowest, highest) in [(1, 0.50, 0.66), (4, 0.66, 0.82), (10, 0.78, 0.92)] {
        let mut fleet = fleet(processes, 100, 1, 1);
        let _ = run(&mut fleet, 1, 600);
        let share = fleet.held_share();
        assert!((lowest..highest).contains(&share), "{processes} processes: {share}");
        let (attempts, failed) = fleet.lease_attempts();
        assert!(processes == 1 || failed * 4 > attempts, "{failed} of {attempts}");
    }
}
