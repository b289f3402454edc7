//! The whole list as lines of text, from the server to the process that changes the packet filter.
//!
//! ```text
//! tidegate-list 1 VERSION ENTRIES
//! NETWORK SECONDS
//! …
//! end ENTRIES
//! ```
//!
//! Only addresses and numbers are read, so that nothing of the text can reach the packet filter's language.

use std::fmt::Write;

use ipnet::IpNet;

use crate::flood_list::ListEntry;

/// The longest line that is read, with its end.
pub const LIST_LINE_BYTES_MAX: usize = 128;

/// Entries of one message.
const ENTRIES_MAX: usize = 65_536;

const FIRST_WORDS: &str = "tidegate-list 1";

/// The list at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMessage {
    /// Changes whenever a network comes or goes.
    pub version: u64,
    /// The networks.
    pub entries: Vec<ListEntry>,
}

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListMessageError {
    /// The first line is not that of a list of this version.
    #[error("the other side does not speak version 1 of this protocol")]
    NotAList,
    /// There are too many entries.
    #[error("a list has up to {ENTRIES_MAX} entries, and this one says {entries}")]
    TooLong {
        /// How many it says that there are.
        entries: usize,
    },
    /// A line is not an entry, or the last line is missing.
    #[error("line {line} is not an entry of the list")]
    Malformed {
        /// Its number, from 1.
        line: usize,
    },
}

impl ListMessage {
    /// The lines.
    pub fn encode(&self) -> String {
        let mut text = format!("{FIRST_WORDS} {} {}\n", self.version, self.entries.len());
        for ListEntry { network, seconds } in &self.entries {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{network} {seconds}");
        }
        let _ = writeln!(text, "end {}", self.entries.len());
        text
    }
}

/// Reads messages line by line.
#[derive(Debug, Default)]
pub struct ListMessageReader {
    message: Option<ListMessage>,
    entries: usize,
    line: usize,
}

impl ListMessageReader {
    /// Takes the next line, without its end. Returns a message with its last line.
    ///
    /// # Errors
    /// When the line belongs to no list. Nothing after it can be read.
    pub fn take(&mut self, line: &str) -> Result<Option<ListMessage>, ListMessageError> {
        self.line = self.line.saturating_add(1);
        let Some(message) = &mut self.message else {
            let numbers = line.strip_prefix(FIRST_WORDS).and_then(|rest| rest.strip_prefix(' '));
            let (version, entries) =
                numbers.and_then(|rest| rest.split_once(' ')).ok_or(ListMessageError::NotAList)?;
            let version = version.parse().map_err(|_| ListMessageError::NotAList)?;
            self.entries = entries.parse().map_err(|_| ListMessageError::NotAList)?;
            if self.entries > ENTRIES_MAX {
                return Err(ListMessageError::TooLong { entries: self.entries });
            }
            self.message = Some(ListMessage { version, entries: Vec::new() });
            return Ok(None);
        };
        let malformed = || ListMessageError::Malformed { line: self.line };
        if message.entries.len() == self.entries {
            let ends = line.strip_prefix("end ").and_then(|count| count.parse().ok());
            if ends != Some(self.entries) {
                return Err(malformed());
            }
            self.line = 0;
            return Ok(self.message.take());
        }
        let (network, seconds) = line.split_once(' ').ok_or_else(malformed)?;
        let network: IpNet = network.parse().map_err(|_| malformed())?;
        let seconds = seconds.parse().map_err(|_| malformed())?;
        if network != network.trunc() {
            return Err(malformed());
        }
        message.entries.push(ListEntry { network, seconds });
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<ListMessage>, ListMessageError> {
        let mut reader = ListMessageReader::default();
        let mut messages = Vec::new();
        for line in text.lines() {
            messages.extend(reader.take(line)?);
        }
        Ok(messages)
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let entry =
            |network: &str, seconds| ListEntry { network: network.parse().unwrap(), seconds };
        let entries = vec![entry("192.0.2.7/32", 60), entry("2001:db8::/64", 3_600)];
        let messages = [
            ListMessage { version: 7, entries },
            ListMessage { version: 8, ..ListMessage::default() },
        ];
        let text: String = messages.iter().map(ListMessage::encode).collect();
        assert_eq!(read(&text), Ok(messages.to_vec()));
        assert!(text.lines().all(|line| line.len() < LIST_LINE_BYTES_MAX));
    }

    #[test]
    fn anything_but_addresses_and_numbers_is_refused() {
        let list = |line: &str| read(&format!("tidegate-list 1 1 1\n{line}\nend 1\n"));
        assert!(list("192.0.2.7/32 60").is_ok());
        for line in [
            "192.0.2.7/32 60 }; flush ruleset",
            "192.0.2.7/32",
            "192.0.2.7/24 60",
            "192.0.2.7/32 -1",
            "192.0.2.7/32 99999999999",
            "localhost 60",
            "",
            "end 1",
        ] {
            assert_eq!(list(line), Err(ListMessageError::Malformed { line: 2 }), "{line}");
        }
        for text in
            ["GET / HTTP/1.1", "tidegate-list 2 1 1", "tidegate-list 1 1", "tidegate-list 1 1 x"]
        {
            assert_eq!(read(text), Err(ListMessageError::NotAList), "{text}");
        }
        let entries = ENTRIES_MAX + 1;
        let long = format!("tidegate-list 1 1 {entries}");
        assert_eq!(read(&long), Err(ListMessageError::TooLong { entries }));
        assert_eq!(
            read("tidegate-list 1 1 0\nend 1"),
            Err(ListMessageError::Malformed { line: 2 })
        );
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(lines in proptest::collection::vec(".{0,40}", 0..8)) {
            let _ = read(&lines.join("\n"));
            let _ = read(&format!("tidegate-list 1 1 3\n{}", lines.join("\n")));
        }
    }
}
