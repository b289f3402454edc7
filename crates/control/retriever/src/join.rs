//! The join file: all that a node needs to know of its control plane.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_snapshot_file::{PublicKey, Trust};

/// The ring of nodes that are in no other.
const DEFAULT_RING: &str = "all";

/// A join file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the join file {} cannot be used: {detail}", path.display())]
pub struct JoinError {
    path: PathBuf,
    detail: String,
}

/// The join file as written: JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenJoin {
    url: String,
    cell: String,
    ring: Option<String>,
    keys: Vec<String>,
    epoch_key: Option<String>,
    token: Option<String>,
    authority: Option<PathBuf>,
}

/// All that a node needs to know of its control plane: where snapshots are, and whom to trust. `tidegate control init`
/// writes it.
#[derive(Clone)]
pub struct JoinFile {
    /// `https://…` or `http://…` of the control plane, or the directory with the snapshots.
    pub url: String,
    /// Cell, ring and keys.
    pub trust: Trust,
    /// The token of nodes at the control plane.
    pub token: Option<String>,
    /// A PEM file with the certificate authorities to trust; those of the system if not given.
    pub authority: Option<PathBuf>,
}

impl std::fmt::Debug for JoinFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let JoinFile { url, trust, .. } = self;
        out.debug_struct("JoinFile").field("url", url).field("trust", trust).finish_non_exhaustive()
    }
}

impl JoinFile {
    /// Reads a join file.
    ///
    /// # Errors
    /// When it cannot be read, or names no key: unsigned snapshots are refused, so nothing could be read with it.
    pub fn read(path: &Path) -> Result<Self, JoinError> {
        let fail = |detail: String| JoinError { path: path.to_owned(), detail };
        let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        JoinFile::parse(&text).map_err(fail)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let written: WrittenJoin = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let parse = |key: &String| key.parse().map_err(|error| format!("`{key}`: {error}"));
        let keys = written.keys.iter().map(parse).collect::<Result<Vec<PublicKey>, _>>()?;
        if keys.is_empty() {
            return Err("`keys` names no public key; copy that of the control plane".to_owned());
        }
        let epoch_key = written.epoch_key.as_ref().map(parse).transpose()?;
        let ring = written.ring.unwrap_or_else(|| DEFAULT_RING.to_owned());
        let trust = Trust { cell: written.cell, ring: Some(ring), keys, epoch_key };
        Ok(JoinFile { url: written.url, trust, token: written.token, authority: written.authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    #[test]
    fn a_join_file_says_where_and_whom_to_trust() {
        let text =
            format!(r#"{{"url": "/snapshots", "cell": "eu", "keys": ["{KEY}"], "token": "t"}}"#);
        let join = JoinFile::parse(&text).unwrap();
        assert_eq!((join.trust.cell.as_str(), join.trust.ring.as_deref()), ("eu", Some("all")));
        assert!(!format!("{join:?}").contains("\"t\""), "the token is not shown");
    }

    #[test]
    fn a_join_file_without_a_key_or_with_a_misspelt_one_is_refused() {
        for (text, part) in [
            (r#"{"url": "/s", "cell": "eu", "keys": []}"#, "no public key"),
            (r#"{"url": "/s", "cell": "eu", "keys": ["x"]}"#, "expected a public key"),
            (r#"{"url": "/s", "cell": "eu", "key": "x"}"#, "unknown field `key`"),
            ("{}", "missing field `url`"),
            ("url: x", "line 1"),
        ] {
            let error = JoinFile::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
