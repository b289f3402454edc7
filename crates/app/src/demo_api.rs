//! `tidegate demo-api`: a small API that is slow and can work on few requests at once.
//!
//! It stands for an API without protection: it accepts every request, so under too much load all requests wait. The
//! gateway is shown in front of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Json, Response};
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;

/// The maximum of waiting requests: with more, a real server runs out of memory.
const WAITING_MAX: usize = 10_000;
/// The longest time that a request can ask for.
const WORK_MAX_MS: u64 = 10_000;

/// The arguments of `tidegate demo-api`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoApiArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    pub(crate) listen: SocketAddr,
    /// How many requests are worked on at once; the others wait.
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) capacity: u16,
    /// How long one takes, in milliseconds, unless its query says `ms=`.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=WORK_MAX_MS))]
    pub(crate) work: u64,
}

/// Serves until Ctrl-C.
pub(crate) fn run(args: &DemoApiArgs, out: &mut Output) -> Result<Exit, Failure> {
    use std::io::Write;

    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| cannot(args.listen, &error))?;
    runtime.block_on(async {
        let listener = bind(args).await?;
        let address = listener.local_addr().unwrap_or(args.listen);
        let (capacity, work) = (args.capacity, args.work);
        writeln!(out, "The demo API at http://{address}: {capacity} at once, {work} ms each.")?;
        out.flush()?;
        tokio::select! {
            served = serve(listener, args) => served.map_err(|error| cannot(address, &error))?,
            _ = tokio::signal::ctrl_c() => {}
        }
        Ok(Exit::Fine)
    })
}

/// Serves the demo API at this address on the current runtime, until the runtime ends.
pub(crate) async fn spawn(listen: SocketAddr) -> Result<(), Failure> {
    let args = DemoApiArgs { listen, capacity: 8, work: 100 };
    let listener = bind(&args).await?;
    let address = listener.local_addr().unwrap_or(listen);
    tracing::info!(door = "demo-api", %address, "listening");
    tokio::spawn(async move { serve(listener, &args).await });
    Ok(())
}

async fn bind(args: &DemoApiArgs) -> Result<TcpListener, Failure> {
    TcpListener::bind(args.listen).await.map_err(|error| cannot(args.listen, &error))
}

async fn serve(listener: TcpListener, args: &DemoApiArgs) -> std::io::Result<()> {
    let api = Api {
        slots: Arc::new(Semaphore::new(usize::from(args.capacity))),
        waiting: Arc::default(),
        work: Duration::from_millis(args.work),
    };
    axum::serve(listener, Router::new().fallback(answer).with_state(api)).await
}

fn cannot(address: SocketAddr, error: &std::io::Error) -> Failure {
    let message = format!("the demo API cannot be served at {address}: {error}");
    Complaint::new(
        message,
        "choose another address with `--listen`, or stop the program that uses it",
    )
    .into()
}

/// The state that all requests share.
#[derive(Clone, Debug)]
struct Api {
    slots: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    work: Duration,
}

/// The query of a request.
#[derive(Debug, Deserialize)]
struct ApiQuery {
    ms: Option<u64>,
}

async fn answer(
    State(api): State<Api>,
    Query(query): Query<ApiQuery>,
    method: Method,
    uri: Uri,
) -> Response {
    // Health checks do not wait for a slot.
    if uri.path() == "/health" {
        return "well\n".into_response();
    }
    let arrived = Instant::now();
    let Some(waiting) = WaitingRequest::start(&api.waiting) else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "out of memory\n").into_response();
    };
    let Ok(_slot) = api.slots.acquire().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    drop(waiting);
    let waited = arrived.elapsed();
    let work = query.ms.map_or(api.work, |ms| Duration::from_millis(ms.min(WORK_MAX_MS)));
    sleep(work).await;
    let body = json!({
        "method": method.as_str(),
        "path": uri.path(),
        "waited_ms": u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        "worked_ms": u64::try_from(work.as_millis()).unwrap_or(u64::MAX),
    });
    Json(body).into_response()
}

/// Counts a waiting request until it is dropped, which also happens when its client disconnects.
struct WaitingRequest(Arc<AtomicUsize>);

impl WaitingRequest {
    fn start(count: &Arc<AtomicUsize>) -> Option<Self> {
        let waiting = WaitingRequest(Arc::clone(count));
        (count.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(waiting)
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
