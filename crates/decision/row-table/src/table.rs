//! Reads rows.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::buffer::LineBuffer;
use crate::line::{LINE_BYTES, Line, PLACES, Place, ROWS_PER_LINE};
use crate::rows::{TableTag, TermsNumber};
use crate::time::{BaseHour, Minute};

/// The rows of all tables. Cheap to clone; clones share the lines.
#[derive(Clone, Debug)]
pub struct RowTable {
    lines: Arc<LineBuffer>,
    /// The number of lines; not zero.
    count: u32,
    hash_key: u64,
    base: BaseHour,
}

/// What is wrong with the lines of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableFault {
    /// There are none, or more than 2³².
    #[error("a table has one line or more, not {lines}")]
    Lines {
        /// How many there are.
        lines: usize,
    },
    /// A row has terms that the list does not have.
    #[error("line {line} has terms {terms}, but there are only {known}")]
    UnknownTerms {
        /// The index of the line.
        line: usize,
        /// The number of the terms, from 1.
        terms: u16,
        /// How many terms there are.
        known: usize,
    },
    /// The minute of an end is none.
    #[error("line {line} has a row that ends at minute {minutes} of an hour")]
    Minutes {
        /// The index of the line.
        line: usize,
        /// The number.
        minutes: u32,
    },
}

/// Where a row is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowHash {
    pub(crate) mark: u64,
    pub(crate) first: usize,
    pub(crate) second: usize,
}

impl RowHash {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the hash apart")]
    pub(crate) fn new(lines: u32, hash_key: u64, table: TableTag, value: &str) -> Self {
        let hash = xxh3_128_with_seed(value.as_bytes(), hash_key ^ table.0);
        let (low, mark) = (hash as u64, (hash >> 64) as u64);
        let choose = |bits: u32| ((u64::from(bits) * u64::from(lines)) >> 32) as usize;
        let (first, second) = (choose((low >> 32) as u32), choose(low as u32));
        if first != second {
            return RowHash { mark, first, second };
        }
        let second = if first + 1 < lines as usize { first + 1 } else { 0 };
        RowHash { mark, first, second }
    }
}

impl RowTable {
    /// The rows in these lines.
    ///
    /// # Errors
    /// When there is no line.
    pub fn new(lines: LineBuffer, hash_key: u64, base: BaseHour) -> Result<Self, TableFault> {
        let count = lines.lines();
        let number = u32::try_from(count).ok().filter(|lines| *lines > 0);
        let count = number.ok_or(TableFault::Lines { lines: count })?;
        Ok(RowTable { lines: Arc::new(lines), count, hash_key, base })
    }

    /// The terms of a value, unless its row has ended.
    #[inline]
    pub fn find(&self, table: TableTag, value: &str, now: Minute) -> Option<TermsNumber> {
        let hash = RowHash::new(self.count, self.hash_key, table, value);
        let bytes = self.lines.bytes();
        let first = Line::at(bytes, hash.first)?;
        let place = match first.find(hash.mark) {
            Some(place) => place,
            None if first.has_moved() => Line::at(bytes, hash.second)?.find(hash.mark)?,
            None => return None,
        };
        if place.hours > 0 && self.base.decode(place.hours, place.minutes) <= now {
            return None;
        }
        TermsNumber::new(place.terms)
    }

    /// When the row of a value ends; `None` without a row, `Some(None)` if it never ends.
    pub fn end_of(&self, table: TableTag, value: &str) -> Option<Option<Minute>> {
        let hash = RowHash::new(self.count, self.hash_key, table, value);
        let find = |line| Line::at(self.lines.bytes(), line)?.find(hash.mark);
        let place = find(hash.first).or_else(|| find(hash.second))?;
        Some((place.hours > 0).then(|| self.base.decode(place.hours, place.minutes)))
    }

    /// Checks every row: its terms exist, and its end is one. Returns the number of rows.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, terms: usize) -> Result<usize, TableFault> {
        let mut rows = 0;
        for (line, place) in self.places() {
            if usize::from(place.terms) > terms {
                return Err(TableFault::UnknownTerms { line, terms: place.terms, known: terms });
            }
            if place.minutes >= 60 {
                return Err(TableFault::Minutes { line, minutes: place.minutes });
            }
            rows += usize::from(place.terms > 0);
        }
        Ok(rows)
    }

    fn places(&self) -> impl Iterator<Item = (usize, Place)> {
        let lines = (0..self.lines.lines()).filter_map(|at| Some((at, self.line(at)?)));
        lines.flat_map(|(at, line)| (0..PLACES).map(move |place| (at, line.place(place))))
    }

    fn line(&self, at: usize) -> Option<Line<'_>> {
        Line::at(self.lines.bytes(), at)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.places().filter(|(_, place)| place.terms > 0).count()
    }

    /// The number of rows that it is made for.
    pub fn capacity(&self) -> usize {
        self.lines.lines() * ROWS_PER_LINE
    }

    /// The lines, as a file has them.
    pub fn bytes(&self) -> &[u8] {
        self.lines.bytes()
    }

    /// The number that the hashes are seeded with.
    pub const fn hash_key(&self) -> u64 {
        self.hash_key
    }

    /// The hour from which ends are counted.
    pub const fn base(&self) -> BaseHour {
        self.base
    }

    /// The memory of the lines, to be filled again; `None` while a clone exists.
    pub fn into_buffer(self) -> Option<LineBuffer> {
        Arc::into_inner(self.lines)
    }
}

impl Default for RowTable {
    /// A table without rows: one line.
    fn default() -> Self {
        let lines = Arc::new(LineBuffer::of_lines(1));
        RowTable { lines, count: 1, hash_key: 0, base: BaseHour(0) }
    }
}

const _: () = assert!(LINE_BYTES == PLACES * (8 + 2 + 2) + 4);
