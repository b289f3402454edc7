//! Tables as CSV (RFC 4180). Texts that a spreadsheet would take for a formula get an apostrophe in front.

use std::fmt::Write;

/// A table that is written row by row.
#[derive(Debug, Default)]
pub(super) struct CsvTable(String);

impl CsvTable {
    /// A table with these columns.
    pub(super) fn new(columns: &[&str]) -> Self {
        let mut table = CsvTable::default();
        table.row(columns);
        table
    }

    pub(super) fn row(&mut self, cells: &[impl AsRef<str>]) {
        for (index, cell) in cells.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let text = cell.as_ref();
            // A formula in a caller's name would run in the spreadsheet of the person who opens the file.
            let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
            let apostrophe = if formula && text.parse::<f64>().is_err() { "'" } else { "" };
            let _ = write!(self.0, "{comma}\"{apostrophe}{}\"", text.replace('"', "\"\""));
        }
        self.0.push_str("\r\n");
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_and_quotes_are_escaped_and_numbers_are_not() {
        let mut table = CsvTable::new(&["caller", "refused"]);
        table.row(&["=HYPERLINK(\"http://evil\")", "-3"]);
        table.row(&["@SUM(A1)\n,", "5"]);
        let text = "\"caller\",\"refused\"\r\n\"'=HYPERLINK(\"\"http://evil\"\")\",\"-3\"\r\n\"'@SUM(A1)\n,\",\"5\"\r\n";
        assert_eq!(table.finish(), text);
    }
}
