//! Suppresses needless reads and writes of a connection.
//!
//! `h2` reads and flushes each time it is polled for the next call. The gate saves the syscalls: after a read found
//! the socket empty, further reads of the same poll are pending, and writes are pending while calls are answered.
//! After [`IoGate::hold_writes`] the caller must release the writes and poll `h2` once more before it returns
//! pending, because a held write registers no waker.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::authority::AuthorityFilter;

/// Shared by a connection and its transport, on one thread.
#[derive(Debug, Default)]
pub(super) struct IoGate {
    /// A read of this poll found the socket empty and registered the waker.
    empty: AtomicBool,
    writes_held: AtomicBool,
}

impl IoGate {
    /// Begins a new poll of the task.
    pub(super) fn start_poll(&self) {
        self.empty.store(false, Relaxed);
    }

    /// Makes writes pending.
    pub(super) fn hold_writes(&self) {
        self.writes_held.store(true, Relaxed);
    }

    /// Allows writes again.
    pub(super) fn release_writes(&self) {
        self.writes_held.store(false, Relaxed);
    }
}

/// A transport behind a gate.
#[derive(Debug)]
pub(super) struct GatedIo<T> {
    inner: T,
    gate: Arc<IoGate>,
    /// On Unix sockets.
    authority: Option<Box<AuthorityFilter>>,
}

impl<T> GatedIo<T> {
    pub(super) const fn new(
        inner: T,
        gate: Arc<IoGate>,
        authority: Option<Box<AuthorityFilter>>,
    ) -> Self {
        GatedIo { inner, gate, authority }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GatedIo<T> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let GatedIo { inner, gate, authority } = self.get_mut();
        if gate.empty.load(Relaxed) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(inner).poll_read(cx, buffer);
        if let Some(authority) = authority
            && let Some(read) = buffer.filled_mut().get_mut(before..)
        {
            authority.rewrite(read);
        }
        gate.empty.store(polled.is_pending(), Relaxed);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GatedIo<T> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let GatedIo { inner, gate, .. } = self.get_mut();
        if gate.writes_held.load(Relaxed) {
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

    /// Counts reads and writes, has nothing to read and accepts every write.
    #[derive(Default)]
    struct CountingIo {
        reads: usize,
        writes: usize,
    }

    impl AsyncRead for CountingIo {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            Poll::Pending
        }
    }

    impl AsyncWrite for CountingIo {
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

    fn gated_io() -> (GatedIo<CountingIo>, Arc<IoGate>) {
        let gate = Arc::new(IoGate::default());
        (GatedIo::new(CountingIo::default(), Arc::clone(&gate), None), gate)
    }

    #[test]
    fn an_empty_socket_is_read_once_per_poll() {
        let (mut gated_io, gate) = gated_io();
        let mut cx = Context::from_waker(Waker::noop());
        for poll in 1..=2 {
            gate.start_poll();
            for _ in 0..3 {
                let mut buffer = ReadBuf::new(&mut []);
                assert!(Pin::new(&mut gated_io).poll_read(&mut cx, &mut buffer).is_pending());
            }
            assert_eq!(gated_io.inner.reads, poll);
        }
    }

    #[test]
    fn writes_are_pending_while_they_are_held() {
        let (mut gated_io, gate) = gated_io();
        let mut cx = Context::from_waker(Waker::noop());
        gate.hold_writes();
        assert!(Pin::new(&mut gated_io).poll_write(&mut cx, b"a").is_pending());
        assert_eq!(gated_io.inner.writes, 0);
        gate.release_writes();
        assert!(Pin::new(&mut gated_io).poll_write(&mut cx, b"a").is_ready());
        assert_eq!(gated_io.inner.writes, 1);
    }
}
