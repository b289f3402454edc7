//! A table, as text or as Markdown.

use super::Format;

#[derive(Clone, Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: Vec<String>) -> Self {
        Table { rows: vec![header] }
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub(crate) fn render(&self, format: Format) -> String {
        match format {
            Format::Markdown => self.markdown(),
            Format::Text | Format::Json => self.text(),
        }
    }

    /// The rows; the first is the header.
    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    fn markdown(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        // A bar would end the cell, and a line break the row.
        let cell = |text: &String| text.replace('|', "\\|").replace(['\n', '\r'], " ");
        let line = |row: &Vec<String>| {
            format!("| {} |", row.iter().map(cell).collect::<Vec<_>>().join(" | "))
        };
        let mut lines: Vec<String> = self.rows.iter().map(line).collect();
        lines.insert(1.min(lines.len()), format!("|{}", "---|".repeat(columns)));
        lines.join("\n")
    }

    fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths);
            let text: String = cells.map(|(cell, width)| format!("{cell:<width$}  ")).collect();
            text.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect::<Vec<String>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec!["a".to_owned(), "long".to_owned()]);
        table.push(vec!["first".to_owned(), "2".to_owned()]);
        table
    }

    #[test]
    fn text_stands_in_columns() {
        assert_eq!(table().render(Format::Text), "a      long\nfirst  2");
    }

    #[test]
    fn a_bar_in_a_cell_does_not_end_it_in_markdown() {
        let mut table = Table::new(vec!["a".to_owned()]);
        table.push(vec!["x|y\nz".to_owned()]);
        assert_eq!(table.render(Format::Markdown), "| a |\n|---|\n| x\\|y z |");
    }

    #[test]
    fn markdown_has_its_line_below_the_header() {
        let wanted = "| a | long |\n|---|---|\n| first | 2 |";
        assert_eq!(table().render(Format::Markdown), wanted);
    }
}
