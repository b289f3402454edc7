//! Which levels are refused, so that a fraction of the traffic is admitted.
//!
//! All requests of the levels below the threshold are refused, and a share of the level at the
//! threshold, so that the fraction is exact. A threshold fits into one word of 64 bits, which the
//! hot path reads with one load.

use crate::category::{LEVELS, Level};
use crate::mix::{mix, whole};

/// The resolution of the share that is refused at the threshold.
const PARTS: f64 = 65_536.0;

/// Which levels are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    level: u16,
    boundary: u16,
    epoch: u32,
}

impl Threshold {
    /// Refuses nothing.
    pub const OPEN: Threshold = Threshold { level: 0, boundary: 0, epoch: 0 };

    /// Refuses the lowest levels so that the fraction `admitted` of the traffic is admitted.
    ///
    /// `offered` is the weight of each level. No level from `ceiling` on is refused, and nothing
    /// is refused without traffic.
    pub fn admitting(admitted: f64, offered: &[f64; LEVELS], ceiling: u16, epoch: u32) -> Self {
        let open = Threshold { epoch, ..Threshold::OPEN };
        let total: f64 = offered.iter().sum();
        // Then levels without recent traffic are open too.
        if admitted >= 1.0 || total <= 0.0 {
            return open;
        }
        let mut left = total * (1.0 - admitted.clamp(0.0, 1.0));
        let ceiling = ceiling.min(LEVELS_END);
        for (level, here) in (0..ceiling).zip(offered) {
            if left < *here {
                let boundary = whole(left / here * PARTS);
                let boundary = u16::try_from(boundary).unwrap_or(u16::MAX);
                return Threshold { level, boundary, epoch };
            }
            left -= here;
        }
        Threshold { level: ceiling, boundary: 0, epoch }
    }

    /// Whether a request is refused. `sequence` differs between the requests of a level.
    #[inline]
    pub const fn refuses(self, level: Level, sequence: u64) -> bool {
        let number = level.number();
        if number != self.level {
            return number < self.level;
        }
        (mix(sequence ^ ((self.epoch as u64) << 32)) >> 48) < self.boundary as u64
    }

    /// The lowest level of which anything is admitted: 0 to 512.
    pub const fn level(self) -> u16 {
        self.level
    }

    /// The refused share of the level at the threshold.
    pub fn boundary(self) -> f64 {
        f64::from(self.boundary) / PARTS
    }

    /// The number of the tick that set it.
    pub const fn epoch(self) -> u32 {
        self.epoch
    }

    pub(crate) const fn to_word(self) -> u64 {
        (self.level as u64) << 48 | (self.boundary as u64) << 32 | self.epoch as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the parts of the word are cut out")]
    pub(crate) const fn from_word(word: u64) -> Self {
        Threshold { level: (word >> 48) as u16, boundary: (word >> 32) as u16, epoch: word as u32 }
    }
}

const LEVELS_END: u16 = 512;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::category::{Category, Cohort};

    fn even() -> [f64; LEVELS] {
        [10.0; LEVELS]
    }

    fn at(level: u16) -> Level {
        let category = Category::ALL[usize::from(level / 128)];
        Level::new(category, Cohort::numbered(u8::try_from(level % 128).unwrap()))
    }

    /// The share of the traffic that is refused.
    fn refused(threshold: Threshold, offered: &[f64; LEVELS]) -> f64 {
        let total: f64 = offered.iter().sum();
        let below: f64 = offered.iter().take(usize::from(threshold.level())).sum();
        let here = offered.get(usize::from(threshold.level())).copied().unwrap_or_default();
        (below + here * threshold.boundary()) / total
    }

    #[test]
    fn refuses_nobody_when_everything_is_admitted() {
        let threshold = Threshold::admitting(1.0, &even(), 384, 7);
        assert_eq!((threshold.level(), threshold.boundary()), (0, 0.0));
        assert!(!threshold.refuses(at(0), 1));
    }

    #[test]
    fn levels_at_which_nothing_came_lately_are_open_when_everything_is_admitted() {
        let mut offered = [0.0; LEVELS];
        offered[300] = 9.0;
        let threshold = Threshold::admitting(1.0, &offered, 384, 7);
        assert!((0..512).all(|level| !threshold.refuses(at(level), 1)));
    }

    #[test]
    fn refuses_nobody_when_nobody_comes() {
        let threshold = Threshold::admitting(0.0, &[0.0; LEVELS], 384, 0);
        assert_eq!(threshold.level(), 0);
    }

    #[test]
    fn critical_levels_are_never_refused_below_the_ceiling() {
        let threshold = Threshold::admitting(0.0, &even(), Level::CRITICAL.number(), 0);
        assert!(threshold.refuses(at(383), 1));
        assert!((384..512).all(|level| !threshold.refuses(at(level), 1)));
        let all = Threshold::admitting(0.0, &even(), 512, 0);
        assert!((0..512).all(|level| all.refuses(at(level), 1)));
    }

    #[test]
    fn the_level_at_the_threshold_is_refused_in_part() {
        let threshold = Threshold::admitting(1.0 - 10.25 / 512.0, &even(), 512, 3);
        assert_eq!(threshold.level(), 10);
        let count = (0..10_000).filter(|sequence| threshold.refuses(at(10), *sequence)).count();
        assert!((2_300..2_700).contains(&count), "{count}");
    }

    proptest! {
        #[test]
        fn a_threshold_comes_back_from_its_word(level: u16, boundary: u16, epoch: u32) {
            let threshold = Threshold { level, boundary, epoch };
            prop_assert_eq!(Threshold::from_word(threshold.to_word()), threshold);
        }

        #[test]
        fn the_refused_share_is_the_one_asked_for(
            counts in prop::collection::vec(0u32..1000, LEVELS),
            admitted in 0.0..1.0f64,
        ) {
            let mut offered = [0.0; LEVELS];
            offered.iter_mut().zip(&counts).for_each(|(to, from)| *to = f64::from(*from));
            prop_assume!(offered.iter().sum::<f64>() > 0.0);
            let threshold = Threshold::admitting(admitted, &offered, 512, 0);
            prop_assert!((refused(threshold, &offered) - (1.0 - admitted)).abs() < 1e-3);
        }

        #[test]
        fn admitting_less_never_lowers_the_threshold(
            counts in prop::collection::vec(0u32..50, LEVELS),
            less in 0.0..1.0f64,
            more in 0.0..1.0f64,
            ceiling in prop::sample::select(vec![384u16, 512]),
        ) {
            let mut offered = [0.0; LEVELS];
            offered.iter_mut().zip(&counts).for_each(|(to, from)| *to = f64::from(*from));
            let (less, more) = (less.min(more), less.max(more));
            let high = Threshold::admitting(less, &offered, ceiling, 0);
            let low = Threshold::admitting(more, &offered, ceiling, 0);
            prop_assert!((high.level(), high.boundary) >= (low.level(), low.boundary));
            prop_assert!(high.level() <= ceiling);
        }
    }
}
