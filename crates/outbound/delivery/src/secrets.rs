//! Which header fields are kept with a record, and how they are shown.
//!
//! A record lives on a disk for hours. Fields that carry credentials are therefore dropped at the enqueue unless the
//! operator allows them by name, and are never shown: not by the command line, the API or a log.

use bytes::Bytes;

/// Fields that carry credentials.
pub const SENSITIVE: [&str; 11] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "api-key",
    "x-auth-token",
    "x-csrf-token",
    "x-amz-security-token",
    "x-functions-key",
    "ocp-apim-subscription-key",
];

/// The text in place of a secret.
pub const REDACTED: &str = "***";

/// Whether a field carries credentials.
pub fn is_sensitive(name: &str) -> bool {
    SENSITIVE.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Removes fields that carry credentials and are not in `allowed`. Returns the names of those that were removed.
pub fn drop_secrets(headers: &mut Vec<(String, Bytes)>, allowed: &[String]) -> Vec<String> {
    let is_allowed = |name: &str| allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
    let drops = |name: &str| is_sensitive(name) && !is_allowed(name);
    headers.extract_if(.., |(name, _)| drops(name)).map(|(name, _)| name).collect()
}

/// A field's value for people: credentials and bytes that are no text are hidden.
pub fn show_value<'a>(name: &str, value: &'a [u8]) -> std::borrow::Cow<'a, str> {
    if is_sensitive(name) {
        return REDACTED.into();
    }
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => text.into(),
        _ => format!("({} bytes)", value.len()).into(),
    }
}

/// A URL for people: without user name, password, query and fragment, which may carry tokens.
pub fn show_url(url: &http::Uri) -> String {
    let scheme = url.scheme_str().map_or(String::new(), |scheme| format!("{scheme}://"));
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    let query = if url.query().is_some() { "?***" } else { "" };
    format!("{scheme}{host}{}{query}", url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_dropped_unless_allowed() {
        let field = |name: &str| (name.to_owned(), Bytes::from_static(b"v"));
        let mut headers = vec![field("Authorization"), field("accept"), field("Cookie")];
        let dropped = drop_secrets(&mut headers, &["authorization".to_owned()]);
        assert_eq!(dropped, ["Cookie"]);
        assert_eq!(headers, [field("Authorization"), field("accept")]);
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(show_value("AUTHORIZATION", b"Bearer x"), "***");
        assert_eq!(show_value("accept", b"text/html"), "text/html");
        assert_eq!(show_value("x", b"a\x1b[31m"), "(6 bytes)");
        let url = "https://u:p@a.test:1/b?token=1".parse().unwrap();
        assert_eq!(show_url(&url), "https://a.test:1/b?***");
    }
}
