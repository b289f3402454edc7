//! Small aligned tables.

use std::fmt;
use std::io::{self, Write};

use anstyle::Style;

use super::{Clean, Painted, style};

/// What stands between two columns.
const GAP: &str = "  ";

/// One field of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    right: bool,
}

impl Cell {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Cell { text: Clean(text).to_string(), style: style::PLAIN, right: false }
    }

    /// The same in a style.
    pub(crate) fn styled(self, style: Style) -> Self {
        Cell { style, ..self }
    }

    /// The same, set to the right.
    pub(crate) fn right(self) -> Self {
        Cell { right: true, ..self }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Rows of fields, each column as wide as its widest field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these titles.
    pub(crate) fn titled(titles: &[&str]) -> Self {
        let titles = titles.iter().map(|title| Cell::new(*title).styled(style::FAINT));
        Table { rows: vec![titles.collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes the table, each line after `indent`. A column without a text in
    /// any row is left out, title and all.
    pub(crate) fn write(&self, out: &mut impl Write, indent: &str) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| self.width(column)).collect();
        for (at, row) in self.rows.iter().enumerate() {
            let mut line = String::from(indent);
            // Spaces are written only once something stands after them.
            let mut owed = 0;
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if *width == 0 {
                    continue;
                }
                let space = width.saturating_sub(cell.width());
                let right = if at == 0 { self.is_right(column) } else { cell.right };
                let (before, after) = if right { (space, 0) } else { (0, space) };
                if !cell.text.is_empty() {
                    line.push_str(&" ".repeat(owed + before));
                    line.push_str(&Painted(cell.style, &cell.text).to_string());
                    owed = 0;
                } else {
                    owed += before;
                }
                owed += after + GAP.len();
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Whether a title stands above fields that are set to the right.
    fn is_right(&self, column: usize) -> bool {
        let first = self.rows.iter().skip(1).find_map(|row| row.get(column));
        first.is_some_and(|cell| cell.right)
    }

    /// The width of a column; none when only its title has a text.
    fn width(&self, column: usize) -> usize {
        let width = |row: &Vec<Cell>| row.get(column).map_or(0, Cell::width);
        let below = self.rows.iter().skip(1).map(width).max().unwrap_or(0);
        if below == 0 { 0 } else { below.max(self.rows.first().map_or(0, width)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(table: &Table) -> String {
        let mut written = Vec::new();
        table.write(&mut written, "  ").unwrap();
        anstream::adapter::strip_str(&String::from_utf8(written).unwrap()).to_string()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_field() {
        let mut table = Table::titled(&["a", "number", "c"]);
        table.row([Cell::new("long one"), Cell::new("7").right(), Cell::new("é")]);
        table.row([Cell::new("é"), Cell::new("1234567").right(), Cell::new("end")]);
        let expected = "  a          number  c\n  long one        7  é\n  é         1234567  end\n";
        assert_eq!(plain(&table), expected);
    }

    #[test]
    fn a_column_that_nothing_stands_in_is_left_out() {
        let mut table = Table::titled(&["a", "b", "c"]);
        table.row([Cell::new("1"), Cell::new(""), Cell::new("3")]);
        table.row([Cell::new("1"), Cell::new(""), Cell::new("")]);
        assert_eq!(plain(&table), "  a  c\n  1  3\n  1\n");
    }
}
