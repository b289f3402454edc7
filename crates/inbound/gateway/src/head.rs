//! Checks whether a request can be forwarded safely, and normalizes its target.
//!
//! hyper has parsed the head and rejected folded lines, conflicting lengths, transfer codings that do not end in
//! `chunked`, and heads that are too large. These checks are an intermediary's (RFC 9110 §7, RFC 9112 §3): the form
//! of the target, exactly one host, transfer codings that cannot be forwarded, and paths that servers interpret
//! differently. A path is normalized before it is matched, and forwarded in that form, so that `%61` for `a` does not
//! evade a rule.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderValue, MAX_FORWARDS, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Uri, Version};

use super::encode::Fault;
use super::settings::HeadSettings;

/// A slash and a semicolon, escaped. Escapes are in upper case once a path is normalized.
const ESCAPED_SLASH: &str = "%2F";
const ESCAPED_SEMICOLON: &str = "%3B";

/// The resource that a request is for.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The requested host; `None` if an HTTP/1.0 request names none.
    pub(super) authority: Option<Authority>,
    /// The path for matching, if it differs from the one in the URI: without empty segments and without parameters
    /// (`;v=1`), which some servers remove before they route.
    matched: Option<Box<str>>,
}

/// A target in which escaped slashes are slashes.
pub(super) struct UnescapedTarget {
    uri: Uri,
    matched: Option<Box<str>>,
}

/// The result for a valid head.
pub(super) enum HeadCheck {
    /// A request for a resource.
    Sound(Target),
    /// A question about the capabilities of the server (`OPTIONS *`), not about a resource.
    Capabilities,
}

impl Target {
    /// The path that routes and templates match.
    pub(super) fn path<'p>(&'p self, head: &'p Parts) -> &'p str {
        self.matched.as_deref().unwrap_or_else(|| head.uri.path())
    }

    /// The host without its port and without a final dot.
    pub(super) fn host(&self) -> Option<&str> {
        self.authority.as_ref().map(|authority| without_final_dot(authority.host()))
    }

    /// Replaces the target by the unescaped one.
    pub(super) fn unescape(&mut self, head: &mut Parts, unescaped: UnescapedTarget) {
        head.uri = unescaped.uri;
        self.matched = unescaped.matched;
    }
}

/// The path of a head with the parameters of its segments, and without empty segments.
pub(super) fn path_with_parameters(head: &Parts) -> Cow<'_, str> {
    let path = head.uri.path();
    match matched_path(path, Parameters::Keep) {
        Some(merged) => Cow::Owned(merged.into()),
        None => Cow::Borrowed(path),
    }
}

impl UnescapedTarget {
    /// The target of a head with slashes in place of escaped ones; [`None`] if it has none.
    pub(super) fn of(head: &Parts) -> Option<Self> {
        let path = head.uri.path();
        if !path.contains(ESCAPED_SLASH) {
            return None;
        }
        let uri = origin_form(&path.replace(ESCAPED_SLASH, "/"), head.uri.query())?;
        let matched = matched_path(uri.path(), Parameters::Remove);
        Some(UnescapedTarget { uri, matched })
    }

    /// The path that routes match.
    pub(super) fn path(&self) -> &str {
        self.matched.as_deref().unwrap_or_else(|| self.uri.path())
    }
}

/// Checks a head, and puts its target into origin form. `known` is a host that was validated before: most connections
/// request only one, and comparing is cheaper than parsing.
pub(super) fn examine(
    head: &mut Parts,
    settings: &HeadSettings,
    known: Option<&Authority>,
) -> Result<HeadCheck, Fault> {
    check_values(head)?;
    check_framing(head)?;
    join_cookies(&mut head.headers);
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        return Err(Fault::MethodNotAllowed);
    }
    let authority = authority(head, known)?;
    check_scheme(&head.uri)?;
    if head.uri.path() == "*" {
        let asks = head.method == Method::OPTIONS;
        return if asks { Ok(HeadCheck::Capabilities) } else { Err(Fault::BadTarget) };
    }
    if head.method == Method::OPTIONS && is_last_hop(&mut head.headers)? {
        return Ok(HeadCheck::Capabilities);
    }
    let Some(target) = head.uri.path_and_query() else { return Err(Fault::BadTarget) };
    if target.as_str().len() > settings.target_bytes_max {
        return Err(Fault::TargetTooLong);
    }
    if !target.path().starts_with('/') {
        return Err(Fault::BadTarget);
    }
    let normal = match normalized(target.path()).ok_or(Fault::BadTarget)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => Some(path.into_boxed_str()),
    };
    check_segments(normal.as_deref().unwrap_or_else(|| target.path()), settings.segments_max)?;
    if let Some(path) = normal {
        head.uri = origin_form(&path, target.query()).ok_or(Fault::BadTarget)?;
    } else if head.uri.authority().is_some() {
        head.uri = Uri::from(target.clone());
    }
    // The path of the URI is normalized except for empty segments and parameters, which the upstream may need.
    let matched = matched_path(head.uri.path(), Parameters::Remove);
    Ok(HeadCheck::Sound(Target { authority, matched }))
}

