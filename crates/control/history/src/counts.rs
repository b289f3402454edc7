//! The counts of a limit: totals since the start, and those of one span.

/// Totals of one limit, in hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted.
    pub admitted: u64,
    /// Of those, on the allowance of a soft limit.
    pub soft: u64,
    /// Of those admitted, in the last part of the limit.
    pub near: u64,
    /// Refused.
    pub refused: u64,
    /// Over the limit in shadow mode, hence passed.
    pub shadow: u64,
}

/// The counts of one limit within a span. Half the size of [`Counts`]; a count stops at its maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of `Counts`")]
pub struct SpanCounts {
    pub admitted: u32,
    pub soft: u32,
    pub near: u32,
    pub refused: u32,
    pub shadow: u32,
}

impl Counts {
    /// The growth since an earlier reading. A total that fell begins again from zero, as after a restart.
    pub(crate) fn since(self, before: Counts) -> SpanCounts {
        let grown = |now: u64, before: u64| {
            u32::try_from(now.checked_sub(before).unwrap_or(now)).unwrap_or(u32::MAX)
        };
        SpanCounts {
            admitted: grown(self.admitted, before.admitted),
            soft: grown(self.soft, before.soft),
            near: grown(self.near, before.near),
            refused: grown(self.refused, before.refused),
            shadow: grown(self.shadow, before.shadow),
        }
    }
}

impl SpanCounts {
    /// Its size in a file.
    pub(crate) const BYTES: usize = 20;

    /// Adds another span.
    pub fn add(&mut self, other: SpanCounts) {
        self.admitted = self.admitted.saturating_add(other.admitted);
        self.soft = self.soft.saturating_add(other.soft);
        self.near = self.near.saturating_add(other.near);
        self.refused = self.refused.saturating_add(other.refused);
        self.shadow = self.shadow.saturating_add(other.shadow);
    }

    /// All hits.
    pub fn hits(self) -> u64 {
        [self.admitted, self.refused, self.shadow].into_iter().map(u64::from).sum()
    }

    /// The counts, in the order of [`SpanCounts::from_array`].
    pub(crate) const fn to_array(self) -> [u32; 5] {
        [self.admitted, self.soft, self.near, self.refused, self.shadow]
    }

    pub(crate) const fn from_array([admitted, soft, near, refused, shadow]: [u32; 5]) -> Self {
        SpanCounts { admitted, soft, near, refused, shadow }
    }
}
