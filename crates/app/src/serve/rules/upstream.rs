//! Under compat: what envoyproxy/ratelimit logs and refuses about its runtime directory, in its words, so that alerts
//! that search the log keep working.

use std::path::PathBuf;

use tidegate_rules::upstream_error;
use tidegate_sources::{ReloadError, RuntimeChanges, RuntimeSource, TextSource, WatchEvent};

use super::NAME;
use crate::config::{Compat, Config, LogFormat};
use crate::exit::{Complaint, Failure};
use crate::serve::watch;

fn is_compat(config: &Config) -> bool {
    config.compat == Compat::EnvoyRatelimit
}

/// Refuses to start if the directory that is watched for changes does not exist: the parent of the root, or the directory
/// of the rules.
pub(super) fn refuse_unwatchable(config: &Config, source: &RuntimeSource) -> Result<(), Failure> {
    // Without a subdirectory upstream has no rules, and watches nothing.
    let is_watched = is_compat(config) && source.subdirectory.components().next().is_some();
    let watched = match source.changes {
        RuntimeChanges::Root => source.root.parent().map(PathBuf::from),
        RuntimeChanges::Directory => Some(source.directory()),
    };
    match watched.filter(|watched| is_watched && !watched.exists()) {
        None => Ok(()),
        Some(missing) => {
            let missing = missing.display();
            let message = format!("unable to watch file ({missing}): no such file or directory");
            let help = "create it, or correct RUNTIME_ROOT and RUNTIME_SUBDIRECTORY";
            Err(Complaint::new(message, help).into())
        }
    }
}

/// Logs the events of the rule files, under compat in the words of upstream too.
pub(super) fn reporter(
    config: &Config,
    source: RuntimeSource,
) -> impl Fn(WatchEvent<'_>) + Send + 'static + use<> {
    let (is_compat, merge_domains) = (is_compat(config), config.rules.merge_domains);
    let is_json = config.log.format == LogFormat::Json;
    move |event| {
        watch::log_event(NAME, &event);
        match event {
            WatchEvent::Published(_) if is_compat => {
                tracing::info!("Successfully loaded new configuration");
            }
            WatchEvent::Failed(failure) if is_compat => {
                let ReloadError::Wrong(_) = failure.error else { return };
                let Ok(sources) = source.load() else { return };
                let Some(error) = upstream_error(&sources, merge_domains) else { return };
                // As text, upstream quotes the message.
                let error = if is_json { error } else { error.replace('\n', "\\n") };
                tracing::error!("Error loading new configuration: {error}");
            }
            _ => {}
        }
    }
}

/// Logs that the first load is over, whatever came of it.
pub(super) fn report_first_load(config: &Config) {
    if is_compat(config) {
        tracing::info!("Successfully loaded the initial ratelimit configs");
    }
}
