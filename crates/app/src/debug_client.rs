//! A client of the debug port of a running server.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use axum::http::{Method, Request, StatusCode, Uri};
use clap::Args;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::exit::Complaint;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a large answer may take.
const LARGE_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest answer, unless more is asked for.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The runtime of a command that asks servers.
pub(crate) fn client_runtime() -> Result<Runtime, Complaint> {
    Builder::new_current_thread().enable_all().build().map_err(|error| {
        let message = format!("the runtime cannot be started: {error}");
        Complaint::new(message, "check what the process may use: memory, threads, open files")
    })
}

/// How to reach debug ports.
#[derive(Clone, Debug, Args)]
pub(crate) struct TokenArgs {
    /// The token, if the port asks for one: the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<std::path::PathBuf>,
}

impl TokenArgs {
    /// The token as a header field.
    pub(crate) fn read(&self) -> Result<Option<HeaderValue>, Complaint> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let help = "give the file with the token of `debug.token_file`";
        let text = std::fs::read_to_string(path).map_err(|error| {
            Complaint::new(format!("`{}` cannot be read: {error}", path.display()), help)
        })?;
        let token = text.lines().next().unwrap_or_default().trim();
        let mut field = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            Complaint::new(format!("`{}` has no token in its first line", path.display()), help)
        })?;
        field.set_sensitive(true);
        Ok(Some(field))
    }
}

/// The debug port of one server.
#[derive(Clone, Debug)]
pub(crate) struct DebugClient {
    base: String,
    token: Option<HeaderValue>,
    client: Client<HttpConnector, Body>,
}

impl DebugClient {
    /// The port at `HOST:PORT` or `http://HOST:PORT`.
    pub(crate) fn new(server: &str, token: Option<HeaderValue>) -> Result<Self, Complaint> {
        let base = server.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        let uri: Option<Uri> = base.parse().ok();
        let is_plain = uri.is_some_and(|uri| {
            uri.scheme_str() == Some("http") && uri.authority().is_some() && uri.path() == "/"
        });
        if !is_plain {
            let help = "write HOST:PORT, such as localhost:6070; the port speaks HTTP without TLS";
            return Err(Complaint::new(format!("`{server}` is no address of a debug port"), help));
        }
        Ok(DebugClient { base, token, client: Client::builder(TokioExecutor::new()).build_http() })
    }

    /// The server, without the scheme.
    pub(crate) fn name(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    /// A page as JSON.
    ///
    /// # Errors
    /// A sentence: the server cannot be reached, or rejected the request.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, String> {
        self.send(Method::GET, path, Body::empty(), ANSWER_BYTES_MAX).await
    }

    /// A page as JSON, of up to so many bytes.
    ///
    /// # Errors
    /// Like [`DebugClient::get`].
    pub(crate) async fn get_large(&self, path: &str, bytes_max: usize) -> Result<Value, String> {
        self.send(Method::GET, path, Body::empty(), bytes_max).await
    }

    /// The answer to a question.
    ///
    /// # Errors
    /// Like [`DebugClient::get`].
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.send(Method::POST, path, Body::from(body.to_string()), ANSWER_BYTES_MAX).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Body,
        bytes_max: usize,
    ) -> Result<Value, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(body).map_err(|error| error.to_string())?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                cause.unwrap_or_else(|| error.to_string())
            })?;
            let status = answer.status();
            let bytes = to_bytes(Body::new(answer.into_body()), bytes_max).await;
            Ok::<_, String>((status, bytes.map_err(|error| error.to_string())?))
        };
        let within = if bytes_max > ANSWER_BYTES_MAX { LARGE_TIMEOUT } else { ANSWER_TIMEOUT };
        let (status, bytes) =
            timeout(within, exchange).await.map_err(|_| "no answer in time".to_owned())??;
        let page = serde_json::from_slice::<Value>(&bytes);
        match (status, page) {
            (StatusCode::OK, Ok(page)) => Ok(page),
            (StatusCode::OK, Err(_)) => Err("the answer is not JSON".to_owned()),
            (StatusCode::NOT_FOUND, Err(_)) => Err("this is no debug port of Tidegate".to_owned()),
            (status, page) => {
                let detail = page.ok().and_then(|page| Some(page["detail"].as_str()?.to_owned()));
                Err(detail.unwrap_or_else(|| format!("the answer is {status}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["localhost:6070", "http://10.0.0.1:6070/", "http://debug.internal"] {
            assert!(DebugClient::new(good, None).is_ok(), "{good}");
        }
        for bad in ["", "https://localhost:6070", "http://h:1/path", "a b", "ftp://h"] {
            assert!(DebugClient::new(bad, None).is_err(), "{bad}");
        }
    }
}