/// A target that consists of a path and a query.
fn origin_form(path: &str, query: Option<&str>) -> Option<Uri> {
    let target = match query {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    target.ok().map(Uri::from)
}

/// Rejects values with spaces around them, which are malformed in HTTP/2 (RFC 9113 §8.2.1). HTTP/1.1 upstreams trim
/// them, so such a value would be another key to a limit and the same caller to the upstream. In HTTP/1.1 the parser
/// has trimmed them.
fn check_values(head: &Parts) -> Result<(), Fault> {
    if head.version < Version::HTTP_2 {
        return Ok(());
    }
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let padded = |value: &HeaderValue| {
        let value = value.as_bytes();
        is_space(value.first()) || is_space(value.last())
    };
    if head.headers.values().any(padded) { Err(Fault::BadHeader) } else { Ok(()) }
}

/// Joins the lines of `Cookie` into one. HTTP/2 clients split the field for better compression, and HTTP/1.1 servers
/// expect one line (RFC 9113 §8.2.3). In HTTP/1.1 too, because servers disagree about several lines.
fn join_cookies(headers: &mut HeaderMap) {
    let lines = headers.get_all(COOKIE);
    if lines.iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = lines.iter().map(HeaderValue::as_bytes).collect();
    // Cannot fail: all bytes are from valid values.
    if let Ok(line) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, line);
    }
}

/// Rejects ambiguous framing, and transfer codings that cannot be decoded. A body is forwarded with new framing, so
/// that the upstream cannot see another end of it than the gateway does (request smuggling).
fn check_framing(head: &Parts) -> Result<(), Fault> {
    let mut codings = head.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if head.headers.contains_key(CONTENT_LENGTH) || codings.next().is_some() {
            return Err(Fault::BadFraming);
        }
        if !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(Fault::UnknownCoding);
        }
    }
    Ok(())
}

/// The host that the request is for.
fn authority(head: &Parts, known: Option<&Authority>) -> Result<Option<Authority>, Fault> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Fault::BadHost);
    }
    let named = match host {
        Some(host) if known.is_some_and(|known| host == known.as_str()) => known.cloned(),
        Some(host) => {
            let named = Authority::try_from(host.as_bytes()).map_err(|_| Fault::BadHost)?;
            check_host(&named)?;
            Some(named)
        }
        None => None,
    };
    let Some(target) = head.uri.authority() else {
        // HTTP/1.1 requires the field; older versions do not have it.
        let missing = host.is_none() && head.version >= Version::HTTP_11;
        return if missing { Err(Fault::BadHost) } else { Ok(named) };
    };
    if known.is_none_or(|known| known.as_str() != target.as_str()) {
        check_host(target)?;
    }
    // In HTTP/2 both must agree. In HTTP/1.1 an absolute target has precedence and the field is ignored (RFC 9112
    // §3.2.2).
    let disagree = named.is_some_and(|named| !named.as_str().eq_ignore_ascii_case(target.as_str()));
    if disagree && head.version >= Version::HTTP_2 {
        return Err(Fault::BadHost);
    }
    Ok(Some(target.clone()))
}

