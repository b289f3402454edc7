//! Markdown tables that can also be read as they are.

use std::fmt;

/// A table under a heading, with notes below it.
#[derive(Debug)]
pub(crate) struct Table {
    title: &'static str,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Table {
    pub(crate) fn new(title: &'static str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Table { title, columns, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a row; cells that it lacks are left empty.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn line(&self, cells: &[String], out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, column) in self.columns.iter().enumerate() {
            let cell = cells.get(place).map_or("", String::as_str);
            let width = self.width(place, column);
            write!(out, "| {cell:width$} ")?;
        }
        writeln!(out, "|")
    }

    fn width(&self, place: usize, column: &str) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(place));
        let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        longest.max(column.chars().count())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "### {}\n", self.title)?;
        self.line(&self.columns, out)?;
        for (place, column) in self.columns.iter().enumerate() {
            write!(out, "| {:-<1$} ", "", self.width(place, column))?;
        }
        writeln!(out, "|")?;
        for row in &self.rows {
            self.line(row, out)?;
        }
        for note in &self.notes {
            writeln!(out, "\n{note}")?;
        }
        Ok(())
    }
}

/// Nanoseconds, with a decimal if they are few.
pub(crate) fn ns(nanos: f64) -> String {
    if nanos < 100.0 { format!("{nanos:.1}") } else { format!("{nanos:.0}") }
}

/// A count with separators of thousands.
pub(crate) fn count(count: u64) -> String {
    match count {
        count if count >= 1_000_000 && count % 1_000_000 == 0 => format!("{}M", count / 1_000_000),
        count if count >= 1_000 && count % 1_000 == 0 => format!("{}k", count / 1_000),
        count => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let mut table = Table::new("Sizes", &["case", "≤ n"]);
        table.row(["a longer one".to_owned(), "1".to_owned()]);
        table.row(["b".to_owned()]);
        table.note("Said below.");
        let expected = "\
### Sizes

| case         | ≤ n |
| ------------ | --- |
| a longer one | 1   |
| b            |     |

Said below.
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn round_counts_are_shortened() {
        let counts = [1, 1_000, 1_500, 100_000, 10_000_000].map(count);
        assert_eq!(counts, ["1", "1k", "1500", "100k", "10M"]);
    }

    #[test]
    fn small_times_show_a_decimal() {
        assert_eq!((ns(9.96), ns(123.4)), ("10.0".to_owned(), "123".to_owned()));
    }
}
