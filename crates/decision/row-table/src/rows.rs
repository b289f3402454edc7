//! Rows before they are placed, and their terms as a list.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::build::{BuildError, PlacedRow, place_rows};
use crate::line::ROWS_PER_LINE;
use crate::table::{RowHash, RowTable};
use crate::time::{BaseHour, Minute};

/// The most different terms of all tables together: each is a rule beside every rule that has overrides.
pub const TERMS_MAX: usize = 4_096;

/// The seed of tags. Must never change: files are read by it.
const TAG_SEED: u64 = 0x726F_7773_2E74_6167;
/// How many hash keys are tried. One fails for a full table about once in a billion.
const KEYS_MAX: u64 = 8;

/// A table, by the domain that declares it and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableName {
    /// The domain.
    pub domain: String,
    /// The name.
    pub table: String,
}

impl TableName {
    /// The number that separates its rows from those of other tables.
    pub fn tag(&self) -> TableTag {
        let mut bytes = Vec::new();
        for part in [&self.domain, &self.table] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        TableTag(xxh3_64_with_seed(&bytes, TAG_SEED))
    }
}

/// The number of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableTag(pub(crate) u64);

/// The number of terms: their index in the list, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermsNumber(std::num::NonZeroU16);

impl TermsNumber {
    #[inline]
    pub(crate) fn new(number: u16) -> Option<Self> {
        std::num::NonZeroU16::new(number).map(TermsNumber)
    }

    /// The index in the list of terms.
    #[inline]
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Terms as text, with the table whose rows have them. Equal texts in two tables are two entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TermsText {
    /// The table.
    #[serde(flatten)]
    pub table: TableName,
    /// The terms in canonical form, such as `rate=500` or the name of a plan.
    #[serde(rename = "terms")]
    pub text: String,
}

/// A row to be placed.
#[derive(Clone, Copy, Debug)]
pub struct NewRow<'r> {
    /// The table.
    pub table: &'r TableName,
    /// The value of the client.
    pub value: &'r str,
    /// Its terms in canonical form.
    pub terms: &'r str,
    /// The minute at which it ends.
    pub until: Option<Minute>,
}

/// Rows and their terms.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The terms by their numbers, sorted; those of a table are adjacent.
    pub terms: Vec<TermsText>,
    /// The rows.
    pub table: RowTable,
}

impl Rows {
    /// Places rows in a table for `capacity` rows. Values must be unique within a table. The same rows in the same order
    /// give the same bytes, except where a hash key does not serve: then the next number is tried.
    ///
    /// # Errors
    /// When the rows do not fit.
    pub fn build(capacity: usize, hash_key: u64, rows: &[NewRow<'_>]) -> Result<Self, BuildError> {
        let ends = rows.iter().filter_map(|row| row.until);
        let base = ends.min().map(BaseHour::before).unwrap_or_default();
        Rows::build_from(capacity, hash_key, base, rows)
    }

    /// The same with a base that is given.
    ///
    /// # Errors
    /// When the rows do not fit, or one ends before the base or too far behind it.
    pub fn build_from(
        capacity: usize,
        hash_key: u64,
        base: BaseHour,
        rows: &[NewRow<'_>],
    ) -> Result<Self, BuildError> {
        let lines = capacity.div_ceil(ROWS_PER_LINE).max(1);
        let count = u32::try_from(lines).map_err(|_| BuildError::TooManyLines)?;
        if rows.len() > capacity {
            return Err(BuildError::TooManyRows { rows: rows.len(), capacity });
        }
        let (terms, numbers) = number_terms(rows)?;
        for tried in 0..KEYS_MAX {
            let key = hash_key.wrapping_add(tried);
            let placed = rows.iter().zip(&numbers).map(|(row, (tag, terms))| {
                let end = match row.until {
                    None => (0, 0),
                    Some(until) => base
                        .encode(until)
                        .ok_or_else(|| BuildError::End { value: row.value.to_owned() })?,
                };
                let hash = RowHash::new(count, key, *tag, row.value);
                Ok(PlacedRow { hash, terms: *terms, end })
            });
            let placed = placed.collect::<Result<Vec<_>, BuildError>>()?;
            if let Some(buffer) = place_rows(lines, &placed) {
                let table = RowTable::new(buffer, key, base);
                return table
                    .map(|table| Rows { terms, table })
                    .map_err(|_| BuildError::TooManyLines);
            }
        }
        Err(BuildError::Duplicate)
    }
}

/// A table's tag and the number of a row's terms.
type RowNumbers = Vec<(TableTag, u16)>;

/// The list of terms, and for each row the tag of its table and the number of its terms.
fn number_terms(rows: &[NewRow<'_>]) -> Result<(Vec<TermsText>, RowNumbers), BuildError> {
    let mut known: BTreeMap<(&TableName, &str), (TableTag, u16)> = BTreeMap::new();
    for row in rows {
        let entry = known.entry((row.table, row.terms));
        entry.or_insert_with(|| (row.table.tag(), 0));
    }
    if known.len() > TERMS_MAX {
        return Err(BuildError::TooManyTerms { terms: known.len() });
    }
    let mut terms = Vec::with_capacity(known.len());
    for (((table, text), (_, number)), next) in known.iter_mut().zip(1..) {
        *number = next;
        terms.push(TermsText { table: (*table).clone(), text: (*text).to_owned() });
    }
    // Found: every row was entered above.
    let number_of = |row: &NewRow<'_>| known.get(&(row.table, row.terms)).copied();
    Ok((terms, rows.iter().filter_map(number_of).collect()))
}
