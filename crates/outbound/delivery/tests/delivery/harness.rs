//! A server that answers as a test says, and attempts at records.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tidegate_delivery::{Attempt, AttemptResult, HttpProcessor, HttpSettings, Processor};
use tidegate_queue::{Payload, PriorityClass, Record, RecordId, Timestamp};
use tokio::net::TcpListener;

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) version: http::Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A server on the loopback interface.
#[derive(Debug)]
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
}

type Answer = dyn Fn(&SeenRequest) -> Response<Full<Bytes>> + Send + Sync;

impl TestServer {
    pub(crate) async fn start(
        answer: impl Fn(&SeenRequest) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<SeenRequest>>> = Arc::default();
        let (log, answer): (_, Arc<Answer>) = (Arc::clone(&seen), Arc::new(answer));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                let service = service_fn(move |request| {
                    serve(Arc::clone(&log), Arc::clone(&answer), request)
                });
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        TestServer { address, seen }
    }

    pub(crate) fn url(&self, path: &str) -> Uri {
        format!("http://{}{path}", self.address).parse().unwrap()
    }

    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    log: Arc<Mutex<Vec<SeenRequest>>>,
    answer: Arc<Answer>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = head.uri.path_and_query().map_or("", |path| path.as_str()).to_owned();
    let seen = SeenRequest {
        method: head.method,
        path,
        version: head.version,
        headers: head.headers,
        body,
    };
    let response = answer(&seen);
    log.lock().unwrap().push(seen);
    Ok(response)
}

pub(crate) fn status(code: u16) -> Response<Full<Bytes>> {
    Response::builder().status(code).body(Full::default()).unwrap()
}

pub(crate) fn ok(body: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::from(body))
}

/// Settings that allow the loopback interface, where the tests run.
pub(crate) fn local_settings(url: Uri) -> HttpSettings {
    let mut settings = HttpSettings::post(url);
    settings.destinations.networks = vec!["127.0.0.0/8".parse().unwrap()];
    settings
}

pub(crate) fn attempt(number: u64, payload: Payload) -> Attempt {
    let record = Record {
        id: RecordId::new(Timestamp::from_secs(1_700_000_000), 7, number),
        tenant: "acme".to_owned(),
        cost: 3,
        class: PriorityClass::Normal,
        order_key: None,
        enqueued_at: Timestamp::from_secs(1_700_000_000),
        deadline: None,
        attempts: 0,
        lapses: 0,
        job: None,
        payload,
    };
    Attempt { record, number: 1, slot: None, departed: Timestamp::EPOCH }
}

/// Makes one attempt.
pub(crate) async fn send(settings: HttpSettings, payload: Payload) -> AttemptResult {
    let processor = HttpProcessor::new(settings).unwrap();
    processor.process(&[attempt(1, payload)]).await.remove(0)
}
