//! The gateway's document: put in place again whenever it, or a file that it names, changes.
//!
//! The same watch that keeps rules fresh does so, with the same times. The document that the
//! gateway was made of is in use already, and is not put in place once more. A document that cannot be
//! used is told with all its problems, and the one before stays.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use tidegate_gateway::{Gateway, GatewayDocument, GatewayPage};
use tidegate_rules::{Problem, Report, Source};
use tidegate_sources::{
    DocumentSource, NamedFiles, ReloadError, TextSource, Watch, WatchEvent, WatchHandle,
    WatchStatus,
};

use tidegate_engine::Timestamp;

use super::counters::Counters;
use super::{gateway, rules, system};
use crate::config::Config;
use crate::exit::Failure;

/// The document of the gateway in use, kept fresh.
#[derive(Debug)]
pub(super) struct Document {
    file: PathBuf,
    watch: Watch,
}

/// A document before the gateway is made of it: what it is watched by, and how it was then.
#[derive(Debug)]
pub(super) struct Opened {
    file: PathBuf,
    files: NamedFiles,
    source: DocumentSource,
    texts: Vec<Source>,
}

impl Opened {
    /// Notes how the document and the files that it names are, before anybody reads those: what
    /// changes after this is a change. What comes from a pipe can be read once only, and is not
    /// watched.
    pub(super) fn note(file: &Path, document: &GatewayDocument) -> Option<Self> {
        if !file.is_file() {
            return None;
        }
        let files = NamedFiles::default();
        files.set(document.settings().files());
        let source = DocumentSource::new(file, files.clone());
        let mut texts = source.load().unwrap_or_default();
        if let Some(first) = texts.first_mut() {
            // The one that was read, though it may be another by now.
            *first = document.source().clone();
        }
        Some(Opened { file: file.to_owned(), files, source, texts })
    }
}

impl Document {
    /// Begins to watch the document, from which the gateway was made.
    pub(super) fn start<S: Counters>(
        config: &Config,
        opened: Opened,
        gateway: Gateway<S>,
    ) -> Result<Self, Failure> {
        let Opened { file, files, source, texts } = opened;
        let fields = config.gateway.clone();
        #[expect(clippy::disallowed_methods, reason = "people are told the date")]
        let watch = Watch::of(source, SystemTime::now)
            .settings(rules::watch_settings(&config.rules, config.gateway.watch))
            .report(report)
            .in_use(texts)
            .start_document(move |sources| {
                let Some(source) = sources.first() else { return Ok(Vec::new()) };
                let document = GatewayDocument::read(source.clone())?;
                // Also those of a document that cannot be used: they may be why.
                files.set(document.settings().files());
                let settings = gateway::settings(&fields, document.settings());
                gateway.reload(settings).map_err(|error| document.report(&error))?;
                Ok(Vec::new())
            })
            .map_err(|error| system("the gateway's document cannot be watched", &error))?;
        // What is shown should say from the start that it is in use.
        watch.handle().wait_until(rules::FIRST_MAX, |status| status.looks > 0);
        Ok(Document { file, watch })
    }

    pub(super) fn handle(&self) -> WatchHandle {
        self.watch.handle().clone()
    }

    /// Renders the page `/gateway` of the admin port: the document and the gateway's servers.
    pub(super) fn page<S: Counters>(
        &self,
        gateway: Gateway<S>,
    ) -> Box<dyn Fn() -> String + Send + Sync> {
        let (handle, file) = (self.handle(), self.file.to_string_lossy().into_owned());
        Box::new(move || page(&gateway, Some(DocumentStatus::of(&file, &handle.status()))))
    }

    pub(super) fn stop(self) {
        self.watch.stop();
    }
}

/// The page of a gateway, with the status of its document if that can change.
pub(super) fn page<S: Counters>(gateway: &Gateway<S>, document: Option<DocumentStatus>) -> String {
    #[derive(Serialize)]
    struct Page<'g> {
        #[serde(skip_serializing_if = "Option::is_none")]
        document: Option<DocumentStatus>,
        #[serde(flatten)]
        gateway: GatewayPage<'g>,
    }
    let reading = gateway.read();
    serde_json::to_string(&Page { document, gateway: reading.page() }).unwrap_or_default()
}

/// The status of the document as the page shows it.
#[derive(Debug, Serialize)]
pub(super) struct DocumentStatus {
    file: String,
    loads: u64,
    load_failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<FailureStatus>,
}

#[derive(Debug, Serialize)]
struct FailureStatus {
    at_ms: u64,
    message: String,
    problems: Vec<Problem>,
    omitted: usize,
}

impl DocumentStatus {
    fn of(file: &str, status: &WatchStatus) -> Self {
        let delivery = rules::reading(status);
        let failure = status.current_failure().map(|failure| {
            let report = match &failure.error {
                ReloadError::Wrong(report) => Some(report),
                ReloadError::Load(_) | ReloadError::Defect(_) => None,
            };
            FailureStatus {
                at_ms: millis(rules::timestamp(failure.at)),
                message: failure.error.to_string(),
                problems: report.map(Report::problems).unwrap_or_default().to_vec(),
                omitted: report.map(Report::omitted).unwrap_or_default(),
            }
        });
        DocumentStatus {
            file: file.to_owned(),
            loads: delivery.loads,
            load_failures: delivery.failures,
            loaded_at_ms: delivery.last_load.map(millis),
            last_failure: failure,
        }
    }
}

/// Milliseconds since the Unix epoch.
const fn millis(at: Timestamp) -> u64 {
    at.as_nanos() / 1_000_000
}

/// Tells the log what happens to the document.
fn report(event: WatchEvent<'_>) {
    match event {
        WatchEvent::Published(_) => tracing::info!("the gateway's document is in use"),
        WatchEvent::Failed(failure) => {
            let problems = &failure.error;
            tracing::error!(%problems, "the gateway's document cannot be used; the one before stays");
        }
        WatchEvent::Restored(_) => tracing::info!("the gateway's document in use is back"),
        WatchEvent::Polling(reason) => {
            tracing::warn!(reason, "no file events: the gateway's document is polled");
        }
        WatchEvent::EventsResumed => tracing::info!("file events are back"),
    }
}
