//! How much is measured.

use std::fmt;
use std::time::Duration;

/// The counts of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Measured rounds, after one that is not.
    pub(crate) rounds: usize,
    /// Operations of one thread in one round.
    pub(crate) operations: usize,
    /// Keys or requests that are drawn before the measurement.
    pub(crate) drawn: usize,
    /// Sizes of the tables whose memory is measured: the first for all contestants, the others for
    /// the two fastest.
    pub(crate) memory_keys: &'static [u64],
    /// Final number of keys in the growing table.
    pub(crate) growth_keys: u64,
    /// How often a rule file is compiled.
    pub(crate) compilations: usize,
    /// Quiet rounds in which servers are measured.
    pub(crate) server_rounds: usize,
    /// How long one server is measured in a round.
    pub(crate) server_time: Duration,
    /// Keys that a server holds when its memory is measured.
    pub(crate) live_keys: u64,
    /// How often a server is started.
    pub(crate) starts: usize,
    /// How long an overload lasts.
    pub(crate) overload_time: Duration,
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
        server_rounds: 7,
        server_time: Duration::from_secs(2),
        live_keys: 1_000_000,
        starts: 9,
        overload_time: Duration::from_secs(20),
        size: Size::Full,
    };

    pub(crate) const QUICK: Scale = Scale {
        rounds: 7,
        operations: 200_000,
        drawn: 1_000_000,
        memory_keys: &[1_000_000],
        growth_keys: 1_000_000,
        compilations: 3,
        server_rounds: 3,
        server_time: Duration::from_millis(700),
        live_keys: 1_000_000,
        starts: 3,
        overload_time: Duration::from_secs(5),
        size: Size::Quick,
    };
}
