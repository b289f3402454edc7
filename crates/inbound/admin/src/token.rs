//! The secret that changes need.
//!
//! Compared in constant time, so that response times do not reveal how much of a guess is right; they reveal only the
//! length. Tokens are too long to be guessed, so there is no lock-out, which others could provoke.

use std::fmt;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

/// The shortest token: a shorter one could be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The longest token: servers limit the length of header fields.
pub const TOKEN_BYTES_MAX: usize = 1024;

/// A secret that is sent as `Authorization: Bearer`.
#[derive(Clone)]
pub struct Token(Box<str>);

/// A text that cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Too short or too long.
    #[error("a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters, not {bytes}")]
    Length {
        /// The length in bytes.
        bytes: usize,
    },
    /// Cannot be sent in a header field.
    #[error("a token has only letters, digits and punctuation of ASCII, and no spaces")]
    Letters,
}

impl Token {
    /// A token of this text.
    ///
    /// # Errors
    /// When it is too short, too long, or cannot be sent in a header field.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let bytes = text.len();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes) {
            return Err(TokenError::Length { bytes });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Letters);
        }
        Ok(Token(text.into()))
    }

    /// Whether a request has it, in exactly one field.
    pub(super) fn is_sent_in(&self, headers: &HeaderMap) -> bool {
        let mut fields = headers.get_all(AUTHORIZATION).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else { return false };
        let Some((scheme, brought)) = split_scheme(field.as_bytes()) else { return false };
        scheme.eq_ignore_ascii_case(b"bearer") && bool::from(brought.ct_eq(self.0.as_bytes()))
    }
}

fn split_scheme(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = field.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = field.split_at(space);
    Some((scheme, rest.trim_ascii()))
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "correct-horse-battery";

    fn accepts(fields: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(AUTHORIZATION, HeaderValue::from_str(field).unwrap());
        }
        Token::new(SECRET).unwrap().is_sent_in(&headers)
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        assert!(accepts(&["Bearer correct-horse-battery"]));
        assert!(accepts(&["bearer  correct-horse-battery"]));
        for wrong in [
            "Bearer correct-horse-batter",
            "Bearer correct-horse-batteryy",
            "Bearer Correct-horse-battery",
            "Bearer ",
            "Bearer",
            "Basic correct-horse-battery",
            "correct-horse-battery",
            "",
        ] {
            assert!(!accepts(&[wrong]), "{wrong}");
        }
        assert!(!accepts(&[]));
    }

    #[test]
    fn two_fields_are_refused_even_when_one_is_right() {
        assert!(!accepts(&["Bearer correct-horse-battery", "Bearer something-else-here"]));
        assert!(!accepts(&["Bearer correct-horse-battery", "Bearer correct-horse-battery"]));
    }

    #[test]
    fn a_token_is_neither_short_nor_unsendable() {
        assert_eq!(Token::new("short").unwrap_err(), TokenError::Length { bytes: 5 });
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        assert_eq!(Token::new(&long).unwrap_err(), TokenError::Length { bytes: long.len() });
        for text in ["with spaces in the text", "with\nlines-in-the-text", "mit-Umläuten-im-Text"]
        {
            assert_eq!(Token::new(text).unwrap_err(), TokenError::Letters);
        }
    }

    #[test]
    fn a_token_is_never_printed() {
        assert_eq!(format!("{:?}", Token::new(SECRET).unwrap()), "Token(***)");
    }
}
