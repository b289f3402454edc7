use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Counts each of these; equal numbers are the same thing.
fn sketch_of(counters: usize, things: &[u64]) -> Sketch<u64> {
    let mut sketch = Sketch::new(counters);
    for thing in things {
        // Few distinct hashes: things must not be confused for that.
        sketch.count(*thing, || *thing);
    }
    sketch
}

fn exact(things: &[u64]) -> HashMap<u64, u64> {
    let mut exact = HashMap::new();
    for thing in things {
        *exact.entry(*thing).or_default() += 1;
    }
    exact
}

/// Streams in which a few things are frequent.
fn things() -> impl Strategy<Value = Vec<u64>> {
    let thing = prop_oneof![3 => 0..4_u64, 2 => 0..20_u64, 1 => 0..1_000_u64];
    prop::collection::vec(thing, 0..600)
}

proptest! {
    #[test]
    fn counts_are_never_too_low_and_too_high_by_at_most_the_error(
        counters in 1..40_usize,
        things in things(),
    ) {
        let exact = exact(&things);
        for row in sketch_of(counters, &things).rows() {
            let truly = exact[row.label];
            prop_assert!(row.count >= truly, "{row:?} but {truly}");
            prop_assert!(row.count - row.error <= truly, "{row:?} but {truly}");
        }
    }

    #[test]
    fn errors_are_at_most_the_observed_share_of_one_counter(
        counters in 1..40_usize,
        things in things(),
    ) {
        let sketch = sketch_of(counters, &things);
        let share = sketch.observed() / counters as u64;
        for row in sketch.rows() {
            prop_assert!(row.error <= share, "{row:?} but {share}");
        }
    }

    #[test]
    fn what_occurs_more_often_than_that_share_is_always_followed(
        counters in 1..40_usize,
        things in things(),
    ) {
        let sketch = sketch_of(counters, &things);
        let share = sketch.observed() / counters as u64;
        let followed: Vec<u64> = sketch.rows().map(|row| *row.label).collect();
        for (thing, count) in exact(&things) {
            prop_assert!(count <= share || followed.contains(&thing), "{thing}: {count}");
        }
    }

    #[test]
    fn counts_add_up_to_what_was_observed(counters in 1..40_usize, things in things()) {
        let sketch = sketch_of(counters, &things);
        prop_assert_eq!(sketch.observed(), things.len() as u64);
        prop_assert_eq!(sketch.rows().map(|row| row.count).sum::<u64>(), sketch.observed());
        prop_assert!(sketch.rows().count() <= counters);
    }
}

#[test]
fn few_things_are_counted_exactly() {
    let sketch = sketch_of(3, &[7, 8, 7, 9, 7]);
    let mut rows: Vec<_> = sketch.rows().map(|row| (*row.label, row.count, row.error)).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(7, 3, 0), (8, 1, 0), (9, 1, 0)]);
}

#[test]
fn a_newcomer_takes_over_the_smallest_counter_and_its_count_as_error() {
    let sketch = sketch_of(2, &[1, 1, 1, 2, 2, 3]);
    let mut rows: Vec<_> = sketch.rows().map(|row| (*row.label, row.count, row.error)).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(1, 3, 0), (3, 3, 2)]);
}

#[test]
fn a_cleared_sketch_begins_anew() {
    let mut sketch = sketch_of(2, &[1, 1, 2, 3]);
    sketch.clear();
    assert_eq!((sketch.observed(), sketch.rows().count()), (0, 0));
    sketch.count(5, || 5);
    assert_eq!(sketch.rows().map(|row| (*row.label, row.count)).collect::<Vec<_>>(), [(5, 1)]);
}
