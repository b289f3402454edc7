//! A client of the API of a running forwarder.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Certificate, Client, Method, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::debug_client::TokenArgs;
use crate::exit::Complaint;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take. A batch waits for the disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest text of an answer that is no JSON which a message repeats.
const DETAIL_CHARS_MAX: usize = 200;

/// How to reach a forwarder.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The forwarder: HOST:PORT, or a URL.
    #[arg(
        long,
        value_name = "SERVER",
        env = "TIDEGATE_FORWARD_SERVER",
        default_value = "localhost:8090"
    )]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// How to be let in.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// A PEM file with the certificate authority of a server with TLS. Without it: the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

/// Why a request was not answered as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    /// The status; `None` if there was no answer.
    pub(crate) status: Option<u16>,
    /// The time to wait before the next try, if the answer says so.
    pub(crate) retry_after: Option<Duration>,
    /// A sentence.
    pub(crate) detail: String,
}

impl CallError {
    fn unreachable(error: &reqwest::Error) -> Self {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        CallError { status: None, retry_after: None, detail: cause.to_string() }
    }
}

/// The API of one forwarder.
#[derive(Clone, Debug)]
pub(crate) struct ForwardClient {
    base: Url,
    client: Client,
    token: Option<reqwest::header::HeaderValue>,
}

impl ForwardClient {
    /// The forwarder that the arguments name.
    pub(crate) fn of(args: &ServerArgs) -> Result<Self, Complaint> {
        Self::new(&args.server, &args.access)
    }

    pub(crate) fn new(server: &str, access: &AccessArgs) -> Result<Self, Complaint> {
        let text =
            if server.contains("://") { server.to_owned() } else { format!("http://{server}") };
        let base = Url::parse(&text).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https") && url.has_host() && url.path() == "/"
        });
        let base = base.ok_or_else(|| {
            let help = "write HOST:PORT, such as localhost:8090, or https://HOST:PORT";
            Complaint::new(format!("`{server}` is no address of a forwarder"), help)
        })?;
        let mut client = Client::builder().connect_timeout(CONNECT_TIMEOUT).no_proxy();
        if let Some(path) = &access.ca {
            let unusable = |error: &dyn std::fmt::Display| {
                let message = format!("`{}` cannot be used: {error}", path.display());
                Complaint::new(message, "give a PEM file with certificates")
            };
            let pem = std::fs::read(path).map_err(|error| unusable(&error))?;
            let authorities =
                Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&error))?;
            client = client.tls_certs_merge(authorities);
        }
        let client = client.build().map_err(|error| {
            let help = "check the certificates of this system";
            Complaint::new(format!("the HTTP client cannot be made: {error}"), help)
        })?;
        Ok(ForwardClient { base, client, token: access.token.read()? })
    }

    /// A forwarder of this machine, without a token.
    pub(crate) fn local(address: &str) -> Result<Self, Complaint> {
        Self::new(address, &AccessArgs { token: TokenArgs { token_file: None }, ca: None })
    }

    /// The server for messages.
    pub(crate) fn name(&self) -> String {
        self.base.as_str().trim_end_matches('/').trim_start_matches("http://").to_owned()
    }

    /// A complaint about a request that failed.
    pub(crate) fn complaint(&self, error: &CallError) -> Complaint {
        let server = self.name();
        match error.status {
            None => Complaint::new(
                format!("the forwarder at {server} cannot be reached: {}", error.detail),
                "start it with `tidegate forward serve`, or name another one with `--server`",
            ),
            Some(401 | 403) => Complaint::new(
                format!("the forwarder at {server} refused: {}", error.detail),
                "give a token with the role that this needs: `--token-file`",
            ),
            Some(status) => Complaint::new(
                format!("the forwarder at {server} answered {status}: {}", error.detail),
                "`tidegate forward status` shows its record types",
            ),
        }
    }

    /// A page.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        read(self.send(Method::GET, path, None).await?).await
    }

    /// The answer to a change.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<T, CallError> {
        read(self.send(method, path, Some(body.to_string().into_bytes())).await?).await
    }

    /// The answer to a batch of records.
    pub(crate) async fn post_records<T: DeserializeOwned>(
        &self,
        query: &str,
        lines: Vec<u8>,
    ) -> Result<T, CallError> {
        read(self.send(Method::POST, &format!("/v1/records{query}"), Some(lines)).await?).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Response, CallError> {
        let url = self.base.join(path).map_err(|error| CallError {
            status: None,
            retry_after: None,
            detail: format!("`{path}` cannot be asked for: {error}"),
        })?;
        let mut request = self.client.request(method, url).timeout(ANSWER_TIMEOUT);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        request.send().await.map_err(|error| CallError::unreachable(&error))
    }
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, CallError> {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|text| text.to_str().ok()?.parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let bytes = response.bytes().await.map_err(|error| CallError::unreachable(&error))?;
    let failed = |detail: String| CallError { status: Some(status.as_u16()), retry_after, detail };
    if status.is_success() {
        return serde_json::from_slice(&bytes)
            .map_err(|error| failed(format!("the answer cannot be read: {error}")));
    }
    let detail = serde_json::from_slice::<Value>(&bytes).ok();
    let detail = detail.and_then(|problem| Some(problem["detail"].as_str()?.to_owned()));
    Err(failed(detail.unwrap_or_else(|| {
        String::from_utf8_lossy(&bytes).chars().take(DETAIL_CHARS_MAX).collect()
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port_or_a_url() {
        let access = AccessArgs { token: TokenArgs { token_file: None }, ca: None };
        for good in ["localhost:8090", "http://10.0.0.1:8090/", "https://forwarder.internal"] {
            assert!(ForwardClient::new(good, &access).is_ok(), "{good}");
        }
        for bad in ["", "ftp://h", "http://h/path", "a b", "http://"] {
            assert!(ForwardClient::new(bad, &access).is_err(), "{bad}");
        }
    }
}
