//! How much is measured.

use std::fmt;
use std::time::Duration;

/// The counts of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Rounds that count; one more comes before them.
    pub(crate) rounds: usize,
    /// Operations of one thread in one round.
    pub(crate) operations: usize,
    /// How many keys or requests are drawn ahead.
    pub(crate) drawn: usize,
    /// The sizes of the tables whose memory is measured; all contestants do
    /// the first, the two fastest the rest.
    pub(crate) memory_keys: &'static [u64],
    /// Keys that the growing table ends with.
    pub(crate) growth_keys: u64,
    /// How often a rule file is compiled.
    pub(crate) compilations: usize,
    /// Quiet rounds in which servers are visited.
    pub(crate) visits: usize,
    /// How long a visit is measured.
    pub(crate) visit: Duration,
    /// Keys that a server holds when its memory is measured.
    pub(crate) live_keys: u64,
    /// How often a server is started.
    pub(crate) starts: usize,
    /// How long callers rush in at too high a rate.
    pub(crate) rush: Duration,
    pub(crate) size: Size,
}

/// The two sizes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Full,
    Quick,
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Size::Full => "full",
            Size::Quick => "quick",
        })
    }
}

impl Scale {
    pub(crate) const FULL: Scale = Scale {
        rounds: 9,
        operations: 1_000_000,
        drawn: 4_000_000,
        memory_keys: &[1_000_000, 10_000_000],
        growth_keys: 10_000_000,
        compilations: 5,
        visits: 7,
        visit: Duration::from_secs(2),
        live_keys: 1_000_000,
        starts: 9,
        rush: Duration::from_secs(20),
        size: Size::Full,
    };

    pub(crate) const QUICK: Scale = Scale {
        rounds: 7,
        operations: 200_000,
        drawn: 1_000_000,
        memory_keys: &[1_000_000],
        growth_keys: 1_000_000,
        compilations: 3,
        visits: 3,
        visit: Duration::from_millis(700),
        live_keys: 1_000_000,
        starts: 3,
        rush: Duration::from_secs(5),
        size: Size::Quick,
    };
}
