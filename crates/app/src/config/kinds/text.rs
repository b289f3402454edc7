//! Texts with rules of their own.

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;
use tidegate_document::{PlainValue, Scalar};
use tidegate_stores::RedisSettings;

use super::{Bounds, Shape, Single, Wrong, wrong_scalar};

/// The longest text: longer ones are mistakes.
const TEXT_BYTES_MAX: usize = 4_096;

/// The text of a value; a number counts as its text.
pub(super) fn filled<'w>(written: &'w Scalar<'_>, shape: Shape) -> Result<&'w str, Wrong> {
    if written.plain() == PlainValue::Null {
        return Err(wrong_scalar(shape, written));
    }
    let text = &*written.text;
    if text.is_empty() {
        return Err(Wrong::new("empty", "this must not be empty"));
    }
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("{} bytes of text; the most is {TEXT_BYTES_MAX}", text.len());
        return Err(Wrong::new("out_of_range", message));
    }
    if text.contains(|char: char| char.is_control()) {
        return Err(Wrong::new("control_character", "there is a control character in the text"));
    }
    Ok(text)
}

impl Single for String {
    const SHAPE: Shape = Shape::Text;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        filled(written, Self::SHAPE).map(str::to_owned)
    }

    fn shown(&self) -> Value {
        Value::from(self.as_str())
    }
}

impl Single for PathBuf {
    const SHAPE: Shape = Shape::Path;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        filled(written, Self::SHAPE).map(PathBuf::from)
    }

    fn shown(&self) -> Value {
        Value::from(self.to_string_lossy().into_owned())
    }
}

/// The least characters of a secret: shorter ones can be guessed.
const SECRET_CHARS_MIN: usize = 16;

/// A text that is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one who compares it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl Single for Secret {
    const SHAPE: Shape = Shape::Text;
    const SECRET: bool = true;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        let text = filled(written, Self::SHAPE)?;
        if text.chars().count() < SECRET_CHARS_MIN {
            let message = format!("a token has at least {SECRET_CHARS_MIN} characters");
            return Err(Wrong::new("weak_token", message).hint("take a long random one"));
        }
        Ok(Secret(text.to_owned()))
    }

    fn shown(&self) -> Value {
        Value::from("set")
    }
}

/// A password of somebody else's: any length, never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The text itself, for the one who sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl Single for Password {
    const SHAPE: Shape = Shape::Text;
    const SECRET: bool = true;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        Ok(Password(filled(written, Self::SHAPE)?.to_owned()))
    }

    fn shown(&self) -> Value {
        Value::from("set")
    }
}

/// Where a Redis is. What stands before an `@` or after a `?` is never shown: it may have a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// The whole of it, for the one who connects.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Without what may be a password.
    pub fn redacted(&self) -> String {
        let open = self.0.split('?').next().unwrap_or_default();
        let hidden = if open.len() < self.0.len() { "?***" } else { "" };
        let open = match open.split_once("://").zip(open.rsplit_once('@')) {
            Some(((scheme, _), (_, place))) => format!("{scheme}://***@{place}"),
            None => open.to_owned(),
        };
        format!("{open}{hidden}")
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.redacted())
    }
}

impl Single for RedisUrl {
    const SHAPE: Shape = Shape::RedisUrl;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        let text = filled(written, Self::SHAPE)?;
        match RedisSettings::parse(text) {
            Ok(_) => Ok(RedisUrl(text.to_owned())),
            Err(error) => Err(Wrong::new("invalid_url", error.to_string())
                .hint("such as `redis://localhost:6379`")),
        }
    }

    fn shown(&self) -> Value {
        Value::from(self.redacted())
    }
}

macro_rules! text_kind {
    ($(#[$about:meta])* $name:ident, $shape:expr, $check:expr) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Single for $name {
            const SHAPE: Shape = $shape;

            fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
                let text = filled(written, Self::SHAPE)?;
                let check: fn(&str) -> Result<(), Wrong> = $check;
                check(text)?;
                Ok($name(text.to_owned()))
            }

            fn shown(&self) -> Value {
                Value::from(self.as_str())
            }
        }
    };
}

text_kind! {
    /// The name of a header field.
    HeaderName, Shape::HeaderName, |text| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if text.bytes().all(legal) {
            return Ok(());
        }
        Err(Wrong::new("invalid_header_name", format!("`{text}` is no name of a header field"))
            .hint("letters, digits and `-` are fine, such as `RateLimit-Limit`"))
    }
}

text_kind! {
    /// A DNS name in a certificate.
    San, Shape::Text, |text| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
        if text.bytes().all(legal) {
            return Ok(());
        }
        Err(Wrong::new("invalid_name", format!("`{text}` is no DNS name"))
            .hint("write the name alone, such as `envoy.example.org`"))
    }
}

text_kind! {
    /// An `http` or `https` address.
    Url, Shape::Url, |text| {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let authority = rest.map(|rest| rest.split('/').next().unwrap_or_default());
        let wrong = |message: String| {
            Wrong::new("invalid_url", message).hint("such as `http://localhost:4317`")
        };
        match authority {
            None => Err(wrong(format!("`{text}` begins with neither `http://` nor `https://`"))),
            Some(host) if host.is_empty() || host.contains(|char: char| char.is_whitespace()) => {
                Err(wrong(format!("`{text}` names no host")))
            }
            Some(host) => match host.rsplit_once(':') {
                Some((_, port)) if !port.ends_with(']') && port.parse::<u16>().is_err() => {
                    Err(wrong(format!("`{port}` is no port")))
                }
                _ => Ok(()),
            },
        }
    }
}

text_kind! {
    /// A path that begins with `/`.
    UrlPath, Shape::UrlPath, |text| {
        let legal = |char: char| char.is_ascii_graphic() && !"?#\"<>".contains(char);
        if text.starts_with('/') && text.chars().all(legal) {
            return Ok(());
        }
        Err(Wrong::new("invalid_path", format!("`{text}` is no path of an address"))
            .hint("a path begins with `/`, such as `/metrics`"))
    }
}
