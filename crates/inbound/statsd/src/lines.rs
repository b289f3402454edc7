//! Counts as lines of statsd or DogStatsD.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::mogrifier::Mogrifier;

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// `name.__key=value:7|c`: tags are part of the name, as in envoyproxy/ratelimit.
    Statsd,
    /// `name:7|c|#key:value`.
    DogStatsd,
}

/// Statistics since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsReading {
    /// Cumulative counts by name.
    pub counters: BTreeMap<String, u64>,
    /// Cumulative histograms of durations.
    pub timers: Vec<Timer>,
}

/// A histogram of durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Its name.
    pub name: String,
    /// For each bucket its representative duration in microseconds, and its cumulative count.
    pub buckets: Vec<(u64, u64)>,
}

/// Turns readings into lines of what has grown.
#[derive(Debug)]
pub struct LineWriter {
    format: LineFormat,
    /// The tags of every line: a suffix of names, or the end of lines.
    tags: Vec<(String, String)>,
    mogrifiers: Vec<Mogrifier>,
    /// What the server has received, by name. It holds the names of one reading.
    sent: BTreeMap<String, u64>,
}

/// Lines to send, and the counts that the server knows when it has received them.
#[derive(Debug)]
pub struct Lines {
    text: String,
    counts: BTreeMap<String, u64>,
}

impl Lines {
    /// The lines, each with its end.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl LineWriter {
    /// A writer of this format. Tags are sorted, so that a name stays the same.
    pub fn new(format: LineFormat, tags: &[(String, String)], mogrifiers: Vec<Mogrifier>) -> Self {
        let clean = |text: &str| text.replace([':', '|', '.', ',', '#', '\n', '='], "_");
        let mut tags: Vec<_> = tags.iter().map(|(key, value)| (clean(key), clean(value))).collect();
        tags.sort();
        LineWriter { format, tags, mogrifiers, sent: BTreeMap::new() }
    }

    /// The lines of everything that has grown since the lines that were [sent](Self::sent).
    pub fn lines(&self, reading: &StatsReading) -> Lines {
        let mut text = String::new();
        let mut counts = BTreeMap::new();
        for (name, count) in &reading.counters {
            let grown = self.growth(name, *count);
            if grown > 0 {
                self.write(&mut text, name, format_args!("{grown}|c"));
            }
            counts.insert(name.clone(), *count);
        }
        for Timer { name, buckets } in &reading.timers {
            for (micros, count) in buckets {
                let key = format!("{name} {micros}");
                let grown = self.growth(&key, *count);
                if grown > 0 {
                    // One line for many durations: the sample rate tells how many.
                    let (millis, rate) = (*micros as f64 / 1e3, 1.0 / grown as f64);
                    self.write(&mut text, name, format_args!("{millis}|ms|@{rate}"));
                }
                counts.insert(key, *count);
            }
        }
        Lines { text, counts }
    }

    /// Remembers that these lines were sent.
    pub fn sent(&mut self, lines: Lines) {
        self.sent = lines.counts;
    }

    /// A count that fell starts again, as after a reload that removed and restored a rule.
    fn growth(&self, name: &str, count: u64) -> u64 {
        let sent = self.sent.get(name).copied().unwrap_or(0);
        count.checked_sub(sent).unwrap_or(count)
    }

    fn write(&self, text: &mut String, name: &str, value: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = match self.format {
            LineFormat::Statsd => {
                text.push_str(name);
                for (key, value) in &self.tags {
                    let _ = write!(text, ".__{key}={value}");
                }
                writeln!(text, ":{value}")
            }
            LineFormat::DogStatsd => {
                let rewritten =
                    self.mogrifiers.iter().find_map(|mogrifier| mogrifier.rewrite(name));
                let (name, own_tags) = rewritten.unwrap_or_else(|| (name.to_owned(), Vec::new()));
                let _ = write!(text, "{name}:{value}");
                for (index, (key, value)) in self.tags.iter().chain(&own_tags).enumerate() {
                    let separator = if index == 0 { "|#" } else { "," };
                    let _ = write!(text, "{separator}{key}:{value}");
                }
                writeln!(text)
            }
        };
    }
}

