//! Statistics as lines of statsd or DogStatsD.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Arguments, Write as _};

use super::mogrifier::Mogrifier;
use super::reading::StatsReading;

/// The longest line: Datadog's agent reads no longer datagrams. A longer line is dropped.
const LINE_BYTES_MAX: usize = 8_192;

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// `name.__key=value:7|c`: tags are part of the name, as in envoyproxy/ratelimit.
    Statsd,
    /// `name:7|c|#key:value`.
    DogStatsd,
}

/// Turns readings into lines of what has grown.
#[derive(Debug)]
pub struct LineWriter {
    format: LineFormat,
    /// The tags of every line, sorted: a suffix of names, or the end of lines.
    tags: Vec<(String, String)>,
    mogrifiers: Vec<Mogrifier>,
    /// The counts that the server has received, by name. It has only names of the last reading, so that its size is
    /// bounded as the reading is.
    sent: BTreeMap<String, u64>,
}

/// Lines to send.
#[derive(Debug)]
pub struct Lines {
    text: String,
    /// The counts that the server knows when it has received the text up to this offset.
    counts: Vec<(usize, String, u64)>,
    /// Lines that were too long.
    dropped: u64,
}

impl Lines {
    /// The lines, each with its end.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many lines were left out because they were too long.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl LineWriter {
    /// A writer of this format. Tags without a key or a value are left out.
    pub fn new(format: LineFormat, tags: &[(String, String)], mogrifiers: Vec<Mogrifier>) -> Self {
        LineWriter { format, tags: sorted_tags(tags), mogrifiers, sent: BTreeMap::new() }
    }

    /// The lines of all gauges, and of counters and timers that have grown since the lines that were
    /// [confirmed](Self::confirm).
    pub fn lines(&mut self, reading: &StatsReading) -> Lines {
        let mut lines = Lines { text: String::new(), counts: Vec::new(), dropped: 0 };
        let mut names = BTreeSet::new();
        for (name, count) in &reading.counters {
            let grown = self.growth(name, *count);
            if grown > 0 {
                self.write(&mut lines, name, format_args!("{grown}|c"));
                lines.counts.push((lines.text.len(), name.clone(), *count));
            }
            names.insert(name.clone());
        }
        for (name, value) in &reading.gauges {
            self.write(&mut lines, name, format_args!("{value}|g"));
        }
        for timer in &reading.timers {
            for (micros, count) in timer.representatives() {
                let key = format!("{} {micros}", timer.name);
                let grown = self.growth(&key, count);
                if grown > 0 {
                    let millis = micros as f64 / 1e3;
                    // One line stands for many durations: the sample rate tells how many.
                    if grown == 1 {
                        self.write(&mut lines, &timer.name, format_args!("{millis}|ms"));
                    } else {
                        let rate = 1.0 / grown as f64;
                        self.write(&mut lines, &timer.name, format_args!("{millis}|ms|@{rate}"));
                    }
                    lines.counts.push((lines.text.len(), key.clone(), count));
                }
                names.insert(key);
            }
        }
        self.sent.retain(|name, _| names.contains(name));
        lines
    }

    /// Remembers that the server has received the lines up to this offset.
    pub fn confirm(&mut self, lines: &mut Lines, offset: usize) {
        let received = lines.counts.partition_point(|(end, ..)| *end <= offset);
        self.sent.extend(lines.counts.drain(..received).map(|(_, name, count)| (name, count)));
    }

    /// A count that fell starts again, as after a reload that removed and restored a rule.
    fn growth(&self, name: &str, count: u64) -> u64 {
        let sent = self.sent.get(name).copied().unwrap_or(0);
        count.checked_sub(sent).unwrap_or(count)
    }

    fn write(&self, lines: &mut Lines, name: &str, value: Arguments<'_>) {
        let text = &mut lines.text;
        let start = text.len();
        // Writing to a string cannot fail.
        let _ = match self.format {
            LineFormat::Statsd => {
                text.push_str(name);
                write_name_tags(text, &self.tags);
                writeln!(text, ":{value}")
            }
            LineFormat::DogStatsd => {
                let mut mogrifiers = self.mogrifiers.iter();
                let rewritten = mogrifiers.find_map(|mogrifier| mogrifier.rewrite(name));
                let (name, own_tags) = rewritten.unwrap_or_else(|| (name.to_owned(), Vec::new()));
                let _ = write!(text, "{name}:{value}");
                for (index, (key, value)) in self.tags.iter().chain(&own_tags).enumerate() {
                    let separator = if index == 0 { "|#" } else { "," };
                    let _ = write!(text, "{separator}{key}:{value}");
                }
                writeln!(text)
            }
        };
        if text.len() - start > LINE_BYTES_MAX {
            text.truncate(start);
            lines.dropped = lines.dropped.saturating_add(1);
        }
    }
}

/// Appends tags to a name, as gostats does.
pub(crate) fn write_name_tags(name: &mut String, tags: &[(String, String)]) {
    for (key, value) in tags {
        let _ = write!(name, ".__{key}={value}");
    }
}

