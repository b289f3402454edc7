//! Lines of a recording, compressed or not.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// A longer line is skipped and counted.
pub(crate) const LINE_BYTES_MAX: usize = 256 * 1_024;
/// The buffer in front of a file.
const BUFFER_BYTES: usize = 256 * 1_024;

/// The lines of one recording.
pub(crate) struct LineReader {
    input: Box<dyn BufRead>,
    line: Vec<u8>,
    /// The text of a line that is not UTF-8, with replacement characters.
    repaired: String,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextLine<'r> {
    /// A line without its end.
    Text(&'r str),
    /// A line that is too long to be a request.
    TooLong,
    /// The recording is cut off: a compressed file without its end.
    CutOff,
    /// There are no more lines.
    End,
}

impl LineReader {
    /// Reads lines; input that begins as gzip does is decompressed.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(crate) fn new(input: impl Read + 'static) -> io::Result<Self> {
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let is_gzip = input.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let input: Box<dyn BufRead> = if is_gzip {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input)))
        } else {
            Box::new(input)
        };
        Ok(LineReader { input, line: Vec::new(), repaired: String::new() })
    }

    /// The next line.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(crate) fn next(&mut self) -> io::Result<NextLine<'_>> {
        self.line.clear();
        let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
        let read = (&mut self.input).take(most).read_until(b'\n', &mut self.line);
        match read {
            Ok(0) => return Ok(NextLine::End),
            Ok(_) => {}
            Err(error) if is_cut_off(&error) => return Ok(NextLine::CutOff),
            Err(error) => return Err(error),
        }
        if self.line.len() >= LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
            return self.skip_line();
        }
        while matches!(self.line.last(), Some(b'\n' | b'\r')) {
            self.line.pop();
        }
        if let Ok(text) = std::str::from_utf8(&self.line) {
            return Ok(NextLine::Text(text));
        }
        self.repaired = String::from_utf8_lossy(&self.line).into_owned();
        Ok(NextLine::Text(&self.repaired))
    }

    /// Reads to the end of a line without keeping it.
    fn skip_line(&mut self) -> io::Result<NextLine<'_>> {
        loop {
            let (used, ended) = match self.input.fill_buf() {
                Ok([]) => return Ok(NextLine::TooLong),
                Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(at) => (at + 1, true),
                    None => (bytes.len(), false),
                },
                Err(error) if is_cut_off(&error) => return Ok(NextLine::CutOff),
                Err(error) => return Err(error),
            };
            self.input.consume(used);
            if ended {
                return Ok(NextLine::TooLong);
            }
        }
    }
}

/// Whether a compressed file ends too early or is damaged; what was read before can be used.
fn is_cut_off(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | InvalidData | InvalidInput)
}

impl std::fmt::Debug for LineReader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LineReader").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn texts(bytes: Vec<u8>) -> Vec<String> {
        let mut reader = LineReader::new(io::Cursor::new(bytes)).unwrap();
        let mut texts = Vec::new();
        loop {
            match reader.next().unwrap() {
                NextLine::End => return texts,
                NextLine::Text(text) => texts.push(text.to_owned()),
                other => {
                    texts.push(format!("{other:?}"));
                    if texts.last().unwrap() == "CutOff" {
                        return texts;
                    }
                }
            }
        }
    }

    fn zipped(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn ends_of_lines_of_both_kinds_are_removed() {
        assert_eq!(texts(b"a\r\nb\n\nc".to_vec()), ["a", "b", "", "c"]);
        assert_eq!(texts(Vec::new()), [""; 0]);
    }

    #[test]
    fn a_very_long_line_is_skipped() {
        let mut bytes = vec![b'x'; 1 << 20];
        bytes.extend_from_slice(b"\nnext\n");
        assert_eq!(texts(bytes), ["TooLong", "next"]);
    }

    #[test]
    fn compressed_files_are_read_also_when_they_are_joined() {
        let mut bytes = zipped("a\nb\n");
        bytes.extend(zipped("c\n"));
        assert_eq!(texts(bytes), ["a", "b", "c"]);
    }

    #[test]
    fn a_compressed_file_that_is_cut_off_gives_what_it_has() {
        let text: String = (0..100_000).map(|number| format!("{number}\n")).collect();
        let mut bytes = zipped(&text);
        bytes.truncate(bytes.len() / 2);
        let texts = texts(bytes);
        assert!(texts.len() > 1_000, "{}", texts.len());
        assert_eq!(texts.last().unwrap(), "CutOff");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(texts(vec![b'a', 0xff, b'\n']), ["a\u{fffd}"]);
    }
}
