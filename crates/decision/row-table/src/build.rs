//! Places rows: a cuckoo table of two lines with five places each.

use crate::buffer::LineBuffer;
use crate::line::{LINE_BYTES, PLACES, Place, write_line};
use crate::table::RowHash;

/// How many rows are moved to make room for one. At four fifths of the places 22 were the most in a million rows.
const MOVES_MAX: usize = 1_000;
/// No row.
const VACANT: u32 = u32::MAX;

/// Why rows cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There are more rows than the table is made for.
    #[error(
        "there are {rows} rows, and the table holds {capacity}; use a larger class, or remove rows"
    )]
    TooManyRows {
        /// How many there are.
        rows: usize,
        /// How many it holds.
        capacity: usize,
    },
    /// There are too many different terms.
    #[error("there are {terms} different terms, and there may be {max}; round them to fewer", max = crate::TERMS_MAX)]
    TooManyTerms {
        /// How many there are.
        terms: usize,
    },
    /// A row ends before the base, or too long after it.
    #[error(
        "the row of `{value}` ends more than seven years after others end; leave its end out, or remove rows that have ended"
    )]
    End {
        /// Its value.
        value: String,
    },
    /// More lines than 32 bits can number.
    #[error("a table has at most 2³² lines")]
    TooManyLines,
    /// Two rows have the same value.
    #[error("two rows of a table have the same value; keep one of them")]
    Duplicate,
}

/// A row with its hash, for one hash key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedRow {
    pub(crate) hash: RowHash,
    pub(crate) terms: u16,
    pub(crate) end: (u16, u32),
}

/// The lines with all rows; `None` if two rows cannot be told apart or no place was found for one.
pub(crate) fn place_rows(lines: usize, rows: &[PlacedRow]) -> Option<LineBuffer> {
    let mut occupants = vec![[VACANT; PLACES]; lines];
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for (row, number) in rows.iter().zip(0_u32..) {
        let is_same =
            |number: &u32| rows.get(*number as usize).is_some_and(|o| o.hash.mark == row.hash.mark);
        let lines = [row.hash.first, row.hash.second];
        if lines.iter().any(|line| occupants[*line].iter().any(is_same)) {
            return None;
        }
        put(&mut occupants, rows, number, &mut random)?;
    }
    Some(write_lines(&occupants, rows))
}

/// Puts a row into its first or second line, and moves others if both are full.
fn put(
    occupants: &mut [[u32; PLACES]],
    rows: &[PlacedRow],
    number: u32,
    random: &mut u64,
) -> Option<()> {
    let mut number = number;
    let mut line = rows[number as usize].hash.first;
    for moves in 0..MOVES_MAX {
        let RowHash { first, second, .. } = rows[number as usize].hash;
        // A new row prefers its first line; a row that had to leave a line goes to its other one.
        let candidates = if moves == 0 { [first, second] } else { [line, line] };
        for candidate in candidates {
            if let Some(free) = occupants[candidate].iter_mut().find(|place| **place == VACANT) {
                *free = number;
                return Some(());
            }
        }
        *random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = (*random >> 33) as usize % PLACES;
        std::mem::swap(&mut occupants[line][place], &mut number);
        let evicted = rows[number as usize].hash;
        line = if evicted.first == line { evicted.second } else { evicted.first };
    }
    None
}

fn write_lines(occupants: &[[u32; PLACES]], rows: &[PlacedRow]) -> LineBuffer {
    let mut has_moved = vec![false; occupants.len()];
    for (line, places) in occupants.iter().enumerate() {
        for row in places.iter().filter_map(|number| rows.get(*number as usize)) {
            if row.hash.first != line {
                has_moved[row.hash.first] = true;
            }
        }
    }
    let mut buffer = LineBuffer::of_lines(occupants.len());
    let (chunks, _) = buffer.bytes_mut().as_chunks_mut::<LINE_BYTES>();
    for ((bytes, numbers), has_moved) in chunks.iter_mut().zip(occupants).zip(has_moved) {
        let mut places = [Place::default(); PLACES];
        for (place, number) in places.iter_mut().zip(numbers) {
            let Some(row) = rows.get(*number as usize) else { continue };
            let (hours, minutes) = row.end;
            *place = Place { mark: row.hash.mark, terms: row.terms, hours, minutes };
        }
        write_line(bytes, &places, has_moved);
    }
    buffer
}
