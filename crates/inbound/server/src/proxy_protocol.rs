//! The PROXY protocol: a header, sent before anything else, in which a proxy names its client.
//!
//! Reads exactly the header, so that the bytes after it are left for the next reader. Version 1 has no length prefix:
//! its line is read byte by byte, once per connection.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ppp::{v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The length that distinguishes both versions; neither is shorter.
const START_BYTES: usize = 13;
/// The fixed part of version 2, which ends with the length of the rest.
const V2_FIXED_BYTES: usize = 16;
/// The longest line of version 1.
const V1_BYTES_MAX: usize = 107;
/// The maximum length of the rest. Addresses take up to 216 bytes; proxies add extensions (TLVs).
const V2_REST_BYTES_MAX: usize = 4_096;

/// Why a header cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyHeaderError {
    #[error("the connection ended")]
    Ended(#[from] io::Error),
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    #[error("the header is too long")]
    TooLong,
    #[error("the header is malformed")]
    Malformed,
}

/// Reads the header and returns the client. `None` when the proxy names none, as in its health checks.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let mut header = vec![0; START_BYTES];
    stream.read_exact(&mut header).await?;
    if header.starts_with(v2::PROTOCOL_PREFIX) {
        read_v2(stream, header).await
    } else if header.starts_with(v1::PROTOCOL_PREFIX.as_bytes()) {
        read_v1(stream, header).await
    } else {
        Err(ProxyHeaderError::Missing)
    }
}

async fn read_v1(
    stream: &mut (impl AsyncRead + Unpin),
    mut line: Vec<u8>,
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    while !line.ends_with(b"\r\n") {
        if line.len() >= V1_BYTES_MAX {
            return Err(ProxyHeaderError::TooLong);
        }
        line.push(stream.read_u8().await?);
    }
    let header = v1::Header::try_from(line.as_slice()).map_err(|_| ProxyHeaderError::Malformed)?;
    Ok(match header.addresses {
        v1::Addresses::Unknown => None,
        v1::Addresses::Tcp4(at) => Some(canonical(at.source_address, at.source_port)),
        v1::Addresses::Tcp6(at) => Some(canonical(at.source_address, at.source_port)),
    })
}

async fn read_v2(
    stream: &mut (impl AsyncRead + Unpin),
    mut header: Vec<u8>,
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let mut fixed = [0; V2_FIXED_BYTES - START_BYTES];
    stream.read_exact(&mut fixed).await?;
    let [_, high, low] = fixed;
    let rest = usize::from(u16::from_be_bytes([high, low]));
    if rest > V2_REST_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    header.extend_from_slice(&fixed);
    header.resize(V2_FIXED_BYTES + rest, 0);
    if let Some(rest) = header.get_mut(V2_FIXED_BYTES..) {
        stream.read_exact(rest).await?;
    }
    let header =
        v2::Header::try_from(header.as_slice()).map_err(|_| ProxyHeaderError::Malformed)?;
    Ok(match (header.command, header.addresses) {
        (v2::Command::Proxy, v2::Addresses::IPv4(at)) => {
            Some(canonical(at.source_address, at.source_port))
        }
        (v2::Command::Proxy, v2::Addresses::IPv6(at)) => {
            Some(canonical(at.source_address, at.source_port))
        }
        _ => None,
    })
}

/// Turns an IPv4-mapped IPv6 address into IPv4.
fn canonical(address: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.into().to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result, and the bytes that are left.
    async fn reading(mut bytes: &[u8]) -> (Result<Option<SocketAddr>, String>, &[u8]) {
        let read = read(&mut bytes).await.map_err(|error| error.to_string());
        (read, bytes)
    }

    fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend_from_slice(&[0x20 | command, family]);
        header.extend_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
        header.extend_from_slice(rest);
        header
    }

    #[tokio::test]
    async fn a_line_of_version_1_names_the_client_and_leaves_what_follows() {
        let (read, rest) = reading(b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 80\r\nGET /").await;
        assert_eq!(read, Ok(Some("192.0.2.7:5000".parse().unwrap())));
        assert_eq!(rest, b"GET /");
        let (read, rest) = reading(b"PROXY TCP6 2001:db8::7 ::1 1 2\r\nG").await;
        assert_eq!((read, rest), (Ok(Some("[2001:db8::7]:1".parse().unwrap())), &b"G"[..]));
        assert_eq!(reading(b"PROXY UNKNOWN\r\nG").await, (Ok(None), &b"G"[..]));
    }

    #[tokio::test]
    async fn version_2_names_the_client_and_leaves_what_follows() {
        let addresses = [192, 0, 2, 7, 198, 51, 100, 1, 0x13, 0x88, 0, 80];
        let mut bytes = version_2(1, 0x11, &addresses);
        bytes.extend_from_slice(b"GET /");
        let (read, rest) = reading(&bytes).await;
        assert_eq!((read, rest), (Ok(Some("192.0.2.7:5000".parse().unwrap())), &b"GET /"[..]));
        let check = version_2(0, 0, &[]);
        assert_eq!(reading(&check).await, (Ok(None), &b""[..]));
    }

    #[tokio::test]
    async fn anything_else_is_no_header() {
        let endless = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat();
        for bytes in [
            b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".as_slice(),
            b"PROXY TCP4 192.0.2.7 nowhere 1 2\r\n",
            b"PROXY TCP4 192.0.2.7",
            b"",
            &endless,
            &version_2(1, 0x11, &[1, 2, 3]),
            &version_2(1, 0x11, &[0; 5_000]),
        ] {
            assert!(reading(bytes).await.0.is_err(), "{bytes:?}");
        }
    }
}
