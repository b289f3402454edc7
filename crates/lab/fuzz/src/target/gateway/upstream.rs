//! An upstream that accepts only what no server reads in two ways.
//!
//! Servers disagree about bare line feeds, folded lines, repeated lengths and lengths beside chunks: that is how requests
//! are smuggled. Here each of them is a problem, and so is a request without the gateway's mark.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The field that the gateway sets on every request.
pub(super) const MARK: &str = "x-gateway-mark";
pub(super) const MARK_VALUE: &str = "8c1f6b2e-fuzz";

/// The longest head and the longest body; the gateway's own maxima are below.
const HEAD_BYTES_MAX: usize = 256 * 1024;
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The first problem, if there was one.
type Problem = Arc<Mutex<Option<String>>>;

/// Listens until the process ends.
#[derive(Debug)]
pub(super) struct StrictUpstream {
    address: SocketAddr,
    problem: Problem,
}

impl StrictUpstream {
    /// Opens a free port.
    pub(super) fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let problem = Problem::default();
        let shared = Arc::clone(&problem);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let problem = Arc::clone(&shared);
                thread::spawn(move || serve(&stream, &problem));
            }
        });
        Ok(StrictUpstream { address, problem })
    }

    /// Where it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The problem of a request, once.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Answers requests until the connection ends. An incomplete request is none: the gateway gave it up.
