//! When a row ends: minutes after a base.

/// The most hours between the base and the end of a row: seven years and five months.
pub const HOURS_MAX: u32 = u16::MAX as u32;

/// Minutes since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minute(pub u32);

impl Minute {
    /// The minute in which an instant is, given in nanoseconds since the epoch.
    #[inline]
    pub const fn of_nanos(nanos: u64) -> Self {
        // Fits: 2⁶⁴ nanoseconds are 307 million minutes.
        Minute((nanos / 60_000_000_000) as u32)
    }

    /// The first minute that begins at this many seconds since the epoch, or later. A row lasts until its minute begins,
    /// so it never ends early.
    pub fn from_seconds(seconds: u64) -> Self {
        Minute(u32::try_from(seconds.div_ceil(60)).unwrap_or(u32::MAX))
    }
}

/// The hour, since the Unix epoch, from which the ends of rows are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BaseHour(pub u32);

impl BaseHour {
    /// The base for rows of which the first to end does so then: an hour before it or more.
    pub const fn before(minute: Minute) -> Self {
        BaseHour((minute.0 / 60).saturating_sub(1))
    }

    /// The end as hours and minutes after the base. `None` if it is less than an hour or more than [`HOURS_MAX`] after it.
    pub(crate) fn encode(self, end: Minute) -> Option<(u16, u32)> {
        let after = end.0.checked_sub(self.0.checked_mul(60)?)?;
        let hours = u16::try_from(after / 60).ok().filter(|hours| *hours > 0)?;
        Some((hours, after % 60))
    }

    /// The end that these hours and minutes mean.
    #[inline]
    pub(crate) const fn decode(self, hours: u16, minutes: u32) -> Minute {
        Minute(self.0.saturating_add(hours as u32).saturating_mul(60).saturating_add(minutes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_end_that_fits_is_kept_to_the_minute(base in 0..1_000_000_u32, after in 60..3_932_160_u32) {
            let end = Minute(base * 60 + after);
            let (hours, minutes) = BaseHour(base).encode(end).unwrap();
            prop_assert!(minutes < 60);
            prop_assert_eq!(BaseHour(base).decode(hours, minutes), end);
        }
    }

    #[test]
    fn an_end_before_the_base_or_far_behind_it_does_not_fit() {
        assert_eq!(BaseHour(100).encode(Minute(6_059)), None);
        assert_eq!(BaseHour(100).encode(Minute(6_060)), Some((1, 0)));
        assert_eq!(BaseHour(100).encode(Minute((100 + 65_536) * 60)), None);
        assert_eq!(BaseHour(u32::MAX).encode(Minute(0)), None);
        assert_eq!(BaseHour::before(Minute(0)), BaseHour(0));
        assert_eq!(BaseHour::before(Minute(6_061)), BaseHour(100));
    }

    #[test]
    fn seconds_are_rounded_up_to_the_minute() {
        assert_eq!(Minute::from_seconds(60), Minute(1));
        assert_eq!(Minute::from_seconds(61), Minute(2));
        assert_eq!(Minute::of_nanos(119_999_999_999), Minute(1));
        assert_eq!(Minute::from_seconds(u64::MAX), Minute(u32::MAX));
    }
}
