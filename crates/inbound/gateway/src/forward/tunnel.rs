//! A connection that has become something else: bytes both ways until one side ends.

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

/// Carries bytes between both sides, on a task of its own. `on_end` is told when it is over.
pub(crate) fn tunnel(
    client: OnUpgrade,
    upstream: OnUpgrade,
    idle: Duration,
    on_end: Box<dyn OnBodyEnd>,
) {
    tokio::spawn(async move {
        let bytes = match tokio::try_join!(client, upstream) {
            Ok((client, upstream)) => carry(client, upstream, idle).await,
            Err(error) => {
                tracing::debug!(%error, "a tunnel did not begin");
                0
            }
        };
        // A tunnel has no end of its own, and its connection is used up.
        on_end.ended(BodyEnd::Dropped, bytes);
    });
}

/// Says how many bytes went to the client.
async fn carry(client: Upgraded, upstream: Upgraded, idle: Duration) -> u64 {
    let (up, down) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut client = Noted { io: TokioIo::new(client), read: Arc::clone(&up) };
    let mut upstream = Noted { io: TokioIo::new(upstream), read: Arc::clone(&down) };
    let seen = || (up.load(Ordering::Relaxed), down.load(Ordering::Relaxed));
    let silence = async {
        let mut before = seen();
        loop {
            sleep(idle).await;
            let now = seen();
            if now == before {
                return;
            }
            before = now;
        }
    };
    tokio::select! {
        // How it ended is the two sides' matter.
        carried = copy_bidirectional(&mut client, &mut upstream) => drop(carried),
        () = silence => {}
    }
    down.load(Ordering::Relaxed)
}

/// One side, with the bytes that were read from it.
struct Noted {
    io: TokioIo<Upgraded>,
    read: Arc<AtomicU64>,
}

impl AsyncRead for Noted {
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

impl AsyncWrite for Noted {
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
