//! Logs that are lines of a `log_format` of nginx: text with variables.
//!
//! The common and the combined format of web servers are formats too. A variable reaches up to the text that follows it
//! in the format. A backslash protects the character after it, so that values may hold quotes as Apache escapes them
//! (`\"`); nginx writes `\x22`.

use std::borrow::Cow;

use tidegate_algorithms::Nanos;

use super::super::logged_request::{LoggedRequest, TimeResolution};
use super::log_time::{CommonTime, epoch_time, fraction, iso_time};

/// The common format of web servers.
pub(crate) const COMMON: &str =
    "$remote_addr $remote_ident $remote_user [$time_local] \"$request\" $status $body_bytes_sent";
/// The combined format of nginx and Apache.
pub(crate) const COMBINED: &str = "$remote_addr $remote_ident $remote_user [$time_local] \
                                   \"$request\" $status $body_bytes_sent \"$http_referer\" \
                                   \"$http_user_agent\"";
/// The most variables of a format.
const VARIABLES_MAX: usize = 128;

/// A compiled `log_format`.
#[derive(Clone, Debug)]
pub(crate) struct LineFormat {
    /// The text before the first variable.
    prefix: String,
    variables: Vec<FormatVariable>,
    time: CommonTime,
    /// Fields are kept only if something reads them.
    keeps_fields: bool,
}

#[derive(Clone, Debug)]
struct FormatVariable {
    role: VariableRole,
    name: String,
    /// The text that ends it; empty for the end of the line.
    end: String,
}

/// What a variable tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VariableRole {
    Client,
    User,
    TimeLocal,
    TimeIso,
    Milliseconds,
    RequestLine,
    Method,
    Target,
    Host,
    Status,
    RequestTime,
    LimitStatus,
    Field,
}

impl VariableRole {
    fn of(name: &str) -> Self {
        match name {
            "remote_addr" | "realip_remote_addr" | "binary_remote_addr" => VariableRole::Client,
            "remote_user" => VariableRole::User,
            "time_local" => VariableRole::TimeLocal,
            "time_iso8601" => VariableRole::TimeIso,
            "msec" => VariableRole::Milliseconds,
            "request" => VariableRole::RequestLine,
            "request_method" => VariableRole::Method,
            "request_uri" | "uri" => VariableRole::Target,
            "host" | "http_host" | "server_name" => VariableRole::Host,
            "status" => VariableRole::Status,
            "request_time" => VariableRole::RequestTime,
            "limit_req_status" => VariableRole::LimitStatus,
            _ => VariableRole::Field,
        }
    }
}

/// Why a `log_format` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Two variables without a text between them.
    #[error(
        "`${first}` and `${second}` have nothing between them, so that nothing tells them apart"
    )]
    Adjacent {
        /// The first.
        first: String,
        /// The second.
        second: String,
    },
    /// No time.
    #[error("the format has no time: it needs `$time_local`, `$time_iso8601` or `$msec`")]
    NoTime,
    /// Too long.
    #[error("the format has more than {VARIABLES_MAX} variables")]
    TooManyVariables,
}

impl LineFormat {
    /// Compiles a format, such as `$remote_addr [$time_local] "$request"`.
    pub(crate) fn compile(text: &str) -> Result<Self, FormatError> {
        let mut parts = text.split('$');
        let prefix = parts.next().unwrap_or_default().to_owned();
        let mut variables: Vec<FormatVariable> = Vec::new();
        for part in parts {
            let (name, end) = split_variable(part);
            if let Some(last) = variables.last().filter(|last| last.end.is_empty()) {
                let (first, second) = (last.name.clone(), name.to_owned());
                return Err(FormatError::Adjacent { first, second });
            }
            let role = VariableRole::of(name);
            variables.push(FormatVariable { role, name: name.to_owned(), end: end.to_owned() });
        }
        if variables.len() > VARIABLES_MAX {
            return Err(FormatError::TooManyVariables);
        }
        use VariableRole::{Milliseconds, TimeIso, TimeLocal};
        if !variables.iter().any(|one| matches!(one.role, TimeLocal | TimeIso | Milliseconds)) {
            return Err(FormatError::NoTime);
        }
        Ok(LineFormat { prefix, variables, time: CommonTime::default(), keeps_fields: true })
    }

    /// The same format without values that only `$http_…` and other variables of descriptors would read.
    pub(crate) fn without_fields(self) -> Self {
        LineFormat { keeps_fields: false, ..self }
    }

    /// The variables that it has.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|variable| &*variable.name)
    }

    /// Reads a line; [`None`] if it is not of this format.
    pub(crate) fn read<'l>(&mut self, line: &'l str) -> Option<LoggedRequest<'l>> {
        let mut rest = line.strip_prefix(&*self.prefix)?;
        let mut request = LoggedRequest { ends_at: true, ..LoggedRequest::default() };
        let mut has_time = false;
        let last = self.variables.len().checked_sub(1)?;
        for (index, variable) in self.variables.iter().enumerate() {
            let (value, after) = if variable.end.is_empty() {
                (rest, "")
            } else {
                let quoted = variable.end.starts_with('"');
                match find_end(rest, &variable.end, quoted) {
                    Some(at) => (rest.get(..at)?, rest.get(at + variable.end.len()..)?),
                    // The text after the last variable may be missing, such as a trailing quote.
                    None if index == last => (rest, ""),
                    None => return None,
                }
            };
            rest = after;
            has_time |= set(&mut request, variable, value, &mut self.time, self.keeps_fields)?;
        }
        has_time.then_some(request)
    }
}

