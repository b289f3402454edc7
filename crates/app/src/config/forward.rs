//! The forwarder's document: read from its file, and checked as a whole.

use std::path::Path;

use tidegate_forwarder::{FORWARD_DOCUMENT_BYTES_MAX, ForwardDocument};

use super::Config;
use crate::exit::{Complaint, Failure};
use crate::input::read_file;

/// The document in a file.
///
/// # Errors
/// When it cannot be read, or has problems.
pub(crate) fn load(path: &Path) -> Result<ForwardDocument, Failure> {
    let source = read_file(path, FORWARD_DOCUMENT_BYTES_MAX)?;
    ForwardDocument::read(source).map_err(Failure::Forward)
}

/// The document that the configuration names.
///
/// # Errors
/// Like [`load`], and when it names none.
pub(crate) fn of(config: &Config) -> Result<ForwardDocument, Failure> {
    let Some(path) = &config.forward.file else {
        let message = "there is no document with targets and record types";
        let help = "give `--forward forward.yaml`, or set `forward.file`; docs/forwarder.md has an example";
        return Err(Complaint::new(message, help).into());
    };
    load(path)
}

/// The document in a file, if processors can be made of it. Opens the files that it names.
///
/// # Errors
/// Like [`load`], and when a file cannot be used.
pub(crate) fn check(path: &Path) -> Result<ForwardDocument, Failure> {
    let document = load(path)?;
    for plan in &document.types {
        let name = &plan.settings.record_type;
        plan.processor.build().map_err(|error| {
            let message = format!("the type `{name}` cannot be processed: {error}");
            Complaint::new(message, "check the files that `http` of the type names")
        })?;
    }
    Ok(document)
}
