//! Addresses to listen on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::json;
use tidegate_document::{Fault, kind};

/// The longest path of a Unix socket that every system allows.
const SOCKET_PATH_BYTES_MAX: usize = 103;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port; zero lets the system choose.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this machine can connect to it.
    pub const fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().is_loopback(),
            Address::Unix(_) => true,
        }
    }

    /// Whether both cannot be listened on at once.
    pub fn collides(&self, other: &Address) -> bool {
        match (self, other) {
            (Address::Unix(one), Address::Unix(other)) => one == other,
            (Address::Tcp(one), Address::Tcp(other)) => {
                let all = |address: &SocketAddr| address.ip().is_unspecified();
                let same_family = one.is_ipv4() == other.is_ipv4();
                let overlap = one.ip() == other.ip() || same_family && (all(one) || all(other));
                one.port() != 0 && one.port() == other.port() && overlap
            }
            (Address::Tcp(_), Address::Unix(_)) | (Address::Unix(_), Address::Tcp(_)) => false,
        }
    }

    /// Reads `ADDRESS:PORT` or `unix:PATH`.
    pub(in crate::config) fn from_text(text: &str) -> Result<Self, Fault> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path.strip_prefix("//").unwrap_or(path));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Address::Tcp(address));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let port_number = port.and_then(|port| port.parse::<u16>().ok());
        if let (true, Some(port)) = (host.eq_ignore_ascii_case("localhost"), port_number) {
            return Ok(Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        Err(malformed(text, host, port, port_number))
    }
}

fn unix(path: &str) -> Result<Address, Fault> {
    let wrong = |message: String| {
        Fault::new("invalid_address", message).hint("such as `unix:/run/tidegate.sock`")
    };
    if path.is_empty() {
        return Err(wrong("the socket has no path".to_owned()));
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        let bytes = path.len();
        return Err(wrong(format!(
            "the path of a socket has {bytes} bytes; the maximum is {SOCKET_PATH_BYTES_MAX}"
        )));
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

/// The fault of a malformed address.
fn malformed(text: &str, host: &str, port: Option<&str>, number: Option<u16>) -> Fault {
    let wrong = |message: String| Fault::new("invalid_address", message);
    let bare_port = text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok();
    if text.starts_with('/') {
        return wrong(format!("`{text}` has no port")).hint(format!("did you mean `unix:{text}`?"));
    }
    if text.contains("://") {
        return wrong(format!("`{text}` is a URL, not an address to listen on"))
            .hint("write `ADDRESS:PORT`; TLS is set under `tls`");
    }
    if let Some(port) = bare_port {
        return wrong(format!("`{text}` has no address before its port"))
            .hint(format!("write `0.0.0.0:{port}` for all addresses, or `127.0.0.1:{port}`"));
    }
    // Several colons and no brackets: an IPv6 address.
    if let Ok(IpAddr::V6(address)) = text.parse::<IpAddr>() {
        return wrong(format!("`{text}` has no port"))
            .hint(format!("write the address in brackets: `[{address}]:PORT`"));
    }
    if let (Ok(IpAddr::V6(address)), Some(number)) = (host.parse::<IpAddr>(), number) {
        return wrong(format!("`{text}` is ambiguous"))
            .hint(format!("write the address in brackets: `[{address}]:{number}`"));
    }
    match (port, number) {
        (None, _) => {
            wrong(format!("`{text}` has no port")).hint("write `ADDRESS:PORT` or `unix:PATH`")
        }
        (Some(port), None) => {
            wrong(format!("`{port}` is not a port")).hint("a port is a number from 0 to 65535")
        }
        (Some(_), Some(_)) => wrong(format!("`{host}` is not an IP address"))
            .hint("names are not looked up: write an IP address, or `0.0.0.0` for all"),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(out, "{address}"),
            Address::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

kind! {
    Address: "`ADDRESS:PORT` or `unix:PATH`",
    json!({"type": "string", "pattern": "^(unix:.+|.+:[0-9]{1,5})$"}),
    text |text| Address::from_text(text),
    show |address| address.to_string()
}