/// The name of a variable, and the text after it. nginx also allows `${name}`.
fn split_variable(part: &str) -> (&str, &str) {
    if let Some((name, end)) = part.strip_prefix('{').and_then(|part| part.split_once('}')) {
        return (name, end);
    }
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let length = part.find(|letter| !is_name(letter)).unwrap_or(part.len());
    part.split_at(length)
}

/// Where a value ends: at the first `end` that no backslash protects.
fn find_end(text: &str, end: &str, quoted: bool) -> Option<usize> {
    let first = *end.as_bytes().first()?;
    let bytes = text.as_bytes();
    // Text between quotes is long; an address or a status ends after a few bytes.
    let next = |rest: &[u8]| {
        if quoted {
            memchr::memchr2(first, b'\\', rest)
        } else {
            rest.iter().position(|byte| *byte == first)
        }
    };
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        at += next(rest)?;
        let found = bytes.get(at..)?;
        if quoted && found.first() == Some(&b'\\') {
            at += 2;
        } else if found.starts_with(end.as_bytes()) {
            return Some(at);
        } else {
            at += 1;
        }
    }
}

/// Sets what a variable tells; returns whether that was the time. [`None`] if the value makes the line unreadable.
fn set<'l>(
    request: &mut LoggedRequest<'l>,
    variable: &FormatVariable,
    value: &'l str,
    time: &mut CommonTime,
    keeps_fields: bool,
) -> Option<bool> {
    let is_set = || value != "-" && !value.is_empty();
    match variable.role {
        VariableRole::Client => request.client = is_set().then(|| address(value)),
        VariableRole::User => request.user = is_set().then(|| unescape(value)),
        VariableRole::TimeLocal => {
            // A more exact time of the same line wins.
            if request.resolution == TimeResolution::Second {
                request.time = time.read(value)?;
            }
            return Some(true);
        }
        VariableRole::TimeIso => {
            if request.resolution == TimeResolution::Second {
                request.time = iso_time(value)?;
            }
            return Some(true);
        }
        VariableRole::Milliseconds => {
            request.time = epoch_time(value)?;
            request.resolution = TimeResolution::Exact;
            return Some(true);
        }
        VariableRole::RequestLine => request.set_request_line(unescape(value)),
        VariableRole::Method => request.method = is_set().then(|| unescape(value)),
        VariableRole::Target => request.target = is_set().then(|| unescape(value)),
        VariableRole::Host => request.host = is_set().then(|| unescape(value)),
        VariableRole::Status => {
            request.status = value.parse().ok();
            request.refused |= request.status == Some(429);
        }
        VariableRole::RequestTime => request.duration = seconds(value),
        VariableRole::LimitStatus => request.refused |= value == "REJECTED",
        VariableRole::Field => {}
    }
    let named = matches!(variable.role, VariableRole::Field | VariableRole::LimitStatus);
    if named && keeps_fields && is_set() {
        request.add_field(variable.name.clone(), unescape(value));
    }
    Some(false)
}

/// A duration in seconds, such as `0.123`.
pub(crate) fn seconds(text: &str) -> Option<Nanos> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = whole.parse().ok()?;
    let nanos = whole.checked_mul(1_000_000_000)?.checked_add(u64::from(fraction(part)?))?;
    Some(Nanos::new(nanos))
}

/// An address without brackets and port.
pub(crate) fn address(text: &str) -> Cow<'_, str> {
    if let Some(inside) = text.strip_prefix('[') {
        return Cow::Borrowed(inside.split(']').next().unwrap_or(inside));
    }
    match text.split_once(':') {
        // `192.0.2.1:443`; an IPv6 address has further colons.
        Some((host, port)) if !port.contains(':') => Cow::Borrowed(host),
        _ => Cow::Borrowed(text),
    }
}

/// A value without escapes: `\x22` of nginx, `\"`, `\\`, `\t` and `\n` of Apache.
fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'x') => {
                let mut ahead = rest.clone();
                let digits = [ahead.next(), ahead.next()];
                let value = digits.iter().try_fold(0_u8, |value, digit| {
                    let digit = char::from((*digit)?).to_digit(16)?;
                    Some(value.wrapping_mul(16).wrapping_add(u8::try_from(digit).ok()?))
                });
                match value {
                    Some(value) => {
                        bytes.push(value);
                        rest = ahead;
                    }
                    None => bytes.extend_from_slice(b"\\x"),
                }
            }
            Some(b't') => bytes.push(b'\t'),
            Some(b'n') => bytes.push(b'\n'),
            Some(b'r') => bytes.push(b'\r'),
            Some(other) => bytes.push(other),
            None => bytes.push(b'\\'),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