/// Splits lines into packets of at most this size. A longer line is a packet by itself.
pub(crate) fn packets(text: &str, bytes_max: usize) -> Vec<&str> {
    let mut packets = Vec::new();
    let (mut start, mut end) = (0, 0);
    for line in text.split_inclusive('\n') {
        if end + line.len() - start > bytes_max && end > start {
            packets.extend(text.get(start..end));
            start = end;
        }
        end += line.len();
    }
    packets.extend(text.get(start..end).filter(|packet| !packet.is_empty()));
    packets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(counts: &[(&str, u64)]) -> StatsReading {
        let counters = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        StatsReading { counters, timers: Vec::new() }
    }

    fn tags() -> Vec<(String, String)> {
        vec![("zone".to_owned(), "b:1".to_owned()), ("app".to_owned(), "x".to_owned())]
    }

    #[test]
    fn only_growth_is_written_and_only_once() {
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        let lines = writer.lines(&counters(&[("a", 3), ("b", 0)]));
        assert_eq!(lines.text(), "a:3|c\n");
        writer.sent(lines);
        assert_eq!(writer.lines(&counters(&[("a", 5), ("b", 1)])).text(), "a:2|c\nb:1|c\n");
    }

    #[test]
    fn lines_that_were_not_sent_are_written_again() {
        let writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        drop(writer.lines(&counters(&[("a", 3)])));
        assert_eq!(writer.lines(&counters(&[("a", 4)])).text(), "a:4|c\n");
    }

    #[test]
    fn a_count_that_fell_starts_again() {
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        let lines = writer.lines(&counters(&[("a", 9)]));
        writer.sent(lines);
        assert_eq!(writer.lines(&counters(&[("a", 2)])).text(), "a:2|c\n");
    }

    #[test]
    fn tags_are_part_of_the_name_or_follow_the_value() {
        let reading = counters(&[("a", 1)]);
        let statsd = LineWriter::new(LineFormat::Statsd, &tags(), Vec::new());
        assert_eq!(statsd.lines(&reading).text(), "a.__app=x.__zone=b_1:1|c\n");
        let dog = LineWriter::new(LineFormat::DogStatsd, &tags(), Vec::new());
        assert_eq!(dog.lines(&reading).text(), "a:1|c|#app:x,zone:b_1\n");
    }

    #[test]
    fn the_first_mogrifier_that_matches_rewrites_a_name() {
        let tag = vec![("of".to_owned(), "$1".to_owned())];
        let mogrifiers = vec![
            Mogrifier::new("^x", "never", Vec::new()).unwrap(),
            Mogrifier::new(r"^a\.(.*)", "short", tag).unwrap(),
            Mogrifier::new(".", "last", Vec::new()).unwrap(),
        ];
        let writer = LineWriter::new(LineFormat::DogStatsd, &[], mogrifiers);
        assert_eq!(writer.lines(&counters(&[("a.b", 1)])).text(), "short:1|c|#of:b\n");
    }

    #[test]
    fn durations_are_written_with_a_sample_rate() {
        let timer = Timer { name: "t".to_owned(), buckets: vec![(1_500, 4), (9_000, 0)] };
        let reading = StatsReading { timers: vec![timer], ..StatsReading::default() };
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        let lines = writer.lines(&reading);
        assert_eq!(lines.text(), "t:1.5|ms|@0.25\n");
        writer.sent(lines);
        assert_eq!(writer.lines(&reading).text(), "");
    }

    #[test]
    fn packets_hold_whole_lines() {
        assert_eq!(packets("aa\nbb\ncc\n", 6), ["aa\nbb\n", "cc\n"]);
        assert_eq!(packets("a long line\nb\n", 4), ["a long line\n", "b\n"]);
        assert!(packets("", 4).is_empty());
    }
}
