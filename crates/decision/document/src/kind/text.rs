//! Texts, names of header fields, networks and paths of files.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Kind, wrong_type};
use crate::problems::Fault;
use crate::yaml::{PlainValue, Scalar};

/// The longest line: longer ones are mistakes.
const LINE_BYTES_MAX: usize = 4_096;

/// The text of a scalar that is not empty; numbers and booleans count as their text.
fn filled<'t, K: Kind>(scalar: &'t Scalar<'_>) -> Result<&'t str, Fault> {
    if scalar.text.is_empty() {
        return Err(Fault::new("empty", "this must not be empty"));
    }
    if scalar.plain() == PlainValue::Null {
        return Err(wrong_type::<K>(scalar));
    }
    Ok(&scalar.text)
}

fn text_schema() -> Value {
    json!({"type": ["string", "number", "boolean"], "minLength": 1})
}

/// Any text that is not empty, of several lines too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl From<Text> for String {
    fn from(text: Text) -> String {
        text.0
    }
}

crate::kind! {
    Text: "text", text_schema(), |scalar| filled::<Self>(scalar).map(|text| Text(text.to_owned()))
}

// A string is one line of text.
crate::kind! {
    String: "text", text_schema(), |scalar| {
        let text = filled::<Self>(scalar)?;
        if text.len() > LINE_BYTES_MAX {
            let message = format!("{} bytes of text; the maximum is {LINE_BYTES_MAX}", text.len());
            return Err(Fault::new("out_of_range", message));
        }
        if text.contains(|char: char| char.is_control()) {
            return Err(Fault::new("control_character", "the text has a control character"));
        }
        Ok(text.to_owned())
    }
}

crate::kind! {
    PathBuf: "a path", text_schema(), text |path| Ok(PathBuf::from(path))
}

/// The name of a header field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderName(String);

impl HeaderName {
    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

crate::kind! {
    HeaderName: "the name of a header field",
    json!({"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"}),
    text |text| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if text.bytes().all(legal) {
            return Ok(HeaderName(text.to_owned()));
        }
        let message = format!("`{text}` is not the name of a header field");
        Err(Fault::new("invalid_header", message)
            .hint("use letters, digits and `-`, such as `X-User`"))
    }
}

/// A network, such as `10.0.0.0/8`; an address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// The network itself.
    pub const fn get(self) -> IpNet {
        self.0
    }

    /// Reads a network or an address.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn from_text(text: &str) -> Result<Self, Fault> {
        let address = || text.parse().ok().map(|address: IpAddr| IpNet::from(address));
        text.parse().ok().or_else(address).map(Network).ok_or_else(|| {
            Fault::new("invalid_network", format!("`{text}` is not a network"))
                .hint("write `10.0.0.0/8`, `fd00::/8` or an address")
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

crate::kind! {
    Network: "a network such as `10.0.0.0/8`",
    json!({"type": "string", "pattern": "^[0-9a-fA-F.:]+(/[0-9]{1,3})?$"}),
    |scalar| Network::from_text(filled::<Self>(scalar)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Bounds;
    use crate::yaml::ScalarStyle;

    fn read<K: Kind>(text: &str) -> Result<K, Fault> {
        K::parse(&Scalar { text: text.into(), style: ScalarStyle::Plain }, &Bounds::NONE)
    }

    #[test]
    fn a_line_has_no_control_characters_and_an_end() {
        assert!(read::<String>("").is_err() && read::<String>("a\u{7}").is_err());
        assert!(read::<String>(&"a".repeat(5_000)).is_err());
        assert_eq!(read::<Text>("a\nb").unwrap().0, "a\nb");
        assert!(read::<Text>("").is_err());
    }

    #[test]
    fn header_names_and_networks_are_checked() {
        assert!(
            read::<HeaderName>("X-RateLimit").is_ok() && read::<HeaderName>("X RateLimit").is_err()
        );
        assert_eq!(read::<Network>("10.0.0.1").unwrap().to_string(), "10.0.0.1/32");
        assert!(read::<Network>("everybody").is_err());
    }
}
