//! The gateway's document, activated again whenever it, or a file that it names, changes.
//!
//! The watch starts with the texts that the gateway was made of, so it does not activate them again. A document with
//! problems is logged, and the active one stays.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tidegate_admin::{TriedHead, TriedRoute};
use tidegate_engine::{CounterStore, Timestamp};
use tidegate_gateway::{Gateway, GatewayDocument, GatewayPage};
use tidegate_http_api::LoadFailure;
use tidegate_rules::Source;
use tidegate_sources::{DocumentSource, NamedFiles, TextSource, Watch, WatchHandle, WatchStatus};

use super::store::ServiceStore;
use super::watch::{self, FIRST_LOAD_MAX};
use super::{gateway, system_failure};
use crate::config::Config;
use crate::exit::Failure;

/// The watch of the active document.
#[derive(Debug)]
pub(super) struct DocumentWatch {
    file: PathBuf,
    watch: Watch,
}

/// The document and the files that it names, as they were before the gateway was made of them.
#[derive(Debug)]
pub(super) struct DocumentFiles {
    file: PathBuf,
    named: NamedFiles,
    source: DocumentSource,
    texts: Vec<Source>,
}

impl DocumentFiles {
    /// Reads the files that the document names. `None` for a pipe, which can be read only once and is not watched.
    pub(super) fn read(file: &Path, document: &GatewayDocument) -> Option<Self> {
        if !file.is_file() {
            return None;
        }
        let named = NamedFiles::default();
        named.set(document.settings().files());
        let source = DocumentSource::new(file, named.clone());
        let mut texts = source.load().unwrap_or_default();
        if let Some(first) = texts.first_mut() {
            // The document that the gateway is made of, even if the file has changed since.
            *first = document.source().clone();
        }
        Some(DocumentFiles { file: file.to_owned(), named, source, texts })
    }

    /// Starts to watch them for the gateway.
    pub(super) fn watch<S: ServiceStore>(
        self,
        config: &Config,
        gateway: Gateway<S>,
    ) -> Result<DocumentWatch, Failure> {
        let DocumentFiles { file, named, source, texts } = self;
        let fields = config.gateway.clone();
        let watch = watch::of(source, "the gateway's document", &config.rules, fields.watch)
            .in_use(texts)
            .start_document(move |sources| {
                let Some(source) = sources.first() else { return Ok(Vec::new()) };
                let document = GatewayDocument::read(source.clone())?;
                // Before it is activated: a file that it names may be the reason why it cannot be used.
                named.set(document.settings().files());
                let settings = gateway::settings(&fields, document.settings());
                gateway.reload(settings).map_err(|error| document.report(&error))?;
                Ok(Vec::new())
            })
            .map_err(|error| system_failure("the gateway's document cannot be watched", &error))?;
        // The debug port shows the status from the start.
        watch.handle().wait_until(FIRST_LOAD_MAX, |status| status.looks > 0);
        Ok(DocumentWatch { file, watch })
    }
}

impl DocumentWatch {
    pub(super) fn handle(&self) -> WatchHandle {
        self.watch.handle().clone()
    }
}

/// Renders the page `/gateway` of the debug port: the gateway's servers and, if it is watched, the document.
pub(super) fn page<S: ServiceStore>(
    gateway: Gateway<S>,
    document: Option<&DocumentWatch>,
) -> Box<dyn Fn() -> String + Send + Sync> {
    #[derive(Serialize)]
    struct Page<'g> {
        #[serde(skip_serializing_if = "Option::is_none")]
        document: Option<DocumentStatus>,
        #[serde(flatten)]
        gateway: GatewayPage<'g>,
    }
    let document =
        document.map(|watch| (watch.file.to_string_lossy().into_owned(), watch.handle()));
    Box::new(move || {
        let status =
            |(file, handle): &(String, WatchHandle)| DocumentStatus::of(file, &handle.status());
        let reading = gateway.read();
        let page = Page { document: document.as_ref().map(status), gateway: reading.page() };
        serde_json::to_string(&page).unwrap_or_default()
    })
}

/// Tries requests against the gateway, for the debug port.
pub(crate) fn trial<S: CounterStore>(
    gateway: Gateway<S>,
) -> Box<dyn Fn(&TriedHead) -> TriedRoute + Send + Sync> {
    Box::new(move |head| {
        let TriedHead { method, uri, headers, client } = head.clone();
        let trial = gateway.try_request(method, uri, headers, client);
        let fault = trial.fault.map(|(status, code, text)| (status, code, text.to_owned()));
        TriedRoute {
            route: trial.route,
            upstream: trial.upstream,
            category: trial.category,
            domain: trial.domain,
            descriptors: trial.descriptors,
            fault,
            exempt: trial.exempt,
        }
    })
}

/// The status of the document, as the page shows it.
#[derive(Debug, Serialize)]
struct DocumentStatus {
    file: String,
    loads: u64,
    load_failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<LoadFailure>,
}

impl DocumentStatus {
    fn of(file: &str, status: &WatchStatus) -> Self {
        DocumentStatus {
            file: file.to_owned(),
            loads: status.published,
            load_failures: status.failed,
            loaded_at_ms: watch::delivery(status).last_load.map(Timestamp::as_millis),
            last_failure: watch::load_failure(status),
        }
    }
}
