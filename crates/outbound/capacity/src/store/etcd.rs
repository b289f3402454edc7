//! Leases in etcd: one key for each target, put in a transaction that compares the key's revision.
//!
//! It speaks to the JSON gateway of each etcd server (`/v3`, etcd 3.4 or newer). etcd offers no clock, so a lease ends
//! when another member has seen it unchanged for its length.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CapacityStore, CapacityStoreError, StoredDocument};

/// How long one exchange may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read; a document has a few thousand.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How etcd is reached.
#[derive(Clone)]
pub struct EtcdSettings {
    /// Addresses of its servers, such as `http://127.0.0.1:2379`. They are tried in turn.
    pub endpoints: Vec<String>,
    /// Where the keys of the documents begin.
    pub prefix: String,
    /// A user with its password, if etcd asks for one.
    pub login: Option<(String, String)>,
    /// Certificates (PEM) to trust beside those of the system.
    pub roots: Option<Vec<u8>>,
}

impl EtcdSettings {
    /// Settings for these servers, without a login.
    pub fn new(endpoints: Vec<String>) -> Self {
        EtcdSettings { endpoints, prefix: "tidegate/".to_owned(), login: None, roots: None }
    }
}

impl std::fmt::Debug for EtcdSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdSettings")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Keeps documents in an etcd that all members reach.
#[derive(Debug)]
pub struct EtcdCapacityStore {
    client: Client,
    settings: EtcdSettings,
    state: Mutex<EtcdState>,
}

#[derive(Debug, Default)]
struct EtcdState {
    /// The index of the server that answered last.
    endpoint: usize,
    /// What a login returned.
    token: Option<String>,
}

impl EtcdCapacityStore {
    /// A store on these servers. It connects at the first heartbeat.
    ///
    /// # Errors
    /// When there is no endpoint, or the certificates cannot be read.
    pub fn new(settings: EtcdSettings) -> Result<Self, CapacityStoreError> {
        if settings.endpoints.is_empty() {
            return Err(CapacityStoreError::new("etcd needs at least one endpoint"));
        }
        // A member names its servers itself: no proxy of the environment, no redirect.
        let mut builder = Client::builder()
            .timeout(DEADLINE)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        if let Some(roots) = &settings.roots {
            let roots =
                reqwest::Certificate::from_pem_bundle(roots).map_err(CapacityStoreError::new)?;
            builder = builder.tls_certs_merge(roots);
        }
        let client = builder.build().map_err(CapacityStoreError::new)?;
        Ok(EtcdCapacityStore { client, settings, state: Mutex::default() })
    }

    /// Calls the gateway, with a login first if etcd asks for one.
    async fn call(&self, path: &str, body: &Value) -> Result<Vec<u8>, CapacityStoreError> {
        if self.settings.login.is_some() && self.state.lock().token.is_none() {
            self.log_in().await?;
        }
        match self.post(path, body).await? {
            (StatusCode::OK, answer) => Ok(answer),
            (status, answer) => {
                // The token may have ended: the next exchange logs in again.
                self.state.lock().token = None;
                Err(rejected(status, &answer))
            }
        }
    }

    async fn log_in(&self) -> Result<(), CapacityStoreError> {
        #[derive(Deserialize)]
        struct Login {
            token: String,
        }
        let Some((name, password)) = &self.settings.login else { return Ok(()) };
        let body = json!({ "name": name, "password": password });
        match self.post("auth/authenticate", &body).await? {
            (StatusCode::OK, answer) => {
                let login: Login =
                    serde_json::from_slice(&answer).map_err(CapacityStoreError::new)?;
                self.state.lock().token = Some(login.token);
                Ok(())
            }
            (status, answer) => Err(rejected(status, &answer)),
        }
    }

    /// Posts to the server that answered last, then to the others. Only a server that could not be connected to is
    /// passed over: another one may have done what was asked.
    async fn post(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<(StatusCode, Vec<u8>), CapacityStoreError> {
        let endpoints = &self.settings.endpoints;
        let (first, token) = {
            let state = self.state.lock();
            (state.endpoint, state.token.clone())
        };
        let mut failure = CapacityStoreError::new("etcd has no endpoint");
        for step in 0..endpoints.len() {
            let index = (first + step) % endpoints.len();
            let url = format!("{}/v3/{path}", endpoints[index].trim_end_matches('/'));
            let mut request = self.client.post(url).body(body.to_string());
            if let Some(token) = &token {
                request = request.header("authorization", token);
            }
            match request.send().await {
                Ok(answer) => {
                    self.state.lock().endpoint = index;
                    return Ok((answer.status(), read_body(answer).await?));
                }
                Err(error) if error.is_connect() => {
                    failure = CapacityStoreError::new(error.without_url())
                }
                Err(error) => return Err(CapacityStoreError::new(error.without_url())),
            }
        }
        Err(failure)
    }

    fn key(&self, target: &str) -> String {
        STANDARD.encode(format!("{}capacity/{target}", self.settings.prefix))
    }
}

impl CapacityStore for EtcdCapacityStore {
    async fn read(&self, target: &str) -> Result<StoredDocument, CapacityStoreError> {
        #[derive(Deserialize)]
        struct Range {
            #[serde(default)]
            kvs: Vec<Pair>,
        }
        #[derive(Deserialize)]
        struct Pair {
            mod_revision: String,
            #[serde(default)]
            value: String,
        }
        let answer = self.call("kv/range", &json!({ "key": self.key(target) })).await?;
        let range: Range = serde_json::from_slice(&answer).map_err(CapacityStoreError::new)?;
        let Some(pair) = range.kvs.into_iter().next() else { return Ok(StoredDocument::default()) };
        let bytes = STANDARD.decode(pair.value).map_err(CapacityStoreError::new)?;
        Ok(StoredDocument {
            bytes: Some(bytes),
            version: pair.mod_revision.into_bytes(),
            time_ms: None,
        })
    }

    async fn replace(
        &self,
        target: &str,
        read: &StoredDocument,
        bytes: Vec<u8>,
    ) -> Result<bool, CapacityStoreError> {
        #[derive(Deserialize)]
        struct Transaction {
            #[serde(default)]
            succeeded: bool,
        }
        // A key that does not exist has revision 0.
        let revision = match read.version.as_slice() {
            [] => "0",
            version => std::str::from_utf8(version).map_err(CapacityStoreError::new)?,
        };
        let key = self.key(target);
        let body = json!({
            "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision }],
            "success": [{ "request_put": { "key": key, "value": STANDARD.encode(bytes) } }],
        });
        let answer = self.call("kv/txn", &body).await?;
        let transaction: Transaction =
            serde_json::from_slice(&answer).map_err(CapacityStoreError::new)?;
        Ok(transaction.succeeded)
    }

    fn outlived_by_members(&self) -> bool {
        true
    }
}

/// Reads an answer up to the maximum.
async fn read_body(mut answer: reqwest::Response) -> Result<Vec<u8>, CapacityStoreError> {
    let mut body = Vec::new();
    while let Some(chunk) =
        answer.chunk().await.map_err(|error| CapacityStoreError::new(error.without_url()))?
    {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(CapacityStoreError::new("the answer of etcd is too long"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn rejected(status: StatusCode, answer: &[u8]) -> CapacityStoreError {
    let text = String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned();
    CapacityStoreError::new(format!("etcd answered {status}: {text}"))
}
