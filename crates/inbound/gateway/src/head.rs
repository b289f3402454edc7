//! Is this a request that one can safely pass on?
//!
//! hyper has read the head already: it refuses folded lines, lengths that disagree, codings that
//! do not end in `chunked`, and heads that are too large. Here is what only an intermediary has
//! to mind (RFC 9110 §7, RFC 9112 §3): the form of the target, one host and one only, codings
//! that cannot be passed on, and paths that servers read differently from us. A path is made
//! normal before anything is matched, and passed on like that: so nobody meets another rule by
//! writing `%61` for `a`.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, HOST, MAX_FORWARDS, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Uri, Version};

use super::encode::Fault;
use super::settings::HeadSettings;

/// What a request is for, as far as its head says.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The host that is asked for; none when HTTP/1.0 names none.
    pub(super) authority: Option<Authority>,
    /// The path in its normal form, where that differs from what was sent.
    normal: Option<Box<str>>,
}

/// What becomes of a request with a sound head.
pub(super) enum Examined {
    /// It goes on.
    Sound(Target),
    /// It asks what this server can do, and not about a resource.
    Capabilities,
}

impl Target {
    /// The path that routes and templates see.
    pub(super) fn path<'p>(&'p self, head: &'p Parts) -> &'p str {
        self.normal.as_deref().unwrap_or_else(|| head.uri.path())
    }

    /// The host without its port.
    pub(super) fn host(&self) -> Option<&str> {
        self.authority.as_ref().map(Authority::host)
    }
}

/// Looks at a head, and puts its target into origin form. `known` is a host that was found to be
/// sound before: connections seldom ask for another.
pub(super) fn examine(
    head: &mut Parts,
    settings: &HeadSettings,
    known: Option<&Authority>,
) -> Result<Examined, Fault> {
    check_framing(head)?;
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        return Err(Fault::MethodNotAllowed);
    }
    let authority = authority(head, known)?;
    if head.uri.path() == "*" {
        let asks = head.method == Method::OPTIONS;
        return if asks { Ok(Examined::Capabilities) } else { Err(Fault::BadTarget) };
    }
    if head.method == Method::OPTIONS && is_last_hop(&mut head.headers)? {
        return Ok(Examined::Capabilities);
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
    // The uri has the normal path now; only doubled slashes are still there.
    let normal = path_without_empty_segments(head.uri.path());
    Ok(Examined::Sound(Target { authority, normal }))
}

/// A target of a path and a query alone.
fn origin_form(path: &str, query: Option<&str>) -> Option<Uri> {
    let target = match query {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    target.ok().map(Uri::from)
}

/// A body is passed on in our own framing, so that nobody behind us sees another end of it
/// than we do. A coding that we do not undo cannot be passed on.
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

/// The one host that the request is for.
fn authority(head: &Parts, known: Option<&Authority>) -> Result<Option<Authority>, Fault> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Fault::BadHost);
    }
    let named = match host {
        Some(host) if host.is_empty() => None,
        Some(host) if known.is_some_and(|known| host == known.as_str()) => known.cloned(),
        Some(host) => Some(Authority::try_from(host.as_bytes()).map_err(|_| Fault::BadHost)?),
        None => None,
    };
    // `user@host` is no host, and a name to quarrel over behind us.
    if named.as_ref().is_some_and(|named| named.as_str().contains('@')) {
        return Err(Fault::BadHost);
    }
    let Some(target) = head.uri.authority() else {
        // HTTP/1.1 demands the field, even if it is empty; older versions do not know it.
        let missing = host.is_none() && head.version >= Version::HTTP_11;
        return if missing { Err(Fault::BadHost) } else { Ok(named) };
    };
    if target.as_str().contains('@') {
        return Err(Fault::BadHost);
    }
    // In HTTP/2 both are in one section and must agree. In HTTP/1.1 an absolute target counts,
    // and the field is ignored (RFC 9112 §3.2.2).
    let disagree = named.is_some_and(|named| !named.as_str().eq_ignore_ascii_case(target.as_str()));
    if disagree && head.version >= Version::HTTP_2 {
        return Err(Fault::BadHost);
    }
    Ok(Some(target.clone()))
}

/// Whether the request is not to go further (RFC 9110 §7.6.2); otherwise it has one hop less.
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

/// The path with nothing percent-encoded that need not be, and hexadecimal digits in capitals
/// (RFC 3986 §6.2.2). `None` for what is no path: broken escapes, and what servers cut paths at.
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
        // A sign is no digit, though numbers may have one.
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

/// Dot segments are a request for a path that is not the one written: whoever means it can
/// write it.
fn check_segments(path: &str, segments_max: usize) -> Result<(), Fault> {
    let mut segments = 0_usize;
    for segment in path.split('/') {
        segments = segments.saturating_add(1);
        if matches!(segment, "." | "..") {
            return Err(Fault::BadTarget);
        }
    }
    if segments > segments_max.saturating_add(1) { Err(Fault::TargetTooLong) } else { Ok(()) }
}

/// The path with single slashes, if it has others. Many servers read it like that.
fn path_without_empty_segments(path: &str) -> Option<Box<str>> {
    if !path.contains("//") {
        return None;
    }
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !out.ends_with('/') {
            out.push(character);
        }
    }
    Some(out.into_boxed_str())
}

#[cfg(test)]
mod tests;
