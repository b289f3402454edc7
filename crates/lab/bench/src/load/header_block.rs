//! A request's headers, compressed as HTTP/2 clients do.
//!
//! Fields that never change enter the server's table with the first request and
//! are named by number from then on. The path is spelled out each time: common
//! clients do not keep it in the table.

/// The same headers for every request of a connection.
#[derive(Clone, Debug)]
pub(super) struct HeaderBlock {
    first: Vec<u8>,
    later: Vec<u8>,
}

/// Entries of the table that every peer has.
mod known {
    pub(super) const AUTHORITY: u8 = 1;
    pub(super) const METHOD_POST: u8 = 3;
    pub(super) const PATH: u8 = 4;
    pub(super) const SCHEME_HTTP: u8 = 6;
    pub(super) const CONTENT_TYPE: u8 = 31;
    pub(super) const USER_AGENT: u8 = 58;
    /// The number of the entry that was added last.
    pub(super) const LATEST: u8 = 62;
}

/// The entry with this number, name and value.
const INDEXED: u8 = 0x80;
/// A new entry, its name by number, or spelled out where that is zero.
const ADDED: u8 = 0x40;
/// No entry, its name by number.
const PASSING: u8 = 0x00;

impl HeaderBlock {
    /// A gRPC request to a path.
    pub(super) fn grpc(path: &str) -> Self {
        let mut shared = vec![INDEXED | known::METHOD_POST, INDEXED | known::SCHEME_HTTP];
        shared.push(PASSING | known::PATH);
        text(path, &mut shared);
        let mut first = shared.clone();
        first.push(ADDED | known::AUTHORITY);
        text("localhost", &mut first);
        first.push(ADDED | known::CONTENT_TYPE);
        text("application/grpc", &mut first);
        first.push(ADDED);
        text("te", &mut first);
        text("trailers", &mut first);
        first.push(ADDED | known::USER_AGENT);
        text("tidegate-bench", &mut first);
        let mut later = shared;
        later.extend((0..4).rev().map(|place| INDEXED | (known::LATEST + place)));
        HeaderBlock { first, later }
    }

    /// For the first request of a connection.
    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    /// For every other request.
    pub(super) fn later(&self) -> &[u8] {
        &self.later
    }
}

/// A string without Huffman coding, shorter than the 127 bytes that a one-byte length can express.
fn text(text: &str, out: &mut Vec<u8>) {
    out.push(u8::try_from(text.len()).unwrap_or(0x7E).min(0x7E));
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_requests_name_by_number_what_the_first_spelled_out() {
        let block = HeaderBlock::grpc("/a");
        assert_eq!(block.later(), [0x83, 0x86, 0x04, 2, b'/', b'a', 0xC1, 0xC0, 0xBF, 0xBE]);
        assert!(block.first().starts_with(&[0x83, 0x86, 0x04, 2, b'/', b'a', 0x41, 9]));
    }
}
