//! `tidegate demo-api`: a small API that is slow and can work on few requests at once.
//!
//! It stands for an API that has no protection of its own: whoever comes is taken in and waits,
//! so that under too much load everybody waits. The gateway is shown in front of it. Nothing
//! here is limited or shed; that is the point.

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

/// The most requests that wait: beyond that a real server runs out of memory.
const WAITING_MAX: usize = 10_000;
/// The longest that a request can ask to be worked on.
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

/// Serves until it is told to stop.
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

/// Takes the address.
pub(crate) async fn bind(args: &DemoApiArgs) -> Result<TcpListener, Failure> {
    TcpListener::bind(args.listen).await.map_err(|error| cannot(args.listen, &error))
}

/// Serves what comes to the listener, for ever.
pub(crate) async fn serve(listener: TcpListener, args: &DemoApiArgs) -> std::io::Result<()> {
    let api = Api {
        slots: Arc::new(Semaphore::new(usize::from(args.capacity))),
        waiting: Arc::default(),
        work: Duration::from_millis(args.work),
    };
    axum::serve(listener, Router::new().fallback(answer).with_state(api)).await
}

fn cannot(address: SocketAddr, error: &std::io::Error) -> Failure {
    let message = format!("the demo API cannot be served at {address}: {error}");
    Complaint::new(message, "choose another address, or stop who has it").into()
}

/// What all requests share.
#[derive(Clone, Debug)]
struct Api {
    slots: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    work: Duration,
}

/// What a request can ask for.
#[derive(Debug, Deserialize)]
struct Wish {
    ms: Option<u64>,
}

async fn answer(
    State(api): State<Api>,
    Query(wish): Query<Wish>,
    method: Method,
    uri: Uri,
) -> Response {
    // As if from elsewhere: whether the process lives is known at once.
    if uri.path() == "/health" {
        return "well\n".into_response();
    }
    let came = Instant::now();
    let Some(waiting) = Waiting::begin(&api.waiting) else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "out of memory\n").into_response();
    };
    let Ok(_slot) = api.slots.acquire().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    drop(waiting);
    let waited = came.elapsed();
    let work = wish.ms.map_or(api.work, |ms| Duration::from_millis(ms.min(WORK_MAX_MS)));
    sleep(work).await;
    let body = json!({
        "method": method.as_str(),
        "path": uri.path(),
        "waited_ms": u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        "worked_ms": u64::try_from(work.as_millis()).unwrap_or(u64::MAX),
    });
    Json(body).into_response()
}

/// One that waits, until it is dropped: also when its client is gone.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn begin(count: &Arc<AtomicUsize>) -> Option<Self> {
        let waiting = Waiting(Arc::clone(count));
        (count.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(waiting)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
