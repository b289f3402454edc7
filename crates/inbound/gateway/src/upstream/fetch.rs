//! Fetches a small document over HTTP, such as a set of keys.
//!
//! Each fetch has its own connection, because minutes lie between two. Redirects are not followed: the settings name
//! the server that is trusted.

use std::path::Path;
use std::time::Duration;

use http::header::{ACCEPT, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;

use super::connect::{Connector, HttpConnection};
use super::origin::Origin;
use crate::body::RequestBody;
use crate::settings::{ClientTls, UpstreamProtocol, UpstreamSettings};

/// The timeout of a fetch, from the connection to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A document at a URL.
#[derive(Debug)]
pub(crate) struct RemoteDocument {
    origin: Origin,
    path: PathAndQuery,
    connector: Connector,
    bytes_max: usize,
}

impl RemoteDocument {
    /// The document at this URL. Reads the file of trusted authorities, so it blocks.
    pub(crate) fn new(
        url: &str,
        authority: Option<&Path>,
        bytes_max: usize,
    ) -> Result<Self, String> {
        let invalid = || format!("`{url}` is not a URL with `http` or `https`");
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.authority()) else {
            return Err(invalid());
        };
        let origin = Origin::parse(&format!("{scheme}://{host}")).map_err(|_| invalid())?;
        let path = uri.path_and_query().cloned();
        let protocol = UpstreamProtocol::Http1;
        let tls = ClientTls { authority: authority.map(Path::to_owned), ..ClientTls::default() };
        let connector = match origin.is_encrypted() {
            true => Some(tls.connector(protocol.alpn()).map_err(|error| error.to_string())?),
            false => None,
        };
        let settings = UpstreamSettings { protocol, tls, ..UpstreamSettings::new("", [url]) };
        let connector = Connector::new(connector, &settings).map_err(|error| error.to_string())?;
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(RemoteDocument { origin, path, connector, bytes_max })
    }

    /// Fetches the document.
    ///
    /// # Errors
    /// Why there is none, as a sentence.
    pub(crate) async fn fetch(&self) -> Result<String, String> {
        let fetched = timeout(FETCH_TIMEOUT, self.get()).await;
        fetched.unwrap_or_else(|_| Err("the server did not answer in time".to_owned()))
    }

    async fn get(&self) -> Result<String, String> {
        let opened = self.connector.open(&self.origin, FETCH_TIMEOUT).await;
        let HttpConnection::Http1(mut connection) = opened.map_err(|error| error.to_string())?
        else {
            return Err("the server does not speak HTTP/1.1".to_owned());
        };
        let request = Request::get(Uri::from(self.path.clone()))
            .header(HOST, self.origin.field())
            .header(USER_AGENT, "tidegate")
            .header(ACCEPT, "application/json")
            .body(RequestBody::empty())
            .map_err(|error| error.to_string())?;
        let answer =
            connection.sender.send_request(request).await.map_err(|error| error.to_string())?;
        if answer.status() != StatusCode::OK {
            return Err(format!("the server answered with {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), self.bytes_max).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        String::from_utf8(body.into()).map_err(|_| "the document is not text".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_http_are_accepted() {
        for url in ["", "keys.json", "ftp://a/keys", "https:///keys", "http://u@a/keys", "//a/keys"]
        {
            assert!(RemoteDocument::new(url, None, 10).is_err(), "{url}");
        }
        let document = RemoteDocument::new("http://127.0.0.1:8080/keys?x=1", None, 10).unwrap();
        assert_eq!(document.path, "/keys?x=1");
    }
}
