//! Every route of the HTTP API: the answer to any body follows the OpenAPI document, and a JSON
//! answer is valid JSON.
//!
//! An input is a body, sent to every route that reads one. Its first line is also tried as a path.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use serde_json::Value;
use tidegate_engine::{MemoryStore, Nanos};
use tidegate_http_api::{Health, HttpApi, HttpApiParts, HttpApiSettings, RulesStatus};
use tidegate_metrics::Meter;
use tidegate_requests::AccessPolicy;

use super::doors::{self, Clock, at_once};
use super::{Target, Trail, shape};

pub(super) const WORDS: &[&str] = &[
    "\"domain\"",
    "\"descriptors\"",
    "\"entries\"",
    "\"key\"",
    "\"value\"",
    "\"cost\"",
    "\"requests\"",
    "\"permit\"",
    "\"limit\"",
    "\"hitsAddend\"",
    "\"hits_addend\"",
    "\"isNegativeHits\"",
    "\"requestsPerUnit\"",
    "\"unit\"",
    "\"MINUTE\"",
    "\"YEAR\"",
    "\"api\"",
    "\"user\"",
    "\"both\"",
    "\"job\"",
    "\"dark\"",
    "\"queue\"",
    "\"log\"",
    "\"window\"",
    "\"soft\"",
    "\"quota\"",
    "\"plan\"",
    "\"free\"",
    "\"ip\"",
    "\"10.0.0.1\"",
    "\"path\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "{}",
    "[]",
    "null",
    "true",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\ud83d\\ude00\"",
    "\\",
    "\u{feff}",
    "\u{1F600}",
    "/v1/check?status=200\n",
    "/v1/peek?\n",
    "/v1/rules\n",
    "/livez\n",
    "/v1/chek\n",
    "/json\n",
    "[[[[[[[[[[[[[[[[",
    "{\"entries\":[{\"key\":\"user\",\"value\":\"1\"}]}",
];

/// The routes that read a body.
const READERS: &[&str] =
    &["/v1/check", "/v1/peek", "/v1/refund", "/v1/reset", "/v1/explain", "/v1/release", "/json"];

/// A status and its content types.
type DocumentedApi = BTreeMap<u16, Vec<String>>;

pub(super) struct JsonTarget {
    api: HttpApi<MemoryStore, Clock>,
    clock: Clock,
    /// The documented answers, by path and method.
    documented: BTreeMap<(String, String), DocumentedApi>,
}

impl JsonTarget {
    pub(super) fn new() -> Self {
        let (engine, clock) = doors::engine();
        let rls = doors::rls(Arc::clone(&engine));
        let parts = HttpApiParts {
            settings: HttpApiSettings {
                access: AccessPolicy::local(),
                ..HttpApiSettings::default()
            },
            meter: Arc::new(Meter::new("http")),
            health: Health::new(),
            rules: Arc::new(|| RulesStatus {
                sources: Arc::new([doors::source()]),
                ..RulesStatus::default()
            }),
            json: Some(Arc::new(move |body| {
                let rls = rls.clone();
                Box::pin(async move { rls.answer_json(&body).await })
            })),
        };
        let api = HttpApi::new(engine, parts);
        let mut target = JsonTarget { api, clock, documented: BTreeMap::new() };
        target.documented = target.document();
        target
    }

    fn document(&self) -> BTreeMap<(String, String), DocumentedApi> {
        let uri = Uri::from_static("/v1/openapi.json");
        let answer = self.send(Method::GET, uri, Bytes::new()).expect("the document is served");
        let document: Value = serde_json::from_slice(&answer.body).expect("the document is JSON");
        let mut found = BTreeMap::new();
        for (path, methods) in members(&document["paths"]) {
            for (method, operation) in members(methods) {
                let statuses = members(&operation["responses"]).filter_map(|(status, response)| {
                    let kinds = members(&response["content"]).map(|(kind, _)| kind.clone());
                    Some((status.parse().ok()?, kinds.collect()))
                });
                let key = (path.clone(), method.to_ascii_uppercase());
                found.insert(key, statuses.collect());
            }
        }
        assert!(found.len() >= READERS.len(), "the document has the routes: {found:?}");
        found
    }

    fn send(&self, method: Method, uri: Uri, body: Bytes) -> Result<JsonAnswer, String> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let Ok(response) = at_once(self.api.call(request))?;
        JsonAnswer::read(response)
    }

    /// Sends a request and compares the answer with the document.
    fn judge(&self, method: &Method, uri: &Uri, body: Bytes) -> Result<(u16, String), String> {
        let answer = self.send(method.clone(), uri.clone(), body)?;
        self.hold(method, uri.path(), &answer)
            .map_err(|error| format!("{method} {uri}: {error}: {answer:?}"))
    }

    fn hold(
        &self,
        method: &Method,
        path: &str,
        answer: &JsonAnswer,
    ) -> Result<(u16, String), String> {
        let JsonAnswer { status, kind, body } = answer;
        if *status == 500 {
            return Err("the door failed".to_owned());
        }
        if *method == Method::HEAD {
            let held = if body.is_empty() { Ok(()) } else { Err("HEAD has a body".to_owned()) };
            return held.map(|()| (*status, String::new()));
        }
        let any_method = (path == "/json").then_some("POST");
        let method = any_method.unwrap_or(method.as_str()).to_owned();
        match self.documented.get(&(path.to_owned(), method)) {
            Some(documented) => {
                let kinds = documented.get(status).ok_or("the document has no such status")?;
                if !kinds.is_empty() && !kinds.contains(kind) {
                    return Err(format!("the document has {kinds:?}"));
                }
            }
            None if matches!(status, 404 | 405) && kind == "application/problem+json" => {}
            None => return Err("no such route is documented".to_owned()),
        }
        if !kind.ends_with("json") {
            return match path {
                "/json" | "/healthcheck" => Ok((*status, shape(&String::from_utf8_lossy(body)))),
                _ => Err("it is not JSON".to_owned()),
            };
        }
        let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if kind == "application/problem+json" && value["status"] != *status {
            return Err("the problem tells of another status".to_owned());
        }
        let detail = value["detail"].as_str().map(shape);
        let names = || members(&value).map(|(name, _)| name.as_str()).collect();
        Ok((*status, detail.unwrap_or_else(names)))
    }
}

impl Target for JsonTarget {
    fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
        self.clock.advance(Nanos::from_millis(500));
        let body = Bytes::copy_from_slice(input);
        let mut told = Vec::new();
        for path in READERS {
            told.push(self.judge(&Method::POST, &Uri::from_static(path), body.clone())?);
        }
        let first = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if first.starts_with(b"/")
            && let Ok(uri) = Uri::try_from(first)
        {
            for method in [Method::GET, Method::POST, Method::HEAD] {
                told.push(self.judge(&method, &uri, body.clone())?);
            }
        }
        Ok(Trail::of(told))
    }
}

/// An answer.
#[derive(Debug)]
struct JsonAnswer {
    status: u16,
    kind: String,
    body: Bytes,
}

impl JsonAnswer {
    fn read(response: Response<Full<Bytes>>) -> Result<Self, String> {
        let (parts, body) = response.into_parts();
        let kind = parts.headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
        let kind = String::from_utf8_lossy(kind.unwrap_or_default());
        let kind = kind.split(';').next().unwrap_or_default().to_owned();
        let Ok(body) = at_once(body.collect())?;
        Ok(JsonAnswer { status: parts.status.as_u16(), kind, body: body.to_bytes() })
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
