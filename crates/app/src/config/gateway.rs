//! The gateway's document: read from its file, and checked as a whole.

use std::path::Path;
use std::sync::Arc;

use tidegate_engine::{Engine, MemoryConfig, MemoryStore, SystemClock};
use tidegate_gateway::{DOCUMENT_BYTES_MAX, Gateway, GatewayDocument, GatewayParts};

use crate::exit::{Complaint, Failure};
use crate::input::read_file;

/// The document in a file.
///
/// # Errors
/// When it cannot be read, or has problems.
pub(crate) fn load(path: &Path) -> Result<GatewayDocument, Failure> {
    GatewayDocument::read(read_file(path, DOCUMENT_BYTES_MAX)?).map_err(Failure::Gateway)
}

/// The document in a file, if a gateway can be made of it. Opens the files that the document names.
///
/// # Errors
/// Like [`load`], and when the gateway cannot be made.
pub(crate) fn check(path: &Path) -> Result<GatewayDocument, Failure> {
    build(path).map(|(document, _)| document)
}

/// The document in a file, and a gateway of it that serves nobody: its engine has no rules.
///
/// # Errors
/// Like [`check`].
pub(crate) fn build(path: &Path) -> Result<(GatewayDocument, Gateway<MemoryStore>), Failure> {
    let document = load(path)?;
    let store = MemoryStore::new(MemoryConfig::default())
        .map_err(|error| Complaint::new(error.to_string(), "free some memory"))?;
    let engine = Arc::new(Engine::new(store, SystemClock::new()));
    match Gateway::new(engine, document.settings().clone(), GatewayParts::default()) {
        Ok(gateway) => Ok((document, gateway)),
        Err(error) => Err(Failure::Gateway(document.report(&error))),
    }
}
