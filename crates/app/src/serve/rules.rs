//! Rules: from the files to the engine, again whenever they change.

use std::sync::Arc;

use tidegate_http_api::{RulesFailure, RulesStatus, RulesView};
use tidegate_rules::Snapshot;
use tidegate_sources::{FileSource, ReloadError, ReloadFailure, Watch, WatchHandle};

use super::engine::EngineParts;
use super::store::ServiceStore;
use super::system_failure;
use super::watch::{self, FIRST_LOAD_MAX, report_of, timestamp};
use crate::config::{Config, RulesFrom};
use crate::exit::{Complaint, Failure};
use crate::rules::load::runtime_source;

/// The name under which missing rules make the service not ready.
const PART: &str = "rules";
/// Their name in the log.
const NAME: &str = "the rules";

/// Loads the rules, and watches them from then on.
pub(super) fn start<S: ServiceStore>(
    config: &Config,
    parts: &EngineParts<S>,
) -> Result<Watch, Failure> {
    let (health, needs_rules) = (parts.health.clone(), config.health.needs_rules);
    let set_readiness = move |has_rules: bool| {
        if needs_rules && !has_rules {
            health.hold_back(PART, "there are no rules for any domain");
        } else {
            health.clear(PART);
        }
    };
    set_readiness(false);
    let engine = Arc::clone(&parts.engine);
    let publish = move |snapshot: Snapshot| {
        set_readiness(snapshot.domains().next().is_some());
        engine.install(snapshot);
    };
    let (rules, options) = (&config.rules, config.rules.options());
    let watch = match rules.source() {
        RulesFrom::Paths(paths) => {
            let source = FileSource::new(paths);
            watch::of(source, NAME, rules, rules.watch).options(options).start(publish)
        }
        RulesFrom::Runtime { root, runtime } => {
            let source = runtime_source(root, runtime);
            watch::of(source, NAME, rules, rules.watch).options(options).start(publish)
        }
    };
    let watch = watch.map_err(|error| system_failure("the rules cannot be watched", &error))?;
    let first = watch.handle().wait_until(FIRST_LOAD_MAX, |status| status.looks > 0);
    let failure = first.as_ref().and_then(|status| status.failure.clone());
    let are_missing = first.is_none_or(|status| status.active.is_none());
    if rules.required && are_missing {
        watch.stop();
        return Err(start_failure(failure.as_deref()));
    }
    Ok(watch)
}

/// Why the service cannot start: it has no rules.
fn start_failure(failure: Option<&ReloadFailure>) -> Failure {
    let help = "fix them, or set `rules.required: false` to start without rules";
    match failure.map(|failure| &failure.error) {
        Some(ReloadError::Wrong(report)) => report.clone().into(),
        Some(ReloadError::Load(error)) => {
            let cause = error.faults().first().map(|fault| fault.cause.help());
            Complaint::new(format!("no rules: {error}"), cause.unwrap_or(help)).into()
        }
        Some(ReloadError::Defect(words)) => Complaint::new(words, help).into(),
        None => Complaint::new("reading the rules takes too long", help).into(),
    }
}

/// The rules as the HTTP API shows them.
pub(super) fn view(handle: WatchHandle) -> RulesView {
    Arc::new(move || {
        let status = handle.status();
        let active = status.active.as_deref();
        let failure = status.current_failure().map(|failure| RulesFailure {
            at: timestamp(failure.at),
            message: failure.error.to_string(),
            report: report_of(&failure.error).cloned(),
        });
        RulesStatus {
            loaded_at: active.map(|active| timestamp(active.loaded_at)),
            sources: active.map(|active| active.sources.as_slice().into()).unwrap_or_default(),
            failure: failure.map(Arc::new),
        }
    })
}
