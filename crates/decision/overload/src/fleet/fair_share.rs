//! Max-min fairness: no node gets more than it wants, and no share can grow without shrinking a
//! smaller one.

/// Divides the pool. The shares have the order of `wanted`; their sum is the pool, or the sum of
/// `wanted` if that is less.
pub fn fair_shares(pool: u64, wanted: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|index| wanted[*index]);
    let mut shares = vec![0; wanted.len()];
    let mut left = pool;
    // The smallest first: what it leaves is divided among the others.
    for (served, index) in order.iter().enumerate() {
        let waiting = (wanted.len() - served) as u64;
        let share = wanted[*index].min(left / waiting.max(1));
        shares[*index] = share;
        left -= share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_modest_get_what_they_want_and_the_others_share_the_rest() {
        assert_eq!(fair_shares(100, &[10, 80, 60]), [10, 45, 45]);
        assert_eq!(fair_shares(100, &[10, 20, 30]), [10, 20, 30]);
        assert_eq!(fair_shares(10, &[20, 20, 20]), [3, 3, 4]);
        assert_eq!(fair_shares(0, &[5]), [0]);
        assert!(fair_shares(7, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_wasted_and_nobody_is_worse_off_than_an_equal_share(
            pool in 0u64..10_000,
            wanted in prop::collection::vec(0u64..2_000, 1..40),
        ) {
            let shares = fair_shares(pool, &wanted);
            let sum: u64 = shares.iter().sum();
            prop_assert_eq!(sum, pool.min(wanted.iter().sum()));
            let equal = pool / wanted.len() as u64;
            for (share, want) in shares.iter().zip(&wanted) {
                prop_assert!(share <= want && *share >= equal.min(*want));
            }
        }

        #[test]
        fn no_number_overflows(pool: u64, wanted in prop::collection::vec(any::<u64>(), 0..10)) {
            let shares = fair_shares(pool, &wanted);
            let sum: u128 = shares.iter().map(|share| u128::from(*share)).sum();
            prop_assert!(sum <= u128::from(pool));
        }
    }
}
