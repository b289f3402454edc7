//! What takes a restart: fields of the configuration that changed while the service runs.
//!
//! Addresses, certificates' places, limits of connections and protection are fixed at the start,
//! as all fields of the configuration are. Who changes one in the file is told by name that it
//! waits for a restart, instead of wondering. Flags and variables are those of the start.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tidegate_control::{DocumentSource, NamedFiles, RuleWatch, WatchEvent, WatchHandle};

use super::{rules, system};
use crate::config::{Config, Input, changed, resolve};
use crate::exit::Failure;

/// Watches the file of the configuration.
#[derive(Debug)]
pub(super) struct Restart {
    watch: Option<RuleWatch>,
}

impl Restart {
    /// Begins to watch, if the configuration has a file.
    pub(super) fn start(config: &Config, input: Input) -> Result<Self, Failure> {
        let Some(path) = path(&input) else { return Ok(Restart { watch: None }) };
        let running = config.clone();
        #[expect(clippy::disallowed_methods, reason = "the watch wants a date")]
        let watch =
            RuleWatch::of(DocumentSource::new(path, NamedFiles::default()), SystemTime::now)
                .settings(rules::watch_settings(&config.rules, config.rules.watch))
                .report(report)
                .start_document(move |sources| {
                    let file = sources.first().cloned();
                    let loaded = resolve(&Input { file, ..input.clone() })?;
                    for field in changed(&running, &loaded.config) {
                        tracing::warn!(field, "changed in the configuration: it takes a restart");
                    }
                    Ok(Vec::new())
                })
                .map_err(|error| system("the configuration cannot be watched", &error))?;
        Ok(Restart { watch: Some(watch) })
    }

    pub(super) fn handle(&self) -> Option<WatchHandle> {
        self.watch.as_ref().map(|watch| watch.handle().clone())
    }

    pub(super) fn stop(self) {
        if let Some(watch) = self.watch {
            watch.stop();
        }
    }
}

/// Where the file is; what was piped in is nowhere.
fn path(input: &Input) -> Option<PathBuf> {
    let path = PathBuf::from(&input.file.as_ref()?.name);
    Path::is_file(&path).then_some(path)
}

/// Tells the log what is wrong. What is right is told by field.
fn report(event: WatchEvent<'_>) {
    if let WatchEvent::Failed(failure) = event {
        let problems = &failure.error;
        tracing::error!(%problems, "the changed configuration would not start");
    }
}
