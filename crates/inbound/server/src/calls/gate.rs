//! When a connection reads and writes.
//!
//! `h2` reads and flushes each time that it is asked for the next call. The
//! gate makes both cheap: reading ends for this turn once the socket has no
//! more, and writing waits while calls are being answered. Whoever holds
//! writing back has to release it and ask `h2` once more before it waits, since
//! nobody is woken for what was held back.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Shared by a connection and its carrier, which live on one thread.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// The socket was found empty in this turn, and will wake the task.
    empty: AtomicBool,
    held: AtomicBool,
}

impl Gate {
    /// A new turn of the task begins.
    pub(super) fn look_again(&self) {
        self.empty.store(false, Relaxed);
    }

    /// Holds writing back.
    pub(super) fn hold(&self) {
        self.held.store(true, Relaxed);
    }

    /// Lets writing go on.
    pub(super) fn release(&self) {
        self.held.store(false, Relaxed);
    }
}

/// A carrier behind a gate.
#[derive(Debug)]
pub(super) struct Gated<T> {
    inner: T,
    gate: Arc<Gate>,
}

impl<T> Gated<T> {
    pub(super) const fn new(inner: T, gate: Arc<Gate>) -> Self {
        Gated { inner, gate }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gated<T> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Gated { inner, gate } = self.get_mut();
        if gate.empty.load(Relaxed) {
            return Poll::Pending;
        }
        let polled = Pin::new(inner).poll_read(cx, buffer);
        gate.empty.store(polled.is_pending(), Relaxed);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gated<T> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Gated { inner, gate } = self.get_mut();
        if gate.held.load(Relaxed) {
            return Poll::Pending;
        }
        Pin::new(inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Counts how often it is asked, has nothing to read and takes everything.
    #[derive(Default)]
    struct Asked {
        reads: usize,
        writes: usize,
    }

    impl AsyncRead for Asked {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            Poll::Pending
        }
    }

    impl AsyncWrite for Asked {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.writes += 1;
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn gated() -> (Gated<Asked>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        (Gated::new(Asked::default(), Arc::clone(&gate)), gate)
    }

    #[test]
    fn an_empty_socket_is_asked_once_in_a_turn() {
        let (mut gated, gate) = gated();
        let mut cx = Context::from_waker(Waker::noop());
        for turn in 1..=2 {
            gate.look_again();
            for _ in 0..3 {
                let mut buffer = ReadBuf::new(&mut []);
                assert!(Pin::new(&mut gated).poll_read(&mut cx, &mut buffer).is_pending());
            }
            assert_eq!(gated.inner.reads, turn);
        }
    }

    #[test]
    fn writing_waits_while_it_is_held_back() {
        let (mut gated, gate) = gated();
        let mut cx = Context::from_waker(Waker::noop());
        gate.hold();
        assert!(Pin::new(&mut gated).poll_write(&mut cx, b"a").is_pending());
        assert_eq!(gated.inner.writes, 0);
        gate.release();
        assert!(Pin::new(&mut gated).poll_write(&mut cx, b"a").is_ready());
        assert_eq!(gated.inner.writes, 1);
    }
}
