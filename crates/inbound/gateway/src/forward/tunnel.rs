//! A tunnel: copies bytes both ways over upgraded connections until one side closes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::sleep;

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
    let (up, down) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut client = CountedIo { io: TokioIo::new(client), read: Arc::clone(&up) };
    let mut upstream = CountedIo { io: TokioIo::new(upstream), read: Arc::clone(&down) };
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

/// One side, with a count of the bytes read from it.
struct CountedIo {
    io: TokioIo<Upgraded>,
    read: Arc<AtomicU64>,
}

impl AsyncRead for CountedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        let read = buffer.filled().len().saturating_sub(before);
        self.read.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for CountedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
