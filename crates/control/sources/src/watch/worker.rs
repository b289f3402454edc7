//! The watch's thread: waits for a change or a poll, loads the texts, updates the status and reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_rules::Source;

use super::directory_watcher::DirectoryWatcher;
use super::loader::{LoadedTexts, Loader, Outcome};
use super::schedule::{ChangeDetection, Reason, Schedule};
use super::shared::SharedState;
use super::status::{ActiveTexts, ReloadError, ReloadFailure, Ticket, WatchEvent, WatchStatus};
use crate::source::TextSource;
use crate::source::watched_paths::WatchedPaths;

/// The longest single wait; afterwards the schedule is consulted again.
const WAIT_MAX: Duration = Duration::from_secs(3600);

pub(super) type Report = Box<dyn FnMut(WatchEvent<'_>) + Send>;

/// The state of the thread.
pub(super) struct Worker<S> {
    pub(super) shared: Arc<SharedState>,
    pub(super) loader: Loader<S>,
    /// None when only polling is wanted.
    pub(super) watcher: Option<DirectoryWatcher>,
    pub(super) schedule: Schedule,
    pub(super) clock: Box<dyn Fn() -> SystemTime + Send>,
    pub(super) report: Report,
    pub(super) status: WatchStatus,
    pub(super) started: Instant,
    /// The source's mark when the texts were last read.
    pub(super) mark: Option<String>,
    /// The texts that were active before the watch began.
    pub(super) in_use: Option<Vec<Source>>,
}

/// Marks the end of the thread, even after a panic.
struct CloseOnDrop(Arc<SharedState>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<S: TextSource> Worker<S> {
    /// Runs until it is stopped.
    pub(super) fn run(mut self) {
        let _closing = CloseOnDrop(Arc::clone(&self.shared));
        if self.watcher.is_none() {
            self.schedule.set_detection(ChangeDetection::Polling);
            self.status.polling = Some(Arc::from("polling was chosen"));
        }
        if let Some(texts) = self.in_use.take() {
            let loaded = self.loader.adopt(texts);
            self.conclude(Outcome::Published(loaded));
        }
        self.look(Reason::Changed, Ticket::default());
        loop {
            let patience = self.schedule.due_at().saturating_sub(self.now()).min(WAIT_MAX);
            let (signals, ticket) = self.shared.signals(patience);
            if signals.stop {
                return;
            }
            if signals.changed {
                self.schedule.changed(self.now());
            }
            if signals.reload {
                self.schedule.asked();
            }
            if let Some(watcher) = &mut self.watcher {
                watcher.mark_lost(&signals);
            }
            if let Some(reason) = self.schedule.due(self.now()) {
                self.look(reason, ticket);
            }
        }
    }

    fn look(&mut self, reason: Reason, ticket: Ticket) {
        // Before the texts are read, so that no change is missed in between.
        let watched = self.loader.watched();
        let mark = watched.mark().map(str::to_owned);
        self.follow(watched);
        let unmoved = reason == Reason::Poll && mark.is_some() && mark == self.mark;
        if !unmoved {
            self.mark = mark;
            let outcome = self.loader.load(reason == Reason::Asked);
            self.conclude(outcome);
        }
        self.schedule.looked(self.now());
        // If the paths differ after reading, they may have changed before they were watched.
        if !unmoved && self.follow(self.loader.watched()) {
            self.schedule.changed(self.now());
        }
        self.status.looks = self.status.looks.saturating_add(1);
        self.status.answered = ticket;
        self.shared.post(Arc::new(self.status.clone()));
    }

    /// Watches these paths. Returns whether the set of directories changed.
    fn follow(&mut self, watched: WatchedPaths) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        let followed = watcher.follow(watched);
        let trouble: Option<Arc<str>> = followed.trouble.map(Arc::from);
        match &trouble {
            Some(why) if self.status.polling.is_none() => {
                call_report(&mut self.report, WatchEvent::Polling(why));
            }
            None if self.status.polling.is_some() => {
                call_report(&mut self.report, WatchEvent::EventsResumed)
            }
            _ => {}
        }
        let detection =
            if trouble.is_some() { ChangeDetection::Polling } else { ChangeDetection::Events };
        self.schedule.set_detection(detection);
        self.status.polling = trouble;
        followed.moved
    }

    fn conclude(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::AsFailed => {}
            Outcome::AsActive => self.restore(),
            Outcome::Renamed(loaded) => {
                let since = self.status.active.as_ref().map(|active| active.loaded_at);
                let since = since.unwrap_or_else(|| (self.clock)());
                self.status.active = Some(Arc::new(active(loaded, since)));
                self.restore();
            }
            Outcome::Published(loaded) => {
                let active = Arc::new(active(loaded, (self.clock)()));
                self.status.active = Some(Arc::clone(&active));
                self.status.published = self.status.published.saturating_add(1);
                self.status.differs = false;
                call_report(&mut self.report, WatchEvent::Published(&active));
            }
            Outcome::Failed(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: ReloadError) {
        let failure = Arc::new(ReloadFailure { at: (self.clock)(), error });
        self.status.failure = Some(Arc::clone(&failure));
        self.status.failed = self.status.failed.saturating_add(1);
        self.status.differs = true;
        call_report(&mut self.report, WatchEvent::Failed(&failure));
    }

    /// The source has the texts in use.
    fn restore(&mut self) {
        let before = std::mem::replace(&mut self.status.differs, false);
        if before && let Some(active) = &self.status.active {
            call_report(&mut self.report, WatchEvent::Restored(active));
        }
    }

    fn now(&self) -> Duration {
        #[expect(clippy::disallowed_methods, reason = "this thread waits for real time to pass")]
        let now = Instant::now();
        now.saturating_duration_since(self.started)
    }
}

/// Reports an event. A panic of the report does not end the watch.
fn call_report(report: &mut Report, event: WatchEvent<'_>) {
    let _ = catch_unwind(AssertUnwindSafe(|| report(event)));
}

fn active(loaded: LoadedTexts, loaded_at: SystemTime) -> ActiveTexts {
    let LoadedTexts { version, sources, warnings } = loaded;
    ActiveTexts { version, loaded_at, sources, warnings }
}
