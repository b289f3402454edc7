//! Watches texts for changes and activates new ones.
//!
//! A thread does all the work: compiling a hundred thousand rules takes a second, and neither the
//! caller nor a request should wait for it. New texts are activated only when they are valid as a
//! whole; otherwise the active ones stay, and the status has the error. Unchanged texts change
//! nothing.
//!
//! Rules are compiled here and published as a snapshot. Another document, such as the gateway's,
//! is passed to a function.

pub(crate) mod directory_watcher;
#[cfg(target_os = "linux")]
mod inotify_watcher;
pub(crate) mod loader;
pub(crate) mod schedule;
pub(crate) mod shared;
pub(crate) mod status;
pub(crate) mod worker;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tidegate_macros::debug_fields;
use tidegate_rules::{Options, Problem, Snapshot, Source};

use crate::source::TextSource;
use directory_watcher::{DirectoryWatcher, Open};
use loader::{Accept, Loader};
use schedule::{ChangeDetection, Schedule, WatchSettings};
use shared::SharedState;
pub use shared::WatchHandle;
use status::{WatchEvent, WatchStatus};
use worker::{Report, Worker};

/// A watch on texts, until it is stopped or dropped.
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
/// // An invalid change is reported, and changes nothing.
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
#[must_use = "dropping the watch ends it"]
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
            open: directory_watcher::open,
        }
    }

    /// A handle for status and reloads, to be cloned.
    pub const fn handle(&self) -> &WatchHandle {
        &self.handle
    }

    /// Stops the thread and waits for it; nothing is published afterwards.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.handle.shared.signal(|signals| signals.stop = true);
        let Some(thread) = self.thread.take() else { return };
        // `publish` may drop the watch on its own thread, which cannot join itself.
        if thread.thread().id() != thread::current().id() {
            // The panic hook has reported a panic.
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

debug_fields!([S: std::fmt::Debug] WatchBuilder<S> { source, options, settings });

impl<S: TextSource + Send + 'static> WatchBuilder<S> {
    /// Compiles with these options.
    pub const fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Detects changes with these settings.
    pub const fn settings(mut self, settings: WatchSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Calls this for every event, for a log. On the watch's thread, after a snapshot is published
    /// and before the status is updated.
    pub fn report(mut self, report: impl FnMut(WatchEvent<'_>) + Send + 'static) -> Self {
        self.report = Box::new(report);
        self
    }

    /// These texts of a document are active already and are not activated again.
    pub fn in_use(mut self, texts: Vec<Source>) -> Self {
        self.in_use = Some(texts);
        self
    }

    #[cfg(test)]
    fn events_from(mut self, open: Open) -> Self {
        self.open = open;
        self
    }

    /// Starts the thread, which begins with a load. Every snapshot, including the first, is passed to
    /// `publish` on that thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(self, publish: impl FnMut(Snapshot) + Send + 'static) -> io::Result<Watch> {
        let accept = loader::rules(self.options, publish);
        self.start_with(accept)
    }

    /// Starts like [`start`](Self::start), for a document that is not rules: `activate` reads the
    /// texts and uses them, and returns warnings or a report of problems. Options for rules have no
    /// effect.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start_document(
        self,
        activate: impl FnMut(&[Source]) -> Result<Vec<Problem>, tidegate_rules::Report> + Send + 'static,
    ) -> io::Result<Watch> {
        self.start_with(loader::document(activate))
    }

    fn start_with(self, accept: Accept) -> io::Result<Watch> {
        #[expect(clippy::disallowed_methods, reason = "the watch waits for real time to pass")]
        let started = Instant::now();
        let shared = Arc::new(SharedState::default());
        let watcher = match self.settings.detection {
            ChangeDetection::Events => Some(DirectoryWatcher::new(Arc::clone(&shared), self.open)),
            ChangeDetection::Polling => None,
        };
        let worker = Worker {
            shared: Arc::clone(&shared),
            loader: Loader::new(self.source, accept),
            watcher,
            schedule: Schedule::new(self.settings, Duration::ZERO),
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
