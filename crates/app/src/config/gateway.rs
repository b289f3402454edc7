//! The gateway's document: read from its file, and checked as a whole.

use std::path::Path;
use std::sync::Arc;

use tidegate_engine::{Engine, MemoryConfig, MemoryStore, SystemClock};
use tidegate_gateway::{DOCUMENT_BYTES_MAX, Gateway, GatewayDocument, GatewayParts};
use tidegate_rules::{Report, Source};

use super::load::read_text;
use crate::exit::{Complaint, Failure};

/// The document in a file.
///
/// # Errors
/// When it cannot be read, or has problems.
pub(crate) fn load(path: &Path) -> Result<GatewayDocument, Failure> {
    let text = read_text(path, DOCUMENT_BYTES_MAX)?;
    GatewayDocument::read(Source::new(path.to_string_lossy(), text)).map_err(Failure::Gateway)
}

/// Whether a gateway can be made of the document in a file: the problems of its text or, when
/// there are none, those that only the whole has. Opens the files that it names.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let document = load(path)?;
    let store = MemoryStore::new(MemoryConfig::default())
        .map_err(|error| Complaint::new(error.to_string(), "free some memory"))?;
    let engine = Arc::new(Engine::new(store, SystemClock::new()));
    let made = Gateway::new(engine, document.settings().clone(), GatewayParts::default());
    made.map(drop).map_err(|error| Failure::Gateway(document.report(&error)))
}

/// The problems of a document, or why there are none to tell.
pub(crate) fn problems(path: &Path) -> Result<Option<Report>, Failure> {
    match check(path) {
        Ok(()) => Ok(None),
        Err(Failure::Gateway(report)) => Ok(Some(report)),
        Err(other) => Err(other),
    }
}
