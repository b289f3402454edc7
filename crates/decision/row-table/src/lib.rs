//! Limits of single clients as rows: `value → terms`, 16 bytes a row at full capacity.
//!
//! A rule of its own for each client costs 700 bytes and a compilation. A row costs 16 bytes, and a look-up reads at
//! most two cache lines, whatever the number of rows. The bytes in memory are those of the file, little-endian: a
//! [`RowTable`] reads them where they are. Any bytes can be read: damaged ones give wrong rows or none, never a panic.
//!
//! ```
//! use tidegate_row_table::{Minute, NewRow, Rows, TableName};
//!
//! let clients = TableName { domain: "api".into(), table: "clients".into() };
//! let rows = [
//!     NewRow { table: &clients, value: "acme", terms: "rate=500", until: None },
//!     NewRow { table: &clients, value: "globex", terms: "blocked", until: Some(Minute(29_000_000)) },
//! ];
//! let rows = Rows::build(10, 7, &rows)?;
//! let clients = clients.tag();
//! let number = rows.table.find(clients, "acme", Minute(29_000_000)).expect("it has a row");
//! assert_eq!(rows.terms[number.index()].text, "rate=500");
//! assert!(rows.table.find(clients, "globex", Minute(28_999_999)).is_some());
//! assert!(rows.table.find(clients, "globex", Minute(29_000_000)).is_none(), "it has ended");
//! assert!(rows.table.find(clients, "stranger", Minute(0)).is_none());
//! # Ok::<(), tidegate_row_table::BuildError>(())
//! ```
//!
//! # Layout
//!
//! All tables of a snapshot share the lines. A line has 64 bytes, one for every four rows of capacity:
//!
//! | Bytes | Holds |
//! |---|---|
//! | 0..40 | five marks, 8 bytes each |
//! | 40..50 | five numbers of terms, 2 bytes each; 0 is a free place |
//! | 50..60 | five ends in hours after the base, 2 bytes each; 0 is never |
//! | 60..64 | flags: for place `p` the minute of its end in bits `6p..6p+6`; bit 31: a row of this line is in its second line |
//!
//! The hash of a row is XXH3 with 128 bits of the value, seeded with the hash key XOR the tag of the table
//! ([`TableName::tag`]). Its high half is the mark. The upper 32 bits of its low half choose the first line
//! (`bits × lines >> 32`), the lower 32 bits the second; if both are the same, the second is the one after it. A row is
//! in one of its two lines; a reader looks at the second only if bit 31 of the first is set.
//!
//! Four fifths of the places are taken at most: then 82 % of the rows are in their first line, and a client without a
//! row needs the second in a third of the look-ups. Texts of clients are not stored. A stranger's value is taken for
//! another's if its mark is one of ten: 2⁻⁶⁰, and the hash key is secret.
//!
//! Pure: no files, no clock, no rules. What terms mean is up to `tidegate-rules`; the file is `tidegate-snapshot-file`.

mod buffer;
mod build;
mod line;
mod rows;
mod table;
mod time;

pub use buffer::LineBuffer;
pub use build::BuildError;
pub use line::{LINE_BYTES, PLACES, ROWS_PER_LINE};
pub use rows::{NewRow, Rows, TERMS_MAX, TableName, TableTag, TermsNumber, TermsText};
pub use table::{RowTable, TableFault};
pub use time::{BaseHour, HOURS_MAX, Minute};