/// Tags in the order of their keys, with the characters replaced that gostats replaces, and control characters.
pub(crate) fn sorted_tags(tags: &[(String, String)]) -> Vec<(String, String)> {
    let clean = |text: &str| -> String {
        let is_bad = |char: char| matches!(char, '.' | ':' | '|') || char.is_control();
        text.chars().map(|char| if is_bad(char) { '_' } else { char }).collect()
    };
    let is_complete = |(key, value): &&(String, String)| !key.is_empty() && !value.is_empty();
    let tags = tags.iter().filter(is_complete);
    let mut tags: Vec<_> = tags.map(|(key, value)| (key.clone(), clean(value))).collect();
    tags.sort();
    tags
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
    use std::time::Duration;

    use super::*;
    use crate::reading::Timer;

    fn counters(counts: &[(&str, u64)]) -> StatsReading {
        let counters = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        StatsReading { counters, ..StatsReading::default() }
    }

    /// The lines, as if the server received all of them.
    fn sent(writer: &mut LineWriter, reading: &StatsReading) -> String {
        let mut lines = writer.lines(reading);
        writer.confirm(&mut lines, usize::MAX);
        lines.text
    }

    fn tags() -> Vec<(String, String)> {
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        vec![tag("zone", "b:1.x|y"), tag("app", "x=y"), tag("empty", "")]
    }

    #[test]
    fn only_growth_is_written_and_only_once() {
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        assert_eq!(sent(&mut writer, &counters(&[("a", 3), ("b", 0)])), "a:3|c\n");
        assert_eq!(sent(&mut writer, &counters(&[("a", 5), ("b", 1)])), "a:2|c\nb:1|c\n");
        assert_eq!(sent(&mut writer, &counters(&[("a", 5), ("b", 1)])), "");
    }

    #[test]
    fn lines_that_were_not_received_are_written_again() {
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        let mut lines = writer.lines(&counters(&[("a", 3), ("b", 3)]));
        writer.confirm(&mut lines, "a:3|c\n".len());
        assert_eq!(sent(&mut writer, &counters(&[("a", 4), ("b", 4)])), "a:1|c\nb:4|c\n");
    }

    #[test]
    fn a_count_that_fell_or_was_gone_starts_again() {
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        sent(&mut writer, &counters(&[("a", 9), ("b", 2)]));
        assert_eq!(sent(&mut writer, &counters(&[("a", 2)])), "a:2|c\n");
        assert_eq!(sent(&mut writer, &counters(&[("a", 2), ("b", 3)])), "b:3|c\n");
    }

    #[test]
    fn gauges_are_written_always() {
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        let gauges = [("g".to_owned(), 0)].into();
        let reading = StatsReading { gauges, ..StatsReading::default() };
        assert_eq!(sent(&mut writer, &reading), "g:0|g\n");
        assert_eq!(sent(&mut writer, &reading), "g:0|g\n");
    }

    #[test]
    fn tags_are_part_of_the_name_or_follow_the_value() {
        let reading = counters(&[("a", 1)]);
        let mut statsd = LineWriter::new(LineFormat::Statsd, &tags(), Vec::new());
        assert_eq!(sent(&mut statsd, &reading), "a.__app=x=y.__zone=b_1_x_y:1|c\n");
        let mut dog = LineWriter::new(LineFormat::DogStatsd, &tags(), Vec::new());
        assert_eq!(sent(&mut dog, &reading), "a:1|c|#app:x=y,zone:b_1_x_y\n");
    }

    #[test]
    fn the_first_mogrifier_that_matches_rewrites_a_name() {
        let tag = vec![("of".to_owned(), "$1".to_owned())];
        let mogrifiers = vec![
            Mogrifier::new("^x", "never", Vec::new()).unwrap(),
            Mogrifier::new(r"^a\.(.*)", "short", tag).unwrap(),
            Mogrifier::new(".", "last", Vec::new()).unwrap(),
        ];
        let mut writer = LineWriter::new(LineFormat::DogStatsd, &[], mogrifiers);
        assert_eq!(sent(&mut writer, &counters(&[("a.b", 1)])), "short:1|c|#of:b\n");
    }

    #[test]
    fn equal_durations_are_one_line_with_a_sample_rate() {
        let buckets = vec![(Some(1_000), 1), (Some(2_000), 4), (None, 0)];
        let timer = Timer { name: "t".to_owned(), buckets, sum: Duration::ZERO };
        let reading = StatsReading { timers: vec![timer], ..StatsReading::default() };
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        assert_eq!(sent(&mut writer, &reading), "t:0.5|ms\nt:1.5|ms|@0.25\n");
        assert_eq!(sent(&mut writer, &reading), "");
    }

    #[test]
    fn a_line_that_no_agent_reads_is_dropped_and_counted() {
        let long = "x".repeat(LINE_BYTES_MAX);
        let mut writer = LineWriter::new(LineFormat::Statsd, &[], Vec::new());
        let lines = writer.lines(&counters(&[(&long, 1), ("a", 1)]));
        assert_eq!((lines.text(), lines.dropped()), ("a:1|c\n", 1));
    }

    #[test]
    fn packets_hold_whole_lines() {
        assert_eq!(packets("aa\nbb\ncc\n", 6), ["aa\nbb\n", "cc\n"]);
        assert_eq!(packets("a long line\nb\n", 4), ["a long line\n", "b\n"]);
        assert!(packets("", 4).is_empty());
    }
}
