//! Host names that a port answers to, against DNS rebinding.
//!
//! A page from the internet can make the name of its own host resolve to a loopback or internal address; a browser then
//! sends its requests there, with that name in `Host`. A port that answers only to names that such a page cannot have
//! is safe from it.

use std::net::IpAddr;

use http::header::HOST;
use http::request::Parts;

/// The names that a port answers to, beside IP addresses and loopback names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// These names, without ports; case and a trailing dot do not matter.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        HostNames(names.into_iter().map(|name| canonical(&name)).collect())
    }

    /// Whether a request is for one of the names, an IP address or a loopback name. So is a request without a host:
    /// browsers always send one.
    pub fn accept(&self, head: &Parts) -> bool {
        let mut fields = head.headers.get_all(HOST).iter();
        let field = match (head.uri.authority(), fields.next(), fields.next()) {
            (Some(authority), ..) => Some(authority.as_str()),
            (None, None, _) => return true,
            (None, Some(field), None) => field.to_str().ok(),
            (None, Some(_), Some(_)) => None,
        };
        field.and_then(host_of).is_some_and(|host| self.accept_name(host))
    }

    fn accept_name(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.parse::<IpAddr>().is_ok() {
            return true;
        }
        let host = canonical(host);
        host == "localhost" || host.ends_with(".localhost") || self.0.contains(&host)
    }
}

/// The host without its port; `None` if the port is malformed.
fn host_of(authority: &str) -> Option<&str> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            Some(host).filter(|_| digits)
        }
        _ => Some(authority),
    }
}

fn canonical(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn accepts(host: &str) -> bool {
        let names = HostNames::new(["Debug.internal.".to_owned()]);
        let (head, ()) = Request::get("/").header(HOST, host).body(()).unwrap().into_parts();
        names.accept(&head)
    }

    #[test]
    fn addresses_loopback_names_and_configured_names_are_accepted() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:6070",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:6070",
            "localhost",
            "LocalHost:6070",
            "localhost.",
            "a.localhost",
            "debug.internal",
            "DEBUG.internal.:6070",
        ] {
            assert!(accepts(host), "{host}");
        }
    }

    #[test]
    fn other_and_malformed_names_are_not() {
        for host in [
            "",
            "evil.example",
            "evil.example:6070",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "xlocalhost",
            "localhost:6070:80",
            "localhost:x",
            "localhost,evil.example",
            "debug.internal.evil.example",
        ] {
            assert!(!accepts(host), "{host}");
        }
    }

    #[test]
    fn the_authority_of_the_target_counts_and_two_fields_are_none() {
        let names = HostNames::default();
        let head = |request: http::request::Builder| request.body(()).unwrap().into_parts().0;
        assert!(names.accept(&head(Request::get("/"))));
        assert!(names.accept(&head(Request::get("http://localhost:6070/"))));
        let evil = Request::get("http://evil.example/").header(HOST, "localhost");
        assert!(!names.accept(&head(evil)));
        let two = Request::get("/").header(HOST, "localhost").header(HOST, "localhost");
        assert!(!names.accept(&head(two)));
    }
}
