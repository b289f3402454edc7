//! One line of a table: five places.

/// The bytes of a line: one cache line.
pub const LINE_BYTES: usize = 64;
/// The places of a line.
pub const PLACES: usize = 5;
/// The rows for which a table has one line.
pub const ROWS_PER_LINE: usize = 4;

const TERMS_AT: usize = 40;
const HOURS_AT: usize = 50;
const FLAGS_AT: usize = 60;
/// Set in a line if a row that has it as its first line is in its second.
const MOVED: u32 = 1 << 31;
/// The bits of a minute.
const MINUTE_BITS: usize = 6;

/// A row as a line has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) mark: u64,
    /// The number of its terms; zero if the place is free.
    pub(crate) terms: u16,
    /// Hours after the base, or zero.
    pub(crate) hours: u16,
    /// Minutes after that hour.
    pub(crate) minutes: u32,
}

/// A line, read where it is.
#[derive(Clone, Copy)]
pub(crate) struct Line<'l>(&'l [u8; LINE_BYTES]);

impl<'l> Line<'l> {
    /// The line with this index.
    #[inline(always)]
    pub(crate) fn at(bytes: &'l [u8], index: usize) -> Option<Self> {
        bytes.get(index * LINE_BYTES..)?.first_chunk().map(Line)
    }

    /// The row with this mark.
    #[inline(always)]
    pub(crate) fn find(self, mark: u64) -> Option<Place> {
        let marks = self.0.first_chunk::<TERMS_AT>()?;
        let (marks, _) = marks.as_chunks::<8>();
        let is_it = |place: &usize| u64::from_le_bytes(marks[*place]) == mark;
        let found = (0..PLACES).filter(is_it).map(|place| self.place(place));
        // A free place has the mark zero, which a row may have too.
        found.into_iter().find(|place| place.terms > 0)
    }

    /// Whether a row that has this as its first line may be in its second.
    #[inline(always)]
    pub(crate) const fn has_moved(self) -> bool {
        self.flags() & MOVED > 0
    }

    /// What a place holds.
    #[inline(always)]
    pub(crate) const fn place(self, place: usize) -> Place {
        let mark = {
            let mut bytes = [0; 8];
            let mut at = 0;
            while at < 8 {
                bytes[at] = self.0[place * 8 + at];
                at += 1;
            }
            u64::from_le_bytes(bytes)
        };
        let minutes = (self.flags() >> (MINUTE_BITS * place)) & ((1 << MINUTE_BITS) - 1);
        let (terms, hours) = (self.word(TERMS_AT, place), self.word(HOURS_AT, place));
        Place { mark, terms, hours, minutes }
    }

    const fn word(self, start: usize, place: usize) -> u16 {
        u16::from_le_bytes([self.0[start + place * 2], self.0[start + place * 2 + 1]])
    }

    const fn flags(self) -> u32 {
        let Line(bytes) = self;
        u32::from_le_bytes([
            bytes[FLAGS_AT],
            bytes[FLAGS_AT + 1],
            bytes[FLAGS_AT + 2],
            bytes[FLAGS_AT + 3],
        ])
    }
}

/// Writes a line: its rows, and whether a row of it is elsewhere.
pub(crate) fn write_line(bytes: &mut [u8; LINE_BYTES], places: &[Place; PLACES], has_moved: bool) {
    let mut flags = if has_moved { MOVED } else { 0 };
    for ((index, place), shift) in places.iter().enumerate().zip((0_u32..).step_by(6)) {
        bytes[index * 8..][..8].copy_from_slice(&place.mark.to_le_bytes());
        bytes[TERMS_AT + index * 2..][..2].copy_from_slice(&place.terms.to_le_bytes());
        bytes[HOURS_AT + index * 2..][..2].copy_from_slice(&place.hours.to_le_bytes());
        flags |= (place.minutes & ((1 << MINUTE_BITS) - 1)) << shift;
    }
    bytes[FLAGS_AT..].copy_from_slice(&flags.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_place()(mark in 0..4_u64, terms in 0..4_u16, hours: u16, minutes in 0..60_u32) -> Place {
            Place { mark, terms, hours, minutes }
        }
    }

    proptest! {
        #[test]
        fn a_line_holds_what_was_written(
            places in prop::array::uniform5(any_place()), has_moved: bool,
        ) {
            let mut bytes = [0; LINE_BYTES];
            write_line(&mut bytes, &places, has_moved);
            let line = Line::at(&bytes, 0).unwrap();
            prop_assert_eq!(line.has_moved(), has_moved);
            for (index, place) in places.iter().enumerate() {
                prop_assert_eq!(line.place(index), *place);
            }
            for mark in 0..5 {
                let taken = |place: &&Place| place.terms > 0 && place.mark == mark;
                prop_assert_eq!(line.find(mark), places.iter().find(taken).copied());
            }
        }
    }

    #[test]
    fn a_line_behind_the_end_is_none() {
        assert!(Line::at(&[0; 127], 1).is_none());
        assert!(Line::at(&[0; 128], 1).is_some());
    }
}
