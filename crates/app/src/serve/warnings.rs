//! Warnings about mistakes between documents, logged at the start and after each reload.
//!
//! The comparison runs beside the doors, on the thread that looks after the service each second, and only when the
//! rules or the gateway's document changed. Each warning is logged once for as long as it holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::counters::Counters;
use super::gateway::Front;
use super::limiting::Limiting;
use super::rules::place;
use crate::config::check::{compare, located, switches_without_effect};
use crate::config::{self, Config};

/// The warnings that hold at present.
#[derive(Debug, Default)]
pub(super) struct DocumentWarnings {
    /// The versions of the rules and of the gateway's document that were compared last.
    compared: Option<(u64, u64)>,
    logged: BTreeSet<String>,
}

impl DocumentWarnings {
    /// Compares the documents if one of them changed, and logs new warnings.
    pub(super) fn look<S: Counters>(
        &mut self,
        config: &Config,
        limiting: &Limiting<S>,
        front: Option<&Front<S>>,
    ) {
        let (Some(front), Some(path)) = (front, config.gateway.file.as_deref()) else { return };
        let document_version =
            front.document.as_ref().map_or(0, |document| document.handle().status().published);
        let versions = (limiting.engine.rules_version(), document_version);
        // A pipe can be read only once.
        if self.compared == Some(versions) || !path.is_file() {
            return;
        }
        self.compared = Some(versions);
        let Ok(document) = config::gateway::load(path) else { return };
        let snapshot = Arc::clone(&limiting.engine.snapshot());
        let (findings, _) = compare(config, &document, &snapshot);
        let mut holding = BTreeSet::new();
        for problem in located(&document, &findings) {
            let hint = problem.hint.as_deref().unwrap_or_default();
            if !self.logged.contains(&problem.message) {
                tracing::warn!(place = %place(&problem), hint, "{}", problem.message);
            }
            holding.insert(problem.message);
        }
        if let Some(note) = switches_without_effect(config) {
            if !self.logged.contains(&note.message) {
                tracing::warn!("{}", note.message);
            }
            holding.insert(note.message);
        }
        self.logged = holding;
    }
}
