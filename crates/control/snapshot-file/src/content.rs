//! What a snapshot file holds.

use serde::{Deserialize, Serialize};
use tidegate_row_table::{RowTable, TermsText};

/// All settings of a cell.
#[derive(Clone, Debug, Default)]
pub struct SnapshotContent {
    /// Rules and terms.
    pub rules: RulesPart,
    /// The text of an API key file: a line for each key with its SHA-256, the name of its owner and the plan.
    pub keys: String,
    /// Switches over the modes of the rules.
    pub switches: Vec<SwitchSetting>,
    /// The rows of all tables.
    pub table: RowTable,
}

/// Rule documents, and the terms that rows have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesPart {
    /// The documents.
    pub documents: Vec<DocumentText>,
    /// The terms by their numbers; see [`Rows`](tidegate_row_table::Rows).
    #[serde(default)]
    pub terms: Vec<TermsText>,
}

/// A rule document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentText {
    /// The name of its file.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A mode that somebody set over the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchSetting {
    /// What is switched.
    #[serde(flatten)]
    pub target: SwitchTarget,
    /// `off`, `shadow`, `enforce` or `enforce 5%`.
    pub mode: String,
    /// When it ends, in seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Who set it.
    #[serde(default)]
    pub set_by: String,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// What a switch is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "target", rename_all = "snake_case")]
pub enum SwitchTarget {
    /// Everything: with mode `off`, every request passes.
    All,
    /// A limiter: `rate`, `concurrency`, `worker`, `fleet` or `gate`.
    Limiter {
        /// Its name.
        limiter: String,
    },
    /// The limits of a rule, or one of them.
    Limit {
        /// The domain.
        domain: String,
        /// The path of the rule.
        path: String,
        /// The name of a limit, or its number from 1; all limits of the rule if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<String>,
    },
}