fn serve(stream: &TcpStream, problem: &Problem) {
    let mut reader = BufReader::new(stream);
    loop {
        match read_request(&mut reader) {
            Ok(Some(head)) => {
                let body = if head.is_head { "" } else { "ok" };
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{body}");
                let mut writer = stream;
                if writer.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(text) => {
                let mut first = problem.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(text);
                return;
            }
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    is_head: bool,
    chunked: bool,
    length: u64,
    marks: u32,
    hosts: u32,
    lengths: u32,
}

/// Reads a whole request. None when the connection ends before its end.
fn read_request(reader: &mut impl BufRead) -> Result<Option<Head>, String> {
    let Some(head) = read_head(reader)? else { return Ok(None) };
    if !head.chunked {
        return Ok(skip(reader, head.length).then_some(head));
    }
    loop {
        let Some(line) = read_line(reader)? else { return Ok(None) };
        let size =
            u64::from_str_radix(&line, 16).map_err(|_| format!("a chunk of size {line:?}"))?;
        if size == 0 {
            break;
        }
        if !skip(reader, size) {
            return Ok(None);
        }
        match read_line(reader)? {
            None => return Ok(None),
            Some(line) if line.is_empty() => {}
            Some(line) => return Err(format!("a chunk that goes on after its end: {line:?}")),
        }
    }
    while let Some(line) = read_line(reader)? {
        if line.is_empty() {
            return Ok(Some(head));
        }
        field(&line)?;
    }
    Ok(None)
}

fn read_head(reader: &mut impl BufRead) -> Result<Option<Head>, String> {
    let Some(line) = read_line(reader)? else { return Ok(None) };
    let mut head = Head { is_head: line.starts_with("HEAD "), ..Head::default() };
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = parts[..] else {
        return Err(format!("a request line {line:?}"));
    };
    let is_target = target.starts_with('/') || target == "*";
    // Bytes beyond ASCII are no part of a URI, but every server takes them as they are.
    let readable = |char: char| char.is_ascii_graphic() || !char.is_ascii();
    if !is_token(method) || !is_target || !target.chars().all(readable) {
        return Err(format!("a request line {line:?}"));
    }
    let mut bytes = line.len();
    loop {
        let Some(line) = read_line(reader)? else { return Ok(None) };
        if line.is_empty() {
            break;
        }
        bytes += line.len();
        if bytes > HEAD_BYTES_MAX {
            return Err("a head that does not end".to_owned());
        }
        let (name, value) = field(&line)?;
        match name.to_ascii_lowercase().as_str() {
            "host" => head.hosts += 1,
            MARK if value == MARK_VALUE => head.marks += 1,
            "transfer-encoding" if value == "chunked" && !head.chunked => head.chunked = true,
            "transfer-encoding" => return Err(format!("a coding {value:?}")),
            "content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let length = value.parse().ok().filter(|_| digits);
                head.length = length.ok_or_else(|| format!("a length {value:?}"))?;
                head.lengths += 1;
            }
            _ => {}
        }
    }
    match head {
        Head { marks: 0, .. } => Err(format!("a request that the gateway did not write: {line:?}")),
        Head { hosts: 1, marks: 1, lengths: 0, .. }
        | Head { hosts: 1, marks: 1, lengths: 1, chunked: false, .. } => Ok(Some(head)),
        _ => Err(format!("a head with two meanings: {line:?} {head:?}")),
    }
}

/// A line without its end, which is a carriage return and a line feed. None when the connection ends first.
fn read_line(reader: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    // An error of the connection is its end.
    let read = reader.take(HEAD_BYTES_MAX as u64).read_until(b'\n', &mut line);
    if read.is_err() || line.pop() != Some(b'\n') {
        return Ok(None);
    }
    if line.pop() != Some(b'\r') || line.contains(&b'\r') || line.contains(&0) {
        return Err(format!("a line {:?}", line.escape_ascii().to_string()));
    }
    // Values may have bytes that are no text. They have one meaning, as bytes.
    Ok(Some(line.iter().map(|byte| char::from(*byte)).collect()))
}

fn field(line: &str) -> Result<(&str, &str), String> {
    let parts = line.split_once(':').filter(|(name, _)| is_token(name));
    let (name, value) = parts.ok_or_else(|| format!("a field {line:?}"))?;
    Ok((name, value.trim_matches([' ', '\t'])))
}

fn is_token(text: &str) -> bool {
    let marks = "!#$%&'*+-.^_`|~";
    !text.is_empty()
        && text.chars().all(|char| char.is_ascii_alphanumeric() || marks.contains(char))
}

/// Whether so many bytes came.
fn skip(reader: &mut impl BufRead, bytes: u64) -> bool {
    let bytes = bytes.min(BODY_BYTES_MAX);
    io::copy(&mut reader.take(bytes), &mut io::sink()).is_ok_and(|copied| copied == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: &str) -> Result<Option<Head>, String> {
        read_request(&mut request.as_bytes())
    }

    fn marked(fields: &str, body: &str) -> Result<Option<Head>, String> {
        read(&format!("POST / HTTP/1.1\r\nhost: a\r\n{MARK}: {MARK_VALUE}\r\n{fields}\r\n{body}"))
    }

    #[test]
    fn requests_with_one_meaning_are_accepted() {
        assert!(marked("", "").unwrap().is_some());
        assert!(marked("content-length: 2\r\n", "ok").unwrap().is_some());
        assert!(
            marked("transfer-encoding: chunked\r\n", "2\r\nok\r\n0\r\nx: y\r\n\r\n")
                .unwrap()
                .is_some()
        );
        assert_eq!(marked("content-length: 3\r\n", "ok"), Ok(None), "given up");
    }

    #[test]
    fn requests_with_two_meanings_are_problems() {
        assert!(
            marked("content-length: 2\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n").is_err()
        );
        assert!(marked("content-length: 2\r\ncontent-length: 2\r\n", "ok").is_err());
        assert!(marked("content-length: +2\r\n", "ok").is_err());
        assert!(marked("transfer-encoding: gzip, chunked\r\n", "0\r\n\r\n").is_err());
        assert!(marked("a: b\n", "").is_err());
        assert!(marked("a : b\r\n", "").is_err());
        assert!(marked(" folded\r\n", "").is_err());
        assert!(marked("transfer-encoding: chunked\r\n", "0x2\r\nok\r\n0\r\n\r\n").is_err());
    }

    #[test]
    fn a_request_without_the_mark_was_smuggled() {
        let problem = read("GET /admin HTTP/1.1\r\nhost: a\r\n\r\n").unwrap_err();
        assert!(problem.contains("did not write"), "{problem}");
    }
}
