//! Statistics sent to a statsd server, from a thread of their own: a page of ten thousand rules takes milliseconds to
//! read, which no request and no other background task should wait for.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tidegate_statsd::{Sender, SenderFigures, StatsReading, StatsdSettings};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::system_failure;
use crate::exit::Failure;

/// The thread that sends statistics.
#[derive(Debug)]
pub(super) struct StatsThread {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl StatsThread {
    /// Starts the thread.
    pub(super) fn start(
        settings: StatsdSettings,
        figures: Arc<SenderFigures>,
        read: impl Fn() -> StatsReading + Send + 'static,
    ) -> Result<Self, Failure> {
        let failed = |error| system_failure("the thread of statistics cannot be started", &error);
        let (stop, stopped) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        tracing::info!(address = %settings.address, "sending statistics");
        let sender = Sender::new(settings, figures);
        let run = move || {
            // A dropped handle stops it too.
            runtime.block_on(sender.run(read, async { _ = stopped.await }));
        };
        let thread = thread::Builder::new().name("tidegate-statsd".to_owned()).spawn(run);
        Ok(StatsThread { stop, thread: thread.map_err(failed)? })
    }

    /// Sends the last counts; takes no longer than the sender's last flush may.
    pub(super) fn finish(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}
