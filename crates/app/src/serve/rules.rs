//! Rules: from the files to the engine, again whenever they change.

mod upstream;

use std::sync::Arc;

use tidegate_admin::Switchboard;
use tidegate_http_api::{RulesStatus, RulesView};
use tidegate_rules::Snapshot;
use tidegate_sources::{Cause, FileSource, ReloadError, ReloadFailure, Watch, WatchHandle};

use super::control::ControlPlane;
use super::engine::EngineParts;
use super::store::ServiceStore;
use super::system_failure;
use super::watch::{self, FIRST_LOAD_MAX, timestamp};
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
    control: Option<&ControlPlane>,
    board: &Arc<Switchboard>,
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
    if let Some(control) = control {
        let watch = control.watch(config, &parts.engine, board, set_readiness)?;
        return require_rules(config, watch);
    }
    let engine = Arc::clone(&parts.engine);
    let publish = move |snapshot: Snapshot| {
        set_readiness(snapshot.domains().next().is_some());
        engine.install(snapshot);
    };
    let (rules, options) = (&config.rules, config.rule_options());
    let watch = match rules.source() {
        RulesFrom::Paths(paths) => {
            let source = FileSource::new(paths);
            watch::of(source, NAME, rules, rules.watch).options(options).start(publish)
        }
        RulesFrom::Runtime { root, runtime } => {
            let source = runtime_source(root, runtime);
            upstream::refuse_unwatchable(config, &source)?;
            let report = upstream::reporter(config, source.clone());
            let watch = watch::of(source, NAME, rules, rules.watch).options(options);
            watch.report(report).start(publish)
        }
    };
    let watch = watch.map_err(|error| system_failure("the rules cannot be watched", &error))?;
    watch.handle().wait_until(FIRST_LOAD_MAX, |status| status.looks > 0);
    upstream::report_first_load(config);
    require_rules(config, watch)
}

/// The watch, unless it has no rules and the service needs some.
fn require_rules(config: &Config, watch: Watch) -> Result<Watch, Failure> {
    let first = watch.handle().status();
    if config.rules.required && first.active.is_none() {
        let failure = first.failure.clone();
        watch.stop();
        return Err(start_failure(failure.as_deref()));
    }
    Ok(watch)
}

/// Whether there are rules, or nothing that could hold them: a missing or empty directory holds no rules, as for
/// envoyproxy/ratelimit.
pub(super) fn are_loaded(handle: &WatchHandle) -> bool {
    let status = handle.status();
    let is_empty = |failure: &ReloadFailure| match &failure.error {
        ReloadError::Load(error) => error
            .faults()
            .iter()
            .all(|fault| matches!(fault.cause, Cause::Missing | Cause::NoRuleFiles)),
        ReloadError::Wrong(_) | ReloadError::Defect(_) => false,
    };
    status.active.is_some() || status.failure.as_deref().is_some_and(is_empty)
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
        RulesStatus {
            loaded_at: active.map(|active| timestamp(active.loaded_at)),
            sources: active.map(|active| active.sources.as_slice().into()).unwrap_or_default(),
            failure: watch::load_failure(&status).map(Arc::new),
        }
    })
}
