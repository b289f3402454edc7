//! The origin of a host: `http://host:port`.

use std::net::{IpAddr, SocketAddr};

use http::Uri;
use http::header::HeaderValue;
use http::uri::{Authority, Scheme};

/// The address of a host, and whether connections to it are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    encrypted: bool,
    host: Box<str>,
    port: u16,
    /// Set if the host is an IP address, which needs no resolution.
    address: Option<IpAddr>,
    authority: Authority,
    field: HeaderValue,
}

/// Why a text is not an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` does not have the form `http://host:port` or `https://host:port`")]
pub(super) struct OriginError {
    text: String,
}

impl Origin {
    pub(super) fn parse(text: &str) -> Result<Self, OriginError> {
        Self::read(text).ok_or_else(|| OriginError { text: text.to_owned() })
    }

    fn read(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let encrypted = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority()?.clone();
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if !bare || authority.as_str().contains('@') || authority.host().is_empty() {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Some(Origin {
            encrypted,
            host: host.into(),
            port: authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 }),
            address: host.parse().ok(),
            field: HeaderValue::from_str(authority.as_str()).ok()?,
            authority,
        })
    }

    pub(super) const fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Its socket address, if the host is an IP address.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address.map(|address| SocketAddr::new(address, self.port))
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.encrypted { Scheme::HTTPS } else { Scheme::HTTP }
    }

    pub(crate) const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Its authority, as a value for `Host`.
    pub(crate) const fn field(&self) -> &HeaderValue {
        &self.field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_and_a_host() {
        let origin = Origin::parse("http://127.0.0.1:8080").unwrap();
        assert_eq!(origin.address(), Some("127.0.0.1:8080".parse().unwrap()));
        let origin = Origin::parse("https://[::1]/").unwrap();
        assert_eq!((origin.host(), origin.port(), origin.is_encrypted()), ("::1", 443, true));
        assert_eq!(Origin::parse("http://api.test").unwrap().address(), None);
    }

    #[test]
    fn anything_else_is_rejected() {
        for text in ["127.0.0.1:80", "ftp://a", "http://", "http://u@a", "http://a/b", "http://a?b"]
        {
            assert!(Origin::parse(text).is_err(), "{text}");
        }
    }
}
