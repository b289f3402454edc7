//! A client of the rules service.

use std::path::PathBuf;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderValue};
use axum::http::{Method, Request, StatusCode};
use clap::Args;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::debug_client::{TokenArgs, client_runtime};
use crate::exit::{Complaint, Failure};

/// How long an answer may take: a set of 100,000 changes is one transaction.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The largest answer: a page of 20,000 entries.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Entries of a page.
const PAGE: usize = 10_000;

/// How to reach the rules service.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControlServerArgs {
    /// The address of the rules service.
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEGATE_CONTROL",
        default_value = "http://127.0.0.1:8082"
    )]
    pub(crate) server: String,
    /// The token: the first line of this file.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONTROL_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// An answer of the service.
#[derive(Debug)]
pub(crate) struct ServiceAnswer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    pub(crate) etag: Option<String>,
}

/// A client with its own runtime: commands ask one question after another.
#[derive(Debug)]
pub(crate) struct ControlClient {
    base: String,
    token: Option<HeaderValue>,
    client: Client<HttpConnector, Body>,
    runtime: Runtime,
}

impl ControlClient {
    pub(crate) fn new(args: &ControlServerArgs) -> Result<Self, Failure> {
        let base = args.server.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") {
            let help = "write http://HOST:PORT; for a service with TLS, go through a local proxy or a tunnel";
            return Err(
                Complaint::new(format!("`{base}` is no address of a rules service"), help).into()
            );
        }
        let token = TokenArgs { token_file: args.token_file.clone() }.read()?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(ControlClient { base, token, client, runtime: client_runtime()? })
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Sends a request, whatever the answer is.
    pub(crate) fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        fields: &[(&str, &str)],
    ) -> Result<ServiceAnswer, Failure> {
        let sent = self.send(method, path, body, fields);
        let answer = self.runtime.block_on(async { timeout(ANSWER_TIMEOUT, sent).await });
        answer.unwrap_or_else(|_| Err("no answer in time".to_owned())).map_err(|message| {
            let help = "check `--server`, and that `tidegate control serve` runs there";
            Complaint::new(format!("{}: {message}", self.base), help).into()
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        fields: &[(&str, &str)],
    ) -> Result<ServiceAnswer, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.body(body).map_err(|error| error.to_string())?;
        let answer = self.client.request(request).await.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            cause.unwrap_or_else(|| error.to_string())
        })?;
        let status = answer.status();
        let etag = answer.headers().get(ETAG).and_then(|tag| Some(tag.to_str().ok()?.to_owned()));
        let bytes = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
        let bytes = bytes.map_err(|error| error.to_string())?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(ServiceAnswer { status, body, etag })
    }

    /// Sends a request that should succeed.
    pub(crate) fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        fields: &[(&str, &str)],
    ) -> Result<Value, Failure> {
        let answer = self.exchange(method, path, body, fields)?;
        if answer.status.is_success() { Ok(answer.body) } else { Err(refusal(&answer).into()) }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Method::GET, path, None, &[])
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask(Method::POST, path, Some(body), &[])
    }

    /// Every entry of a kind at a version, page by page.
    pub(crate) fn entries(&self, kind: &str, query: &str) -> Result<Vec<Value>, Failure> {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/entries/{kind}?limit={PAGE}{query}{after}");
            let mut page = self.get(&path)?;
            if let Value::Array(entries) = page["entries"].take() {
                found.extend(entries);
            }
            match page["after"].as_str() {
                Some(cursor) => after = format!("&after={}", encode(cursor)),
                None => return Ok(found),
            }
        }
    }
}

/// The error that a refused request is.
pub(crate) fn refusal(answer: &ServiceAnswer) -> Complaint {
    let detail = answer.body["detail"].as_str();
    let mut message =
        detail.map_or_else(|| format!("the answer is {}", answer.status), str::to_owned);
    let mut help = match answer.status {
        StatusCode::UNAUTHORIZED => "give the file with your token: `--token-file`",
        StatusCode::FORBIDDEN => "ask for a token with this role: `tidegate control token add`",
        StatusCode::PRECONDITION_FAILED => "look at what is there now, and repeat the command",
        _ => "correct what was sent, and repeat the command",
    }
    .to_owned();
    let problems = answer.body["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    for problem in problems {
        let text = |field: &str| problem[field].as_str().unwrap_or_default();
        let line = problem["line"].as_u64().map(|line| format!(":{line}")).unwrap_or_default();
        message.push_str(&format!("; {}{line}: {}", text("place"), text("message")));
        if let Some(hint) = problem["hint"].as_str() {
            help = hint.to_owned();
        }
    }
    Complaint::new(message, help)
}

/// A text as a part of a path or a query.
pub(crate) fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match plain(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The path of an entry.
pub(crate) fn entry_path(kind: &str, collection: &str, name: &str) -> String {
    let collection = if collection.is_empty() { "-" } else { collection };
    format!("/v1/entries/{kind}/{}/{}", encode(collection), encode(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_in_paths() {
        let path = entry_path("row", "api/clients", "ä b");
        assert_eq!(path, "/v1/entries/row/api%2Fclients/%C3%A4%20b");
        assert_eq!(entry_path("switch", "", "all"), "/v1/entries/switch/-/all");
    }
}
