//! An API of fixed capacity: a number of slots and a service time.
//!
//! It has no protection of its own. Requests that find no free slot wait in an unbounded FIFO
//! queue, and are served even if their client has gone, as in a server with a pool of threads
//! and a queue in front of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::ANYWHERE;

/// The capacity of the API.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Capacity {
    /// Requests served at once.
    #[arg(long, default_value_t = 40)]
    pub(crate) slots: usize,
    /// The service time in milliseconds.
    #[arg(long, default_value_t = 50)]
    pub(crate) millis: u64,
}

impl Capacity {
    /// Requests a second.
    pub(crate) fn per_second(&self) -> f64 {
        self.slots as f64 * 1e3 / self.millis.max(1) as f64
    }
}

pub(super) async fn serve(
    capacity: Capacity,
    announce: impl Fn(&str, SocketAddr),
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(ANYWHERE).await?;
    announce("http", listener.local_addr()?);
    // An option that cannot be set leaves the server slower, not wrong.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let slots = Arc::new(Semaphore::new(capacity.slots));
    let work = Duration::from_millis(capacity.millis);
    let router = Router::new().fallback(get(move || {
        let slots = Arc::clone(&slots);
        async move {
            // A task of its own, so that it does not end with its client.
            let done = tokio::spawn(async move {
                // Fails only on a closed semaphore; this one is never closed.
                let permit = slots.acquire().await;
                sleep(work).await;
                drop(permit);
            });
            match done.await {
                Ok(()) => (StatusCode::OK, "done"),
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
            }
        }
    }));
    axum::serve(listener, router).await?;
    Ok(())
}
