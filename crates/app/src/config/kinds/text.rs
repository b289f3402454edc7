//! Texts that are checked or hidden.

use std::fmt;

use serde_json::json;
use tidegate_access::{AccessToken, TokenError};
use tidegate_document::{Bounds, Fault, Secrecy, SettingKind, kind};
use tidegate_stores::RedisSettings;

/// The minimum of characters in a token: shorter ones can be guessed.
const SECRET_CHARS_MIN: usize = 16;

/// Declares a kind of text: its accessor, what it takes in words and as a schema, how it is checked and shown.
macro_rules! text_kind {
    (
        $(#[$about:meta])*
        $name:ident, $accessor:ident, $words:expr, $schema:expr, $secrecy:ident, $show:expr, $check:expr
    ) => {
        $(#[$about])*
        #[derive(Clone, Default, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// The text itself.
            pub fn $accessor(&self) -> &str {
                &self.0
            }

            fn shown(&self) -> String {
                let show: fn(&str) -> String = $show;
                show(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                let shown = self.shown();
                let is_secret = matches!(Self::SECRECY, Secrecy::Secret);
                out.write_str(if is_secret { "***" } else { &shown })
            }
        }

        kind! {
            $name: $words, $schema,
            text |text| {
                let check: fn(&str) -> Result<(), Fault> = $check;
                check(text)?;
                Ok($name(text.to_owned()))
            },
            show $secrecy |value| value.shown()
        }
    };
}

text_kind! {
    /// A token that is never shown.
    Secret, reveal, "text", String::schema(&Bounds::NONE), Secret, |_| "set".to_owned(), |text| {
        if text.chars().count() >= SECRET_CHARS_MIN {
            return Ok(());
        }
        let message = format!("a token has at least {SECRET_CHARS_MIN} characters");
        Err(Fault::new("weak_token", message).hint("use a long random one"))
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

kind! {
    Token: "`HASH NAME ROLES [EXPIRES]`",
    {
        let roles = "(read|check|change)";
        let pattern = format!(
            "^[0-9A-Fa-f]{{64}} +[^ ]+ +{roles}(\\+{roles})*( +[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})?$"
        );
        json!({"type": "string", "pattern": pattern})
    },
    text |text| text.parse().map(Token).map_err(|error: TokenError| {
        Fault::new("invalid_token", error.to_string())
            .hint("`printf %s TOKEN | sha256sum` prints the hash of a token")
    }),
    show Secret |token| token.0.to_string()
}

text_kind! {
    /// A password for another service: any length, never shown.
    Password, reveal, "text", String::schema(&Bounds::NONE), Secret, |_| "set".to_owned(), |_| Ok(())
}

text_kind! {
    /// The URL of a Redis. The parts before an `@` and after a `?` are never shown: they may have a password.
    RedisUrl, reveal, "an address such as `redis://localhost:6379`",
    json!({
        "type": "string",
        "pattern": "^(rediss?(-sentinel|-cluster)?|redis\\+unix|unix)://[^ ]",
    }),
    Redacted, redact, |text| match RedisSettings::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::new("invalid_url", error.to_string())
            .hint("such as `redis://localhost:6379`")),
    }
}

impl RedisUrl {
    /// The URL without a password.
    pub fn redacted(&self) -> String {
        redact(&self.0)
    }
}

text_kind! {
    /// The URL of the forwarder's queue. The parts before an `@` and after a `?` are never shown.
    QueueUrl, reveal, "a URL such as `postgres://user@host/database` or `redis://host:6379`",
    json!({
        "type": "string",
        "pattern": "^(sqlite:|postgres(ql)?://|rediss?(-sentinel|-cluster)?://|redis\\+unix://)[^ ]",
    }),
    Redacted, redact, |text| check_store_url(text, &["sqlite", "postgres", "postgresql"])
}

text_kind! {
    /// The URL of the forwarder's lease store. The parts before an `@` and after a `?` are never shown.
    LeaseUrl, reveal, "a URL such as `redis://host:6379`, `etcd://host:2379` or `memory:`",
    json!({
        "type": "string",
        "pattern": "^(memory:$|(sqlite:|postgres(ql)?://|etcds?://|s3://|rediss?(-sentinel|-cluster)?://|redis\\+unix://)[^ ])",
    }),
    Redacted, redact,
    |text| check_store_url(text, &["memory", "sqlite", "postgres", "postgresql", "etcd", "etcds", "s3"])
}

impl QueueUrl {
    /// Whether several processes can use the queue at once.
    pub fn is_shared(&self) -> bool {
        !self.0.starts_with("sqlite:")
    }
}

/// Checks the scheme, and a URL of Redis as a whole.
fn check_store_url(text: &str, schemes: &[&str]) -> Result<(), Fault> {
    let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
    let known = |message: String| {
        let hint = format!("it begins with one of: {}, redis", schemes.join(", "));
        Fault::new("invalid_url", message).hint(hint)
    };
    if scheme.starts_with("redis") {
        let parsed = RedisSettings::parse(text);
        return parsed.map(|_| ()).map_err(|error| {
            Fault::new("invalid_url", error.to_string()).hint("such as `redis://localhost:6379`")
        });
    }
    match schemes.contains(&scheme) {
        true if rest.trim_start_matches('/').is_empty() && scheme != "memory" => {
            Err(known(format!("the URL names nothing after `{scheme}:`")))
        }
        true => Ok(()),
        // The text may hold a password, so that it is not repeated.
        false => Err(known("the URL has no scheme that is known here".to_owned())),
    }
}

fn redact(url: &str) -> String {
    let open = url.split('?').next().unwrap_or_default();
    let hidden = if open.len() < url.len() { "?***" } else { "" };
    let open = match open.split_once("://").zip(open.rsplit_once('@')) {
        Some(((scheme, _), (_, host))) => format!("{scheme}://***@{host}"),
        None => open.to_owned(),
    };
    format!("{open}{hidden}")
}

text_kind! {
    /// A DNS name in a certificate.
    San, as_str, "text", String::schema(&Bounds::NONE), Open, ToOwned::to_owned, |text| {
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
    Url, as_str, "an `http` or `https` address", json!({"type": "string", "pattern": "^https?://[^/ ]"}),
    Open, ToOwned::to_owned, |text| {
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
    UrlPath, as_str, "a path that begins with `/`", json!({"type": "string", "pattern": "^/"}),
    Open, ToOwned::to_owned, |text| {
        let legal = |char: char| char.is_ascii_graphic() && !"?#\"<>".contains(char);
        if text.starts_with('/') && text.chars().all(legal) {
            return Ok(());
        }
        Err(Fault::new("invalid_path", format!("`{text}` is not a path of a URL"))
            .hint("a path begins with `/`, such as `/metrics`"))
    }
}
