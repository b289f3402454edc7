//! A replay's report as text, Markdown, JSON, charts and one HTML page.

mod blocks;
mod line_chart;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_insight::LimitFinding;

use crate::overload::{Format, Table};

use super::report::{LimitResult, RefusedRow, ReplayReport, SetResult};
use blocks::Block;
pub use line_chart::{ChartLine, LineChart};

/// Rows of a table in the report; the JSON has them all.
const ROWS_MAX: usize = 50;

impl ReplayReport {
    /// The report in a format.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Json => {
                let text = serde_json::to_string_pretty(self);
                text.unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}")) + "\n"
            }
            Format::Text | Format::Markdown => blocks::text(&self.blocks(), format),
        }
    }

    /// The report as one HTML page.
    pub fn html(&self) -> String {
        blocks::html(&self.blocks())
    }

    /// Writes the report in all formats to a folder, and returns the files.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_to(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder)?;
        let mut files = vec![
            ("report.html".to_owned(), self.html()),
            ("report.md".to_owned(), self.render(Format::Markdown)),
            ("report.json".to_owned(), self.render(Format::Json)),
            ("evidence.json".to_owned(), serde_json::to_string(&self.evidence)? + "\n"),
        ];
        for block in self.blocks() {
            if let Block::Chart(name, svg) = block {
                let style = format!("<style>{}</style>", line_chart::STYLE);
                let svg = svg.replacen("<title>", &format!("{style}<title>"), 1);
                files.push((format!("{name}.svg"), svg + "\n"));
            }
        }
        let mut written = Vec::new();
        for (name, text) in files {
            let path = folder.join(name);
            fs::write(&path, text)?;
            written.push(path);
        }
        Ok(written)
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = vec![
            Block::Title("Replay of recorded traffic".to_owned()),
            Block::Paragraph(self.summary()),
            Block::Table(self.set_table()),
        ];
        if let Some(bounds) = self.bounds() {
            blocks.push(Block::Paragraph(bounds));
        }
        if let Some(verdicts) = &self.verdicts {
            blocks.push(Block::Paragraph(format!(
                "Of {} verdicts of the decision log, {} differ.",
                verdicts.compared, verdicts.different
            )));
        }
        if !self.notes.is_empty() {
            blocks.push(Block::Heading("Notes"));
            blocks.push(Block::List(self.notes.clone()));
        }
        self.add_charts(&mut blocks);
        self.add_flips(&mut blocks);
        blocks.push(Block::Heading("Limits"));
        blocks.push(Block::Table(self.limit_table()));
        self.add_worst(&mut blocks);
        self.add_windows(&mut blocks);
        self.add_demand(&mut blocks);
        self.add_findings(&mut blocks);
        self.add_logs(&mut blocks);
        blocks
    }

    fn summary(&self) -> String {
        let hours = self.seconds / 3_600;
        let time = match hours {
            0..3 => format!("{} minutes", self.seconds.div_ceil(60)),
            3..72 => format!("{hours} hours"),
            _ => format!("{} days", hours / 24),
        };
        format!(
            "{} requests in {time}, from {} to {}. The log says that {} of them were refused.",
            self.new.requests, self.from, self.to, self.logged_refused
        )
    }

    /// A count, or a share of all requests if the log is a sample.
    fn amount(&self, count: u64, of: u64) -> String {
        let percent = percent(super::report::share(count, of));
        if self.is_complete { format!("{count} ({percent})") } else { percent }
    }

    fn set_table(&self) -> Table {
        let header = ["rules", "version", "refused", "would refuse in shadow", "soft", "unlimited"];
        let mut table = Table::new(header.map(str::to_owned).to_vec());
        let mut add = |name: &str, set: &SetResult| {
            table.push(vec![
                name.to_owned(),
                set.rules.clone(),
                self.amount(set.refused, set.requests),
                self.amount(set.would_refuse, set.requests),
                self.amount(set.soft, set.requests),
                self.amount(set.unlimited, set.requests),
            ]);
        };
        if let Some(old) = &self.old {
            add("old", old);
        }
        add("new", &self.new);
        if let Some(obedient) = &self.obedient {
            add("new, clients wait", obedient);
        }
        if let Some(expected) = &self.expected {
            add("new, clients as before", expected);
        }
        table
    }

    fn bounds(&self) -> Option<String> {
        let obedient = self.obedient.as_ref()?;
        let expected = self.expected.as_ref().map(|expected| {
            format!("; {} if clients do as before", percent(expected.refused_share))
        });
        Some(format!(
            "The new rules refuse between {} (clients wait as they are asked to) and {} (clients send as logged){}.",
            percent(obedient.refused_share.min(self.new.refused_share)),
            percent(self.new.refused_share.max(obedient.refused_share)),
            expected.unwrap_or_default(),
        ))
    }

    fn add_flips(&self, blocks: &mut Vec<Block>) {
        let Some(flips) = &self.flips else { return };
        blocks.push(Block::Heading("Flips"));
        let requests = self.new.requests;
        blocks.push(Block::Paragraph(format!(
            "{} of the requests are newly refused, {} newly admitted; {} callers are affected.",
            self.amount(flips.newly_refused, requests),
            self.amount(flips.newly_admitted, requests),
            flips.callers
        )));
        if flips.most.is_empty() {
            return;
        }
        let header = ["caller", "newly refused", "newly admitted", "of its requests", "first"];
        let mut table = Table::new(header.map(str::to_owned).to_vec());
        for row in &flips.most {
            let flipped = row.newly_refused + row.newly_admitted;
            table.push(vec![
                row.caller.clone(),
                row.newly_refused.to_string(),
                row.newly_admitted.to_string(),
                percent(super::report::share(flipped, row.requests)),
                row.first.clone(),
            ]);
        }
        blocks.push(Block::Table(table));
    }

    fn limit_table(&self) -> Table {
        let mut header = vec!["limit"];
        let has_old = self.old.is_some();
        if has_old {
            header.extend(["old: admitted", "refused", "callers refused"]);
        }
        header.extend(["new: admitted", "soft", "refused", "would refuse", "callers refused"]);
        let mut table = Table::new(header.iter().map(|name| (*name).to_owned()).collect());
        let mut rows: Vec<_> = self.limits.iter().collect();
        let refused = |result: &Option<LimitResult>| {
            result.map_or(0, |result| result.refused + result.would_refuse)
        };
        rows.sort_by_key(|row| std::cmp::Reverse(refused(&row.new).max(refused(&row.old))));
        for row in rows.iter().take(ROWS_MAX) {
            let mut cells = vec![row.limit.to_string()];
            if has_old {
                let old = row.old.map(|old| [old.admitted, old.refused, old.callers_refused]);
                cells.extend(counts(old));
            }
            let new = row.new.map(|new| {
                [new.admitted, new.soft, new.refused, new.would_refuse, new.callers_refused]
            });
            cells.extend(counts(new));
            table.push(cells);
        }
        table
    }

    fn add_worst(&self, blocks: &mut Vec<Block>) {
        if self.worst.is_empty() {
            return;
        }
        blocks.push(Block::Heading("Most refused callers"));
        let header = ["caller", "refused", "limit", "first"].map(str::to_owned);
        let mut table = Table::new(header.to_vec());
        for RefusedRow { caller, refused, limit, first } in self.worst.iter().take(10) {
            let limit = limit.as_ref().map(ToString::to_string).unwrap_or_default();
            table.push(vec![caller.clone(), refused.to_string(), limit, first.clone()]);
        }
        let rows: Vec<(String, f64)> = self
            .worst
            .iter()
            .take(10)
            .map(|row| (row.caller.clone(), number(row.refused)))
            .collect();
        let svg = line_chart::bars("Ten most refused callers under the new rules", &rows);
        blocks.push(Block::Chart("callers", svg));
        blocks.push(Block::Table(table));
    }

    fn add_windows(&self, blocks: &mut Vec<Block>) {
        if self.windows.is_empty() {
            return;
        }
        blocks.push(Block::Heading("Sliding windows beside an exact log"));
        let header = ["limit", "requests", "wrongly admitted", "wrongly refused"];
        let mut table = Table::new(header.map(str::to_owned).to_vec());
        for row in self.windows.iter().take(ROWS_MAX) {
            table.push(vec![
                row.limit.to_string(),
                row.judged.to_string(),
                percent(row.wrongly_admitted),
                percent(row.wrongly_refused),
            ]);
        }
        blocks.push(Block::Table(table));
    }

    fn add_demand(&self, blocks: &mut Vec<Block>) {
        if self.demand.is_empty() {
            return;
        }
        blocks.push(Block::Heading("Demand"));
        blocks.push(Block::Paragraph(
            "The highest use of one window by each caller, and the number that fits the usual callers.".to_owned(),
        ));
        let header = ["limit", "callers", "p50", "p90", "p99", "p99.9", "max", "limit now", "fits"];
        let mut table = Table::new(header.map(str::to_owned).to_vec());
        for row in &self.demand {
            let peaks = row.peaks;
            let numbers = [row.callers, peaks.p50, peaks.p90, peaks.p99, peaks.p999, peaks.max];
            let mut cells = vec![row.limit.to_string()];
            cells.extend(numbers.iter().map(ToString::to_string));
            cells.extend([row.quota.to_string(), row.recommended.to_string()]);
            table.push(cells);
        }
        if let Some(row) = self.demand.first() {
            let points = row.curve.iter();
            let line = ChartLine {
                class: "new",
                name: "callers refused, %",
                points: points
                    .map(|point| (number(point.limit), number(point.refused_per_mille) / 10.0))
                    .collect(),
            };
            let chart = LineChart {
                title: format!("Callers that other numbers would refuse: {}", row.limit),
                x_label: "limit".to_owned(),
                y_label: "% of callers".to_owned(),
                lines: vec![line],
                mark: Some((number(row.quota), "now".to_owned())),
            };
            blocks.push(Block::Chart("callers-refused", chart.svg()));
            let peaks = row.peaks;
            let rows = [
                ("p50", peaks.p50),
                ("p90", peaks.p90),
                ("p99", peaks.p99),
                ("p99.9", peaks.p999),
                ("max", peaks.max),
                ("limit", row.quota),
            ];
            let rows = rows.map(|(name, value)| (name.to_owned(), number(value)));
            let title = format!("Use of the quota by quantile of callers: {}", row.limit);
            blocks.push(Block::Chart("quota-use", line_chart::bars(&title, &rows)));
        }
        blocks.push(Block::Table(table));
    }

    fn add_findings(&self, blocks: &mut Vec<Block>) {
        if self.findings.is_empty() {
            return;
        }
        blocks.push(Block::Heading("Findings on the new rules"));
        for LimitFinding { kind, limit, summary, figures, confidence, suggestion, .. } in
            self.findings.iter().take(ROWS_MAX)
        {
            let figures: Vec<String> = figures.iter().map(ToString::to_string).collect();
            blocks.push(Block::Paragraph(format!(
                "{} at {limit}: {summary} ({}; confidence {}). Suggestion: {}.",
                kind.as_str(),
                figures.join(", "),
                confidence.as_str(),
                suggestion.text
            )));
            blocks.extend(suggestion.diff.clone().map(Block::Code));
        }
    }

    fn add_logs(&self, blocks: &mut Vec<Block>) {
        blocks.push(Block::Heading("Logs"));
        let header = ["log", "format", "lines", "requests", "unreadable", "empty"];
        let mut table = Table::new(header.map(str::to_owned).to_vec());
        for log in self.logs.iter().take(ROWS_MAX) {
            let counts = [log.lines, log.read, log.unreadable + log.too_long, log.empty];
            let mut cells = vec![log.name.clone(), log.format.clone()];
            cells.extend(counts.iter().map(ToString::to_string));
            table.push(cells);
        }
        blocks.push(Block::Table(table));
        let examples = self.logs.iter().flat_map(|log| {
            log.examples.iter().map(|line| format!("{}: unreadable: {line}", log.name))
        });
        let examples: Vec<String> = examples.take(10).collect();
        if !examples.is_empty() {
            blocks.push(Block::List(examples));
        }
    }

    fn add_charts(&self, blocks: &mut Vec<Block>) {
        let timeline = &self.timeline;
        if timeline.requests.len() < 2 {
            return;
        }
        let step = number(timeline.step_seconds) / 60.0;
        let line = |class, name, counts: &[u64]| ChartLine {
            class,
            name,
            points: (0_u32..)
                .zip(counts)
                .map(|(index, count)| (f64::from(index) * step, number(*count) / step))
                .collect(),
        };
        let mut lines = Vec::new();
        if self.old.is_some() {
            lines.push(line("old", "old rules", &timeline.old_refused));
        }
        lines.push(line("new", "new rules", &timeline.new_refused));
        let chart = LineChart {
            title: "Refused requests per minute".to_owned(),
            x_label: "minutes since the start".to_owned(),
            y_label: "requests per minute".to_owned(),
            lines,
            mark: None,
        };
        blocks.push(Block::Heading("Over time"));
        blocks.push(Block::Chart("refused", chart.svg()));
        let chart = LineChart {
            title: "Requests per minute".to_owned(),
            x_label: "minutes since the start".to_owned(),
            y_label: "requests per minute".to_owned(),
            lines: vec![line("all", "requests", &timeline.requests)],
            mark: None,
        };
        blocks.push(Block::Chart("requests", chart.svg()));
    }
}

fn counts<const N: usize>(counts: Option<[u64; N]>) -> Vec<String> {
    match counts {
        Some(counts) => counts.iter().map(ToString::to_string).collect(),
        None => vec!["–".to_owned(); N],
    }
}

/// A share in percent, with as many digits as it needs.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 {
        "0 %".to_owned()
    } else if percent < 0.1 {
        format!("{percent:.4} %")
    } else {
        format!("{percent:.2} %")
    }
}

#[expect(clippy::cast_precision_loss, reason = "charts and tables need no more than 52 bits")]
const fn number(count: u64) -> f64 {
    count as f64
}

/// Text for HTML and SVG. Control characters and marks that change the direction of writing are shown, not obeyed.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(letter.escape_unicode());
            }
            letter if letter.is_control() => out.extend(letter.escape_unicode()),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<script>\"'&"), "&lt;script&gt;&quot;&#39;&amp;");
        assert_eq!(escape("a\u{202e}b\0"), "a\\u{202e}b\\u{0}");
    }
}
