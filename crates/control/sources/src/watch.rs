//! Keeps texts fresh: notices that they have changed, and has them put in place.
//!
//! A thread of its own does all the work, because compiling a hundred thousand
//! rules takes a second, and neither the caller nor a request should wait for it.
//! New texts are put in place only when they are good as a whole; otherwise those
//! in use stay, and the status says what is wrong. The same texts again change nothing.
//!
//! Rules are compiled here and published as a snapshot; what that is used for is the business of
//! whoever takes it. Another document, such as the gateway's, is read by its taker.

pub(crate) mod attempt;
pub(crate) mod notice;
pub(crate) mod shared;
pub(crate) mod status;
pub(crate) mod timing;
pub(crate) mod worker;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tidegate_rules::{Options, Problem, Snapshot, Source};

use crate::source::TextSource;
use attempt::{Attempts, Take};
use notice::{Notice, Open};
use shared::Shared;
use status::{Ticket, WatchEvent, WatchStatus};
use timing::{Noticing, Timing, WatchSettings};
use worker::{Report, Worker};

/// Texts that are kept fresh until this is stopped or dropped.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tidegate_sources::{FileSource, Watch};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let file = directory.path().join("api.yaml");
/// std::fs::write(&file, "domain: api\ndescriptors: []\n")?;
///
/// let source = FileSource::new([&file]);
/// let watch = Watch::of(source, SystemTime::now)
///     .start(|snapshot| println!("{} domains", snapshot.domains().count()))?;
///
/// let patience = Duration::from_secs(10);
/// let first = watch.handle().wait_until(patience, |status| status.looks > 0);
/// assert_eq!(first.map(|status| status.published), Some(1));
///
/// // A change for the worse is told, and changes nothing.
/// std::fs::write(&file, "domain: api\ndescriptors: nonsense\n")?;
/// let ticket = watch.handle().reload();
/// let status = watch.handle().wait_until(patience, |status| status.answers(ticket));
/// let status = status.ok_or("the watch is slow")?;
/// assert!(status.differs);
/// assert_eq!(status.published, 1);
/// for failure in status.current_failure() {
///     println!("{}", failure.error);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "texts are kept fresh only until this is dropped"]
#[derive(Debug)]
pub struct Watch {
    handle: WatchHandle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// A watch of this source, to be started. The clock gives the date for the status.
    pub fn of<S: TextSource + Send + 'static>(
        source: S,
        clock: impl Fn() -> SystemTime + Send + 'static,
    ) -> WatchBuilder<S> {
        WatchBuilder {
            source,
            clock: Box::new(clock),
            options: Options::default(),
            settings: WatchSettings::default(),
            report: Box::new(|_| {}),
            in_use: None,
            open: notice::open,
        }
    }

    /// A way to ask it things, to be given away.
    pub const fn handle(&self) -> &WatchHandle {
        &self.handle
    }

    /// Stops, and returns when nothing will be published any more.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.handle.shared.signal(|signals| signals.stop = true);
        let Some(thread) = self.thread.take() else { return };
        // Who drops the watch while being given a snapshot cannot wait for itself.
        if thread.thread().id() != thread::current().id() {
            // What a panic there had to say was said by the panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

/// A watch before it is started.
#[must_use = "nothing is watched before it is started"]
pub struct WatchBuilder<S> {
    source: S,
    clock: Box<dyn Fn() -> SystemTime + Send>,
    options: Options,
    settings: WatchSettings,
    report: Report,
    in_use: Option<Vec<Source>>,
    open: Open,
}

impl<S: fmt::Debug> fmt::Debug for WatchBuilder<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WatchBuilder")
            .field("source", &self.source)
            .field("options", &self.options)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<S: TextSource + Send + 'static> WatchBuilder<S> {
    /// Compiles with these options.
    pub const fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Notices changes in this way.
    pub const fn settings(mut self, settings: WatchSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Tells this of what happens, for a log. Called on the watch's thread, after a
    /// snapshot is published and before the status says so.
    pub fn report(mut self, report: impl FnMut(WatchEvent<'_>) + Send + 'static) -> Self {
        self.report = Box::new(report);
        self
    }

    /// These texts of a document are in use already: they count as put in place, and are not put
    /// there again.
    pub fn in_use(mut self, texts: Vec<Source>) -> Self {
        self.in_use = Some(texts);
        self
    }

    #[cfg(test)]
    fn events_from(mut self, open: Open) -> Self {
        self.open = open;
        self
    }

    /// Starts; returns at once. The first look begins now, and every snapshot,
    /// the first too, is given to `publish` on the watch's thread.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(self, publish: impl FnMut(Snapshot) + Send + 'static) -> io::Result<Watch> {
        let take = attempt::rules(self.options, publish);
        self.start_taking(take)
    }

    /// Starts like [`start`](Self::start), for a document that is not rules: `put_in_place` reads
    /// its texts and uses them, or says what is wrong; what it returns are warnings. Options for
    /// rules mean nothing then.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start_document(
        self,
        put_in_place: impl FnMut(&[Source]) -> Result<Vec<Problem>, tidegate_rules::Report>
        + Send
        + 'static,
    ) -> io::Result<Watch> {
        self.start_taking(attempt::document(put_in_place))
    }

    fn start_taking(self, take: Take) -> io::Result<Watch> {
        #[expect(clippy::disallowed_methods, reason = "the watch waits for real time to pass")]
        let started = Instant::now();
        let shared = Arc::new(Shared::default());
        let notice = match self.settings.noticing {
            Noticing::Events => Some(Notice::new(Arc::clone(&shared), self.open)),
            Noticing::Polling => None,
        };
        let worker = Worker {
            shared: Arc::clone(&shared),
            attempts: Attempts::new(self.source, take),
            notice,
            timing: Timing::new(self.settings, Duration::ZERO),
            clock: self.clock,
            report: self.report,
            status: WatchStatus::default(),
            started,
            mark: None,
            in_use: self.in_use,
        };
        let thread = thread::Builder::new().name("watch".to_owned());
        let thread = thread.spawn(move || worker.run())?;
        Ok(Watch { handle: WatchHandle { shared }, thread: Some(thread) })
    }
}

/// Asks a watch things. Cheap to clone, and harmless when the watch has ended.
#[derive(Clone, Debug)]
pub struct WatchHandle {
    shared: Arc<Shared>,
}

impl WatchHandle {
    /// What is known now.
    pub fn status(&self) -> Arc<WatchStatus> {
        self.shared.status()
    }

    /// Asks for a look at once, also at texts that failed before. Does not wait; a status
    /// that [answers](WatchStatus::answers) the ticket has the outcome.
    pub fn reload(&self) -> Ticket {
        self.shared.ask()
    }

    /// Waits for the first status that is as wanted. None when time runs out
    /// first, or when the watch has ended.
    pub fn wait_until(
        &self,
        patience: Duration,
        wanted: impl FnMut(&WatchStatus) -> bool,
    ) -> Option<Arc<WatchStatus>> {
        self.shared.wait_until(patience, wanted)
    }
}
