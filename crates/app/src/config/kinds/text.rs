//! Texts with rules of their own.

use std::fmt;

use serde_json::{Value, json};
use tidegate_document::{Bounds, Fault, Kind, Scalar, Secrecy, SettingKind};
use tidegate_requests::{AccessToken, TokenError};
use tidegate_stores::RedisSettings;

/// The minimum of characters in a token: shorter ones can be guessed.
const SECRET_CHARS_MIN: usize = 16;

/// A text that is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, to compare it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl Kind for Secret {
    fn words() -> String {
        String::words()
    }

    fn schema(bounds: &Bounds) -> Value {
        String::schema(bounds)
    }

    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
        let text = String::parse(scalar, bounds)?;
        if text.chars().count() < SECRET_CHARS_MIN {
            let message = format!("a token has at least {SECRET_CHARS_MIN} characters");
            return Err(Fault::new("weak_token", message).hint("use a long random one"));
        }
        Ok(Secret(text))
    }
}

impl SettingKind for Secret {
    const SECRECY: Secrecy = Secrecy::Secret;

    fn show(&self) -> Value {
        Value::from("set")
    }
}

/// An access token: `HASH NAME ROLES [EXPIRES]`. The hash is never shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(AccessToken);

impl Token {
    /// The token.
    pub const fn get(&self) -> &AccessToken {
        &self.0
    }
}

impl Kind for Token {
    fn words() -> String {
        "`HASH NAME ROLES [EXPIRES]`".to_owned()
    }

    fn schema(_: &Bounds) -> Value {
        let roles = "(read|check|change)";
        let pattern = format!(
            "^[0-9A-Fa-f]{{64}} +[^ ]+ +{roles}(\\+{roles})*( +[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})?$"
        );
        json!({"type": "string", "pattern": pattern})
    }

    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
        String::parse(scalar, bounds)?.parse().map(Token).map_err(|error: TokenError| {
            Fault::new("invalid_token", error.to_string())
                .hint("`printf %s TOKEN | sha256sum` prints the hash of a token")
        })
    }
}

impl SettingKind for Token {
    const SECRECY: Secrecy = Secrecy::Secret;

    fn show(&self) -> Value {
        Value::from(self.0.to_string())
    }
}

/// A password for another service: any length, never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The text itself, to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl Kind for Password {
    fn words() -> String {
        String::words()
    }

    fn schema(bounds: &Bounds) -> Value {
        String::schema(bounds)
    }

    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
        String::parse(scalar, bounds).map(Password)
    }
}

impl SettingKind for Password {
    const SECRECY: Secrecy = Secrecy::Secret;

    fn show(&self) -> Value {
        Value::from("set")
    }
}

/// The URL of a Redis. The parts before an `@` and after a `?` are never shown: they may have a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// The whole URL, to connect.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The URL without what may be a password.
    pub fn redacted(&self) -> String {
        let open = self.0.split('?').next().unwrap_or_default();
        let hidden = if open.len() < self.0.len() { "?***" } else { "" };
        let open = match open.split_once("://").zip(open.rsplit_once('@')) {
            Some(((scheme, _), (_, host))) => format!("{scheme}://***@{host}"),
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

impl Kind for RedisUrl {
    fn words() -> String {
        "an address such as `redis://localhost:6379`".to_owned()
    }

    fn schema(_: &Bounds) -> Value {
        let pattern = "^(rediss?(-sentinel|-cluster)?|redis\\+unix|unix)://[^ ]";
        json!({"type": "string", "pattern": pattern})
    }

    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
        let text = String::parse(scalar, bounds)?;
        match RedisSettings::parse(&text) {
            Ok(_) => Ok(RedisUrl(text)),
            Err(error) => Err(Fault::new("invalid_url", error.to_string())
                .hint("such as `redis://localhost:6379`")),
        }
    }
}

impl SettingKind for RedisUrl {
    const SECRECY: Secrecy = Secrecy::Redacted;

    fn show(&self) -> Value {
        Value::from(self.redacted())
    }
}

macro_rules! text_kind {
    ($(#[$about:meta])* $name:ident, $words:literal, $schema:tt, $check:expr) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Kind for $name {
            fn words() -> String {
                $words.to_owned()
            }

            fn schema(_: &Bounds) -> Value {
                json!($schema)
            }

            fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
                let text = String::parse(scalar, bounds)?;
                let check: fn(&str) -> Result<(), Fault> = $check;
                check(&text)?;
                Ok($name(text))
            }
        }

        impl SettingKind for $name {
            fn show(&self) -> Value {
                Value::from(self.as_str())
            }
        }
    };
}

text_kind! {
    /// A DNS name in a certificate.
    San, "text", {"type": ["string", "number", "boolean"], "minLength": 1}, |text| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
        if text.bytes().all(legal) {
            return Ok(());
        }
        Err(Fault::new("invalid_name", format!("`{text}` is not a DNS name"))
            .hint("write only the name, such as `envoy.example.org`"))
    }
}

text_kind! {
    /// An `http` or `https` address.
    Url, "an `http` or `https` address", {"type": "string", "pattern": "^https?://[^/ ]"}, |text| {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let authority = rest.map(|rest| rest.split('/').next().unwrap_or_default());
        let wrong = |message: String| {
            Fault::new("invalid_url", message).hint("such as `http://localhost:4317`")
        };
        match authority {
            None => Err(wrong(format!("`{text}` does not begin with `http://` or `https://`"))),
            Some(host) if host.is_empty() || host.contains(|char: char| char.is_whitespace()) => {
                Err(wrong(format!("`{text}` names no host")))
            }
            Some(host) => match host.rsplit_once(':') {
                Some((_, port)) if !port.ends_with(']') && port.parse::<u16>().is_err() => {
                    Err(wrong(format!("`{port}` is not a port")))
                }
                _ => Ok(()),
            },
        }
    }
}

text_kind! {
    /// A path that begins with `/`.
    UrlPath, "a path that begins with `/`", {"type": "string", "pattern": "^/"}, |text| {
        let legal = |char: char| char.is_ascii_graphic() && !"?#\"<>".contains(char);
        if text.starts_with('/') && text.chars().all(legal) {
            return Ok(());
        }
        Err(Fault::new("invalid_path", format!("`{text}` is not a path of a URL"))
            .hint("a path begins with `/`, such as `/metrics`"))
    }
}
