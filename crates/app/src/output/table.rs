//! Small aligned tables.

use std::fmt;
use std::io::{self, Write};

use anstyle::Style;

use super::{Clean, StyledText, style};

/// The space between two columns.
const GAP: &str = "  ";

/// One cell of a table.
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

    /// Sets the style.
    pub(crate) fn styled(self, style: Style) -> Self {
        Cell { style, ..self }
    }

    /// Aligns it to the right.
    pub(crate) fn right(self) -> Self {
        Cell { right: true, ..self }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Rows of cells, each column as wide as its widest cell.
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

    /// Writes the table, each line after `indent`. A column whose cells are all empty is left out with its title.
    pub(crate) fn write(&self, out: &mut impl Write, indent: &str) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| self.width(column)).collect();
        for (at, row) in self.rows.iter().enumerate() {
            let mut line = String::from(indent);
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if *width == 0 {
                    continue;
                }
                let space = " ".repeat(width.saturating_sub(cell.width()));
                let right = if at == 0 { self.is_right(column) } else { cell.right };
                let (before, after) = if right { (space.as_str(), "") } else { ("", &*space) };
                // Without the codes of its style, an empty cell at the end is trimmed.
                let style = if cell.text.is_empty() { style::PLAIN } else { cell.style };
                line += &format!("{before}{}{after}{GAP}", StyledText(style, &cell.text));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Whether the cells below a title are aligned to the right.
    fn is_right(&self, column: usize) -> bool {
        let first = self.rows.iter().skip(1).find_map(|row| row.get(column));
        first.is_some_and(|cell| cell.right)
    }

    /// The width of a column; zero if all its cells are empty.
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
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::titled(&["a", "number", "c"]);
        table.row([Cell::new("long one"), Cell::new("7").right(), Cell::new("é")]);
        table.row([Cell::new("é"), Cell::new("1234567").right(), Cell::new("end")]);
        let expected = "  a          number  c\n  long one        7  é\n  é         1234567  end\n";
        assert_eq!(plain(&table), expected);
    }

    #[test]
    fn an_empty_column_is_left_out() {
        let mut table = Table::titled(&["a", "b", "c"]);
        table.row([Cell::new("1"), Cell::new(""), Cell::new("3")]);
        table.row([Cell::new("1"), Cell::new(""), Cell::new("")]);
        assert_eq!(plain(&table), "  a  c\n  1  3\n  1\n");
    }
}
