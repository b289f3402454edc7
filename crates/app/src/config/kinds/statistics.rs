//! Where statistics are sent to, and under which names.

use std::path::PathBuf;

use serde_json::json;
use tidegate_document::{Fault, choices, kind};
use tidegate_statsd::{Mogrifier, StatsdAddress};

choices! {
    /// The format of statistics.
    #[derive(Default)]
    pub enum StatsdFormat {
        /// Tags are part of the name, as envoyproxy/ratelimit sends them.
        #[default]
        Statsd = "statsd",
        /// Tags follow the value.
        DogStatsd = "dogstatsd",
    }
}

/// The address of a statsd server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdServer(StatsdAddress);

impl StatsdServer {
    /// The address.
    pub const fn get(&self) -> &StatsdAddress {
        &self.0
    }

    fn from_text(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let path = Some(path).filter(|path| !path.is_empty());
            return path.map(|path| StatsdServer(StatsdAddress::Unix(PathBuf::from(path))));
        }
        let (scheme, address) = text.split_once("://")?;
        let (host, port) = address.rsplit_once(':')?;
        let is_host =
            !host.is_empty() && !host.contains(|char: char| char.is_whitespace() || char == '/');
        if !is_host || port.parse::<u16>().is_err() {
            return None;
        }
        match scheme {
            "tcp" => Some(StatsdServer(StatsdAddress::Tcp(address.to_owned()))),
            "udp" => Some(StatsdServer(StatsdAddress::Udp(address.to_owned()))),
            _ => None,
        }
    }
}

kind! {
    StatsdServer: "`udp://HOST:PORT`, `tcp://HOST:PORT` or `unix:PATH`",
    json!({"type": "string", "pattern": "^((udp|tcp)://.+:[0-9]{1,5}|unix:.+)$"}),
    text |text| StatsdServer::from_text(text).ok_or_else(|| {
        Fault::new("invalid_address", format!("`{text}` is not the address of a statsd server"))
            .hint("write `udp://HOST:PORT`, `tcp://HOST:PORT` or `unix:PATH`")
    }),
    show |server| server.0.to_string()
}

/// A tag of every statistic: `KEY:VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsTag {
    key: String,
    value: String,
}

impl StatsTag {
    /// Key and value.
    pub fn pair(&self) -> (String, String) {
        (self.key.clone(), self.value.clone())
    }
}

kind! {
    StatsTag: "`KEY:VALUE`", json!({"type": "string", "pattern": "^[^:]+:[^:]+$"}),
    text |text| {
        let pair = text
            .split_once(':')
            .filter(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains(':'));
        let (key, value) = pair.ok_or_else(|| {
            Fault::new("invalid_tag", format!("`{text}` is not a tag")).hint("write `KEY:VALUE`")
        })?;
        Ok(StatsTag { key: key.to_owned(), value: value.to_owned() })
    },
    show |tag| format!("{}:{}", tag.key, tag.value)
}

/// A rewrite of names: `PATTERN -> NAME [KEY:VALUE ...]`.
#[derive(Clone, Debug)]
pub struct NameRewrite {
    text: String,
    mogrifier: Mogrifier,
}

impl NameRewrite {
    /// The rewrite.
    pub const fn get(&self) -> &Mogrifier {
        &self.mogrifier
    }
}

impl PartialEq for NameRewrite {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NameRewrite {}

kind! {
    NameRewrite: "`PATTERN -> NAME KEY:VALUE ...`",
    json!({"type": "string", "pattern": "^.+ -> [^ ]+"}),
    text |text| {
        let wrong = |message: String| {
            Fault::new("invalid_mogrifier", message)
                .hint(r"such as `^a\.([^.]+)\.(.*)$ -> a.$2 domain:$1`")
        };
        let Some((pattern, rest)) = text.rsplit_once(" -> ") else {
            return Err(wrong(format!("`{text}` has no ` -> `")));
        };
        let mut words = rest.split_whitespace();
        let name = words.next().unwrap_or_default();
        let tag = |word: &str| {
            let (key, value) = word.split_once(':').unwrap_or((word, ""));
            (key.to_owned(), value.to_owned())
        };
        let mogrifier = Mogrifier::new(pattern.trim(), name, words.map(tag).collect())
            .map_err(|error| wrong(format!("`{text}` cannot be used: {error}")))?;
        Ok(NameRewrite { text: text.to_owned(), mogrifier })
    },
    show |rewrite| rewrite.text.as_str()
}

#[cfg(test)]
mod tests {
    use tidegate_document::{Bounds, Kind, Scalar, ScalarStyle, Setting, SettingKind};

    use super::*;

    fn parse<K: Kind>(text: &str) -> Result<K, Fault> {
        K::parse(&Scalar { text: text.into(), style: ScalarStyle::Plain }, &Bounds::NONE)
    }

    #[test]
    fn servers_have_a_protocol_and_a_port_or_a_path() {
        for text in ["udp://localhost:8125", "tcp://[::1]:8125", "unix:/run/dsd.socket"] {
            assert_eq!(parse::<StatsdServer>(text).unwrap().get().to_string(), text);
        }
        let unix = parse::<StatsdServer>("unix:///run/dsd.socket").unwrap();
        assert_eq!(unix.get().to_string(), "unix:/run/dsd.socket");
        for text in ["localhost:8125", "udp://localhost", "udp://:1", "http://a:1", "unix:"] {
            assert!(parse::<StatsdServer>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rewrite_has_a_pattern_and_a_name() {
        let text = r"^a\.([^.]+)\.(.*)$ -> a.$2 domain:$1";
        let rewrite = parse::<NameRewrite>(text).unwrap();
        assert_eq!(SettingKind::show(&rewrite), text);
        for text in ["a", "( -> b", "a -> ", "a -> b c", "a -> b c:"] {
            assert!(parse::<NameRewrite>(text).is_err(), "{text}");
        }
        let mut tags: Vec<StatsTag> = Vec::new();
        assert!(tags.set_text("a:b", &Bounds::NONE).is_ok());
        assert!(parse::<StatsTag>("a").is_err() && parse::<StatsTag>("a:b:c").is_err());
    }
}