/// Rejects everything but one host with an optional port: a name, an IPv4 address, or an IPv6 address in brackets.
/// Servers interpret users, lists, escapes and odd ports differently.
fn check_host(authority: &Authority) -> Result<(), Fault> {
    let text = authority.as_str();
    let (valid, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port),
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let name = without_final_dot(name);
            let is_label = |label: &str| {
                let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                !label.is_empty() && label.bytes().all(valid)
            };
            (name.split('.').all(is_label), port)
        }
    };
    let is_port = |digits: &str| {
        let digits_only = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits_only && (digits.is_empty() || digits.parse::<u16>().is_ok())
    };
    let valid_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    if valid && valid_port { Ok(()) } else { Err(Fault::BadHost) }
}

/// A host name without the dot that marks it as absolute: `api.test.` is `api.test`.
pub(super) fn without_final_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Rejects schemes other than `http` and `https`, in an absolute target or in `:scheme`.
fn check_scheme(uri: &Uri) -> Result<(), Fault> {
    let served =
        |scheme: &str| ["http", "https"].iter().any(|own| own.eq_ignore_ascii_case(scheme));
    if uri.scheme_str().is_none_or(served) { Ok(()) } else { Err(Fault::BadTarget) }
}

/// Whether `Max-Forwards` is zero (RFC 9110 §7.6.2); otherwise decrements it.
fn is_last_hop(headers: &mut HeaderMap) -> Result<bool, Fault> {
    let Some(left) = headers.get_mut(MAX_FORWARDS) else { return Ok(false) };
    let number = left.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
    match number.ok_or(Fault::BadHeader)?.checked_sub(1) {
        Some(fewer) => {
            *left = fewer.into();
            Ok(false)
        }
        None => Ok(true),
    }
}

/// The path with unreserved characters decoded and hexadecimal digits in upper case (RFC 3986 §6.2.2). `None` for an
/// invalid escape, a backslash and a control character: servers split or truncate paths there.
fn normalized(path: &str) -> Option<Cow<'_, str>> {
    if path.bytes().any(|byte| matches!(byte, b'\\' | 0..=0x1f | 0x7f)) {
        return None;
    }
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let byte = u8::from_str_radix(after.get(..2)?, 16).ok()?;
        // `from_str_radix` also accepts a sign.
        after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            0..=0x1f | 0x7f | b'\\' => return None,
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        rest = after.get(2..)?;
    }
    out.push_str(rest);
    Some(if out == path { Cow::Borrowed(path) } else { Cow::Owned(out) })
}

/// Rejects dot segments, which servers resolve differently, and paths with too many segments. Escaped slashes and
/// semicolons count as ends of segments, because some servers decode them first.
fn check_segments(path: &str, segments_max: usize) -> Result<(), Fault> {
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    let mut segments = 0_usize;
    for segment in path.split('/') {
        segments = segments.saturating_add(1);
        if is_dots(segment) {
            return Err(Fault::BadTarget);
        }
        if segment.contains(['%', ';']) {
            segments = segments.saturating_add(segment.matches(ESCAPED_SLASH).count());
            let split = segment.replace(ESCAPED_SLASH, ";").replace(ESCAPED_SEMICOLON, ";");
            if split.split(';').any(is_dots) {
                return Err(Fault::BadTarget);
            }
        }
    }
    if segments > segments_max.saturating_add(1) { Err(Fault::TargetTooLong) } else { Ok(()) }
}

/// What happens to the parameters of segments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameters {
    Keep,
    Remove,
}

/// The path with repeated slashes merged, as many servers do, and with or without parameters; `None` if that changes
/// nothing.
fn matched_path(path: &str, parameters: Parameters) -> Option<Box<str>> {
    let removes = parameters == Parameters::Remove
        && (path.contains(';') || path.contains(ESCAPED_SEMICOLON));
    if !path.contains("//") && !removes {
        return None;
    }
    let mut out = String::with_capacity(path.len());
    for segment in path.split_inclusive('/') {
        let end = segment.len() - usize::from(segment.ends_with('/'));
        let (segment, slash) = segment.split_at(end);
        let name = match removes {
            true => segment.split(';').next().and_then(|name| name.split(ESCAPED_SEMICOLON).next()),
            false => Some(segment),
        };
        out.push_str(name.unwrap_or_default());
        if !out.ends_with('/') {
            out.push_str(slash);
        }
    }
    Some(out.into_boxed_str())
}

#[cfg(test)]
mod tests;
