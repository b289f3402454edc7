//! How much a cell holds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidegate_row_table::{LINE_BYTES, ROWS_PER_LINE};

use crate::head::{HEAD_BYTES, TAIL_BYTES};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The maximum of a cell. It decides the size of the file, so it is chosen once and changed by moving to another class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CellClass {
    /// 10,000 rows in 1.4 MB, every 5 s.
    #[default]
    Small,
    /// 100,000 rows in 6.9 MB, every 10 s.
    Medium,
    /// 1,000,000 rows in 28.7 MB, every 30 s.
    Large,
}

/// The parts between head and tail, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Switches,
    Keys,
    Rules,
    Tables,
}

impl Part {
    pub(crate) const ALL: [Part; 4] = [Part::Switches, Part::Keys, Part::Rules, Part::Tables];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Part::Switches => "switches",
            Part::Keys => "keys",
            Part::Rules => "rules",
            Part::Tables => "tables",
        }
    }
}

impl CellClass {
    /// All classes.
    pub const ALL: [CellClass; 3] = [CellClass::Small, CellClass::Medium, CellClass::Large];

    /// The most rows of all tables together.
    pub const fn rows_max(self) -> usize {
        match self {
            CellClass::Small => 10_000,
            CellClass::Medium => 100_000,
            CellClass::Large => 1_000_000,
        }
    }

    /// The most bytes of the text of API keys; a key takes about 100.
    pub const fn keys_bytes_max(self) -> usize {
        match self {
            CellClass::Small => 64 * KIB,
            CellClass::Medium => MIB,
            CellClass::Large => 4 * MIB,
        }
    }

    /// The most bytes of rules and terms as JSON.
    pub const fn rules_bytes_max(self) -> usize {
        match self {
            CellClass::Small => MIB,
            CellClass::Medium => 4 * MIB,
            CellClass::Large => 8 * MIB,
        }
    }

    /// The most bytes of switches as JSON.
    pub const fn switches_bytes_max(self) -> usize {
        64 * KIB
    }

    /// The usual time between two files.
    pub const fn beat(self) -> Duration {
        match self {
            CellClass::Small => Duration::from_secs(5),
            CellClass::Medium => Duration::from_secs(10),
            CellClass::Large => Duration::from_secs(30),
        }
    }

    /// The lines of the tables.
    pub const fn lines(self) -> usize {
        self.rows_max() / ROWS_PER_LINE
    }

    /// The bytes of a part.
    pub(crate) const fn part_bytes(self, part: Part) -> usize {
        match part {
            Part::Switches => self.switches_bytes_max(),
            Part::Keys => self.keys_bytes_max(),
            Part::Rules => self.rules_bytes_max(),
            Part::Tables => self.lines() * LINE_BYTES,
        }
    }

    /// The bytes of the whole file.
    pub fn file_bytes(self) -> usize {
        let parts = Part::ALL.iter().map(|part| self.part_bytes(*part));
        HEAD_BYTES + parts.sum::<usize>() + TAIL_BYTES
    }

    /// The name that files and commands use.
    pub const fn as_str(self) -> &'static str {
        match self {
            CellClass::Small => "small",
            CellClass::Medium => "medium",
            CellClass::Large => "large",
        }
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            CellClass::Small => 1,
            CellClass::Medium => 2,
            CellClass::Large => 3,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        CellClass::ALL.into_iter().find(|class| class.code() == code)
    }
}

impl fmt::Display for CellClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The word names no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no class; it can be `small` (10,000 rows), `medium` (100,000) or `large` (1,000,000)"
)]
pub struct UnknownClass(String);

impl FromStr for CellClass {
    type Err = UnknownClass;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let known = CellClass::ALL.into_iter().find(|class| class.as_str() == word);
        known.ok_or_else(|| UnknownClass(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deployed nodes read files of these sizes.
    #[test]
    fn sizes_never_change() {
        let sizes = CellClass::ALL.map(CellClass::file_bytes);
        assert_eq!(sizes, [1_343_808, 6_912_576, 28_652_608]);
    }

    #[test]
    fn every_part_begins_at_a_cache_line() {
        for class in CellClass::ALL {
            for part in Part::ALL {
                assert_eq!(class.part_bytes(part) % LINE_BYTES, 0, "{class} {}", part.name());
            }
        }
    }

    #[test]
    fn words_are_read_back() {
        for class in CellClass::ALL {
            assert_eq!(class.as_str().parse(), Ok(class));
            assert_eq!(CellClass::from_code(class.code()), Some(class));
        }
        assert!("huge".parse::<CellClass>().is_err());
        assert_eq!(CellClass::from_code(0), None);
    }
}
