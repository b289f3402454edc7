//! A tunnel: copies bytes both ways over upgraded connections until one side closes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::time::sleep;
use tokio_util::io::InspectReader;

use tidegate_admission::{BodyEnd, OnBodyEnd};

/// Copies bytes between both sides on its own task, and calls `on_end` at the end.
pub(crate) fn tunnel(
    client: OnUpgrade,
    upstream: OnUpgrade,
    idle: Duration,
    on_end: Box<dyn OnBodyEnd>,
) {
    tokio::spawn(async move {
        let bytes = match tokio::try_join!(client, upstream) {
            Ok((client, upstream)) => copy(client, upstream, idle).await,
            Err(error) => {
                tracing::debug!(%error, "upgrade failed");
                0
            }
        };
        // Its connection to the upstream cannot be reused.
        on_end.ended(BodyEnd::Dropped, bytes);
    });
}

/// Copies until a side closes or both are idle. Returns the number of bytes sent to the client.
async fn copy(client: Upgraded, upstream: Upgraded, timeout: Duration) -> u64 {
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut client = counted(client, &up);
    let mut upstream = counted(upstream, &down);
    let counts = || (up.load(Ordering::Relaxed), down.load(Ordering::Relaxed));
    let idle = async {
        let mut before = counts();
        loop {
            sleep(timeout).await;
            let now = counts();
            if now == before {
                return;
            }
            before = now;
        }
    };
    tokio::select! {
        // An error of either side ends the tunnel like a close.
        copied = copy_bidirectional(&mut client, &mut upstream) => drop(copied),
        () = idle => {}
    }
    down.load(Ordering::Relaxed)
}

/// One side, with the bytes counted that are read from it.
fn counted(side: Upgraded, read: &AtomicU64) -> impl AsyncRead + AsyncWrite + Unpin {
    let add = |bytes: &[u8]| {
        read.fetch_add(u64::try_from(bytes.len()).unwrap_or(0), Ordering::Relaxed);
    };
    InspectReader::new(TokioIo::new(side), add)
}
