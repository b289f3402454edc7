//! HTTP/2 pings that detect whether a silent client is still connected.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

use crate::connection_state::ConnectionState;
use crate::settings::Keepalive;

/// The pings of one connection.
pub(super) struct KeepalivePings {
    pings: PingPong,
    keepalive: Keepalive,
    timer: Pin<Box<Sleep>>,
    /// Bytes read when the timer was last set.
    bytes_read: u64,
    /// A ping was sent and not answered yet.
    awaits_pong: bool,
}

impl KeepalivePings {
    pub(super) fn new(pings: PingPong, keepalive: Keepalive) -> Self {
        let timer = Box::pin(sleep(keepalive.interval));
        KeepalivePings { pings, keepalive, timer, bytes_read: 0, awaits_pong: false }
    }

    /// Ready when the client did not answer a ping in time.
    pub(super) fn poll_timeout(
        &mut self,
        state: &ConnectionState,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            // An error means that the connection ends, which polling it reports.
            if self.awaits_pong && self.pings.poll_pong(cx).is_ready() {
                self.wait(state);
            }
            ready!(self.timer.as_mut().poll(cx));
            if self.awaits_pong {
                return Poll::Ready(());
            }
            if state.bytes_read() == self.bytes_read && self.pings.send_ping(Ping::opaque()).is_ok()
            {
                self.awaits_pong = true;
                self.set(self.keepalive.timeout);
            } else {
                self.wait(state);
            }
        }
    }

    /// Starts another interval.
    fn wait(&mut self, state: &ConnectionState) {
        self.awaits_pong = false;
        self.bytes_read = state.bytes_read();
        self.set(self.keepalive.interval);
    }

    fn set(&mut self, after: Duration) {
        // An instant that overflows means never.
        if let Some(at) = Instant::now().checked_add(after) {
            self.timer.as_mut().reset(at);
        }
    }
}
