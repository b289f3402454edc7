use proptest::prelude::*;

use super::*;
use crate::limits::Dimension;

const WINDOW_MS: u64 = 600_000;

fn limit(amount: u64) -> TargetLimit {
    TargetLimit { dimension: Dimension::Units, amount, window_ms: WINDOW_MS }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH.after(Nanos::from_millis(millis))
}

fn wants(units: u64) -> QuotaDemand {
    QuotaDemand { wants: units, needs: 0 }
}

#[test]
fn a_chunk_is_a_hundredth_unless_a_record_costs_more() {
    let mut ledger = QuotaLedger::default();
    assert_eq!(ledger.take(&limit(1_000), 1, wants(500), Some(0)), 10);
    assert_eq!(ledger.take(&limit(1_000), 2, wants(3), Some(0)), 3);
    let costly = QuotaDemand { wants: 500, needs: 300 };
    assert_eq!(ledger.take(&limit(1_000), 3, costly, Some(0)), 300);
    assert_eq!(ledger.taken(), 313);
    let too_costly = QuotaDemand { wants: 0, needs: 688 };
    assert_eq!(ledger.take(&limit(1_000), 4, too_costly, Some(0)), 0, "687 are left");
}

#[test]
fn many_small_chunks_are_listed_in_bounded_room_and_stay_counted() {
    let mut ledger = QuotaLedger::default();
    for number in 0..1_000 {
        assert_eq!(ledger.take(&limit(1_000), number, wants(1), Some(number)), 1);
    }
    assert!(ledger.chunks().len() <= LISTED_MAX);
    assert_eq!(ledger.taken(), 1_000);
    assert_eq!(ledger.take(&limit(1_000), 1_000, wants(1), Some(1_000)), 0);
}

#[test]
fn a_ledger_that_was_lost_is_put_together_again() {
    let (mut known, mut lost) = (QuotaLedger::default(), QuotaLedger::default());
    known.take(&limit(1_000), 1, wants(10), Some(0));
    known.take(&limit(1_000), 2, wants(10), Some(0));
    lost.take(&limit(1_000), 9, wants(10), Some(0));
    lost.merge(&known);
    lost.merge(&known);
    assert_eq!(lost.taken(), 30);
}

proptest! {
    #[test]
    fn no_window_holds_more_than_the_amount(
        amount in 1_u64..2_000,
        steps in prop::collection::vec((0_usize..3, 0_u64..60_000, 0_u64..200, 0_u64..80), 1..400),
    ) {
        let limit = limit(amount);
        let mut ledger = QuotaLedger::default();
        let mut budgets = [(); 3].map(|()| QuotaBudget::default());
        let (mut now, mut spent) = (0, Vec::new());
        for (number, (member, pause, wanted, cost)) in (1..).zip(steps) {
            now += pause;
            ledger.drop_passed(|chunk| chunk.ends_ms() <= now);
            let budget = &mut budgets[member];
            let available = budget.available(at(now));
            let demand = QuotaDemand { wants: wanted, needs: cost.saturating_sub(available) };
            let units = ledger.take(&limit, number, demand, Some(now));
            budget.add(units, at(now).after(term(&limit)));
            if cost <= budget.available(at(now)) {
                budget.spend(cost, at(now));
                spent.push((now, cost));
            }
        }
        for (end, _) in &spent {
            let inside = spent.iter().filter(|(at, _)| at <= end && at + WINDOW_MS > *end);
            let sum: u64 = inside.map(|(_, cost)| cost).sum();
            prop_assert!(sum <= amount, "{sum} of {amount} in the window that ends at {end}");
        }
    }
}
