//! Pings to a client that says nothing, to learn whether it is still there.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

use crate::life::Life;
use crate::settings::Keepalive;

/// The pings of one connection.
pub(super) struct Pings {
    pings: PingPong,
    keepalive: Keepalive,
    timer: Pin<Box<Sleep>>,
    /// Bytes that had been read when the timer was last set.
    seen: u64,
    /// A ping was sent and not answered.
    asked: bool,
}

impl Pings {
    pub(super) fn new(pings: PingPong, keepalive: Keepalive) -> Self {
        let timer = Box::pin(sleep(keepalive.interval));
        Pings { pings, keepalive, timer, seen: 0, asked: false }
    }

    /// Ready when the client did not answer a ping in time.
    pub(super) fn poll_silence(&mut self, life: &Life, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // An error means that the connection ends, which others notice.
            if self.asked && self.pings.poll_pong(cx).is_ready() {
                self.wait(life);
            }
            ready!(self.timer.as_mut().poll(cx));
            if self.asked {
                return Poll::Ready(());
            }
            if life.bytes_read() == self.seen && self.pings.send_ping(Ping::opaque()).is_ok() {
                self.asked = true;
                self.set(self.keepalive.timeout);
            } else {
                self.wait(life);
            }
        }
    }

    /// Waits for another interval.
    fn wait(&mut self, life: &Life) {
        self.asked = false;
        self.seen = life.bytes_read();
        self.set(self.keepalive.interval);
    }

    fn set(&mut self, after: Duration) {
        // Too far to be told is as good as never.
        if let Some(at) = Instant::now().checked_add(after) {
            self.timer.as_mut().reset(at);
        }
    }
}
