//! Watched files: how their changes are detected, logged and shown.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_admin::DeliveryReading;
use tidegate_engine::Timestamp;
use tidegate_rules::{Problem, Report};
use tidegate_sources::{
    ActiveTexts, ChangeDetection, ReloadError, TextSource, Watch, WatchBuilder, WatchEvent,
    WatchSettings, WatchStatus,
};

use crate::config;

/// How long the first load may take before the service starts without it: a hundred thousand rules compile in about a
/// second.
pub(super) const FIRST_LOAD_MAX: Duration = Duration::from_secs(60);
/// The poll interval of files that are not polled.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A watch that logs its events, to be started. `what` names the files in the log.
pub(super) fn of<R: TextSource + Send + 'static>(
    source: R,
    what: &'static str,
    rules: &config::Rules,
    detects_changes: bool,
) -> WatchBuilder<R> {
    let settings = if detects_changes {
        let poll = rules.poll.unwrap_or(NEVER);
        WatchSettings { quiet: rules.debounce, poll, ..WatchSettings::default() }
    } else {
        let detection = ChangeDetection::Polling;
        let (poll, poll_without_events) = (NEVER, NEVER);
        WatchSettings { poll, poll_without_events, detection, ..WatchSettings::default() }
    };
    #[expect(clippy::disallowed_methods, reason = "the status shows the date")]
    let watch = Watch::of(source, SystemTime::now);
    watch.settings(settings).report(move |event| log_event(what, event))
}

fn log_event(what: &str, event: WatchEvent<'_>) {
    let version = |texts: &ActiveTexts| format!("{:016x}", texts.version);
    match event {
        WatchEvent::Published(texts) => {
            let files = texts.sources.len();
            tracing::info!(version = version(texts), files, "activated {what}");
            for warning in &texts.warnings {
                tracing::warn!(place = location(warning), "{}", warning.message);
            }
        }
        WatchEvent::Failed(failure) => {
            tracing::error!(problems = %failure.error, "cannot use {what}; the active version stays");
        }
        WatchEvent::Restored(texts) => {
            tracing::info!(version = version(texts), "the active version of {what} is back");
        }
        WatchEvent::Polling(reason) => {
            tracing::warn!(reason, "no file system events for {what}: polling");
        }
        WatchEvent::EventsResumed => tracing::info!("file system events for {what} work again"),
    }
}

/// The file, line and column of a problem.
pub(super) fn location(problem: &Problem) -> String {
    format!("{}:{}:{}", problem.file, problem.line, problem.column)
}

/// The loads of watched files, as the debug port shows them.
pub(super) fn delivery(status: &WatchStatus) -> DeliveryReading {
    DeliveryReading {
        loads: status.published,
        failures: status.failed,
        last_load: status.active.as_ref().map(|active| timestamp(active.loaded_at)),
        stale: status.differs,
    }
}

/// The problems of files that could be read but not used.
pub(super) const fn report_of(error: &ReloadError) -> Option<&Report> {
    match error {
        ReloadError::Wrong(report) => Some(report),
        ReloadError::Load(_) | ReloadError::Defect(_) => None,
    }
}

pub(super) fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
