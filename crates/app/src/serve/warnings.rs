//! Warnings about mistakes between documents, logged at the start and after each reload.
//!
//! The comparison runs with the periodic work, not on a worker, and only when the rules or the gateway's document
//! changed. Each warning is logged once for as long as it applies.

use std::collections::BTreeSet;

use super::Service;
use super::store::ServiceStore;
use super::watch::location;
use crate::config::{self, Config};
use crate::cross_check::cross_check;

/// The warnings that apply at present.
#[derive(Debug, Default)]
pub(super) struct DocumentWarnings {
    /// The versions of the rules and of the gateway's document that were compared last.
    compared: Option<(u64, u64)>,
    logged: BTreeSet<String>,
}

impl DocumentWarnings {
    /// Compares the documents if one of them changed, and logs new warnings.
    pub(super) fn tick<S: ServiceStore>(&mut self, config: &Config, service: &Service<S>) {
        let (Some(gateway), Some(path)) = (&service.gateway, config.gateway.file.as_deref()) else {
            return;
        };
        let engine = &service.engine.engine;
        let document = gateway.document.as_ref();
        let document_version = document.map_or(0, |watch| watch.handle().status().published);
        let versions = (engine.rules_version(), document_version);
        // A pipe can be read only once.
        if self.compared == Some(versions) || !path.is_file() {
            return;
        }
        self.compared = Some(versions);
        let Ok(document) = config::gateway::load(path) else { return };
        let (problems, _) = cross_check(config, &document, &engine.snapshot());
        let mut current = BTreeSet::new();
        for problem in problems {
            let hint = problem.hint.as_deref().unwrap_or_default();
            if !self.logged.contains(&problem.message) {
                tracing::warn!(place = location(&problem), hint, "{}", problem.message);
            }
            current.insert(problem.message);
        }
        self.logged = current;
    }
}
