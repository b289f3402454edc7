//! Rules: from the files to the engine, again whenever they change.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_admin::DeliveryReading;
use tidegate_engine::Timestamp;
use tidegate_http_api::{Health, RulesFailure, RulesStatus, RulesView};
use tidegate_rules::Problem;
use tidegate_sources::{
    ChangeDetection, FileSource, ReloadError, ReloadFailure, Watch, WatchBuilder, WatchEvent,
    WatchHandle, WatchSettings, WatchStatus,
};

use super::counters::Counters;
use super::limiting::Limiting;
use super::{SharedEngine, system};
use crate::config::{self, Config, RulesFrom};
use crate::exit::{Complaint, Failure};
use crate::rules::load::runtime_source;

/// How long the first rules may take before the service goes on without them:
/// a hundred thousand rules compile in about a second.
pub(super) const FIRST_MAX: Duration = Duration::from_secs(60);
/// As good as never: the watch is for files that change.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The part of the service that holds it back when it has no rules.
const PART: &str = "rules";

/// The rules in use, kept fresh.
#[derive(Debug)]
pub(super) struct Rules {
    watch: Watch,
}

impl Rules {
    /// Loads the rules, and begins to watch them.
    pub(super) fn start<S: Counters>(
        config: &Config,
        limiting: &Limiting<S>,
    ) -> Result<Self, Failure> {
        let engine = Arc::clone(&limiting.engine);
        let gate = Gate { health: limiting.health.clone(), needs: config.health.needs_rules };
        gate.set(false);
        let watch = match config.rules.source() {
            RulesFrom::Paths(paths) => started(FileSource::new(paths), config, engine, gate),
            RulesFrom::Runtime { root, runtime } => {
                started(runtime_source(root, runtime), config, engine, gate)
            }
        };
        let watch = watch.map_err(|error| system("rules cannot be watched", &error))?;
        let first = watch.handle().wait_until(FIRST_MAX, |status| status.looks > 0);
        let failure = first.as_ref().and_then(|status| status.failure.clone());
        let missing = first.is_none_or(|status| status.active.is_none());
        if config.rules.required && missing {
            watch.stop();
            return Err(cannot_start(failure.as_deref()));
        }
        Ok(Rules { watch })
    }

    pub(super) fn handle(&self) -> WatchHandle {
        self.watch.handle().clone()
    }

    pub(super) fn stop(self) {
        self.watch.stop();
    }
}

/// Why there are no rules to start with.
fn cannot_start(failure: Option<&ReloadFailure>) -> Failure {
    let help = "mend them, or set `rules.required: false` to start without";
    match failure.map(|failure| &failure.error) {
        Some(ReloadError::Wrong(report)) => report.clone().into(),
        Some(ReloadError::Load(error)) => {
            let cause = error.faults().first().map(|fault| fault.cause.help());
            Complaint::new(format!("no rules: {error}"), cause.unwrap_or(help)).into()
        }
        Some(ReloadError::Defect(words)) => Complaint::new(words, help).into(),
        None => Complaint::new("the rules take too long to be read", help).into(),
    }
}

/// Starts to watch a source for the engine.
fn started<R: tidegate_sources::TextSource + Send + 'static, S: Counters>(
    source: R,
    config: &Config,
    engine: SharedEngine<S>,
    gate: Gate,
) -> std::io::Result<Watch> {
    #[expect(clippy::disallowed_methods, reason = "people are told the date")]
    let watch: WatchBuilder<R> = Watch::of(source, SystemTime::now);
    let settings = watch_settings(&config.rules, config.rules.watch);
    watch.options(config.rules.options()).settings(settings).report(report).start(move |snapshot| {
        gate.set(snapshot.domains().next().is_some());
        engine.install(snapshot);
    })
}

/// Holds the service back while it needs rules and has none.
struct Gate {
    health: Health,
    needs: bool,
}

impl Gate {
    fn set(&self, has_rules: bool) {
        if self.needs && !has_rules {
            self.health.hold_back(PART, "there are no rules for any domain");
        } else {
            self.health.clear(PART);
        }
    }
}

/// How changes of files are noticed, if they are.
pub(super) fn watch_settings(rules: &config::Rules, watch: bool) -> WatchSettings {
    let poll = rules.poll.unwrap_or(NEVER);
    if watch {
        return WatchSettings { quiet: rules.debounce, poll, ..WatchSettings::default() };
    }
    let detection = ChangeDetection::Polling;
    WatchSettings { poll: NEVER, poll_without_events: NEVER, detection, ..WatchSettings::default() }
}

/// Tells the log what happens to the rules.
fn report(event: WatchEvent<'_>) {
    match event {
        WatchEvent::Published(rules) => {
            let files = rules.sources.len();
            tracing::info!(version = %version(rules.version), files, "rules are in use");
            for warning in &rules.warnings {
                tracing::warn!(place = %place(warning), "{}", warning.message);
            }
        }
        WatchEvent::Failed(failure) => {
            tracing::error!(problems = %failure.error, "rules cannot be used; those before stay");
        }
        WatchEvent::Restored(rules) => {
            tracing::info!(version = %version(rules.version), "the rules in use are back");
        }
        WatchEvent::Polling(reason) => {
            tracing::warn!(reason, "no file events: rules are polled");
        }
        WatchEvent::EventsResumed => tracing::info!("file events are back"),
    }
}

/// Where a problem is.
pub(super) fn place(problem: &Problem) -> String {
    format!("{}:{}:{}", problem.file, problem.line, problem.column)
}

fn version(version: u64) -> String {
    format!("{version:016x}")
}

/// What the debug door shows.
pub(super) fn reading(status: &WatchStatus) -> DeliveryReading {
    DeliveryReading {
        loads: status.published,
        failures: status.failed,
        last_load: status.active.as_ref().map(|active| timestamp(active.loaded_at)),
        stale: status.differs,
    }
}

/// What the HTTP door shows.
pub(super) fn view(handle: WatchHandle) -> RulesView {
    Arc::new(move || {
        let status = handle.status();
        let active = status.active.as_deref();
        let failure = status.current_failure().map(|failure| RulesFailure {
            at: timestamp(failure.at),
            message: failure.error.to_string(),
            report: match &failure.error {
                ReloadError::Wrong(report) => Some(report.clone()),
                ReloadError::Load(_) | ReloadError::Defect(_) => None,
            },
        });
        RulesStatus {
            loaded_at: active.map(|active| timestamp(active.loaded_at)),
            sources: active.map(|active| active.sources.as_slice().into()).unwrap_or_default(),
            failure: failure.map(Arc::new),
        }
    })
}

pub(super) fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
