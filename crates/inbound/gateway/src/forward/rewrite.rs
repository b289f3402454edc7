//! Rewrites the path of a request for its upstream.

use http::request::Parts;
use http::uri::PathAndQuery;

use crate::head::{Target, path_with_parameters};
use crate::settings::{PathMatch, PathRewrite};

/// A compiled path rewrite.
#[derive(Clone, Debug)]
pub(crate) enum Rewrite {
    Keep,
    /// Replaces a prefix by another; neither has a trailing slash.
    Prefix {
        from: Box<str>,
        to: Box<str>,
    },
}

/// Why a rewrite is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RewriteError {
    #[error("a route with a template has no prefix to strip or replace")]
    NoPrefix,
    #[error("`{0}` is not a path")]
    NotAPath(String),
}

impl Rewrite {
    pub(crate) fn of(rewrite: &PathRewrite, path: &PathMatch) -> Result<Self, RewriteError> {
        let to = match rewrite {
            PathRewrite::Keep => return Ok(Rewrite::Keep),
            PathRewrite::StripPrefix => "",
            PathRewrite::ReplacePrefix(to) => to,
        };
        let PathMatch::Prefix(from) = path else { return Err(RewriteError::NoPrefix) };
        let valid = to.is_empty() || (to.starts_with('/') && PathAndQuery::try_from(to).is_ok());
        if !valid || to.contains('?') {
            return Err(RewriteError::NotAPath(to.to_owned()));
        }
        let bare = |path: &str| path.trim_end_matches('/').into();
        Ok(Rewrite::Prefix { from: bare(from), to: bare(to) })
    }

    /// The path and query for the upstream.
    pub(crate) fn apply(&self, head: &Parts, target: &Target) -> PathAndQuery {
        let sent = || {
            let sent = head.uri.path_and_query().cloned();
            sent.unwrap_or_else(|| PathAndQuery::from_static("/"))
        };
        let Rewrite::Prefix { from, to } = self else { return sent() };
        // The prefix itself may have parameters, which are removed with it.
        let (whole, bare) = (path_with_parameters(head), target.path(head));
        let Some(rest) = below(from, &whole).or_else(|| below(from, bare)) else { return sent() };
        let slash =
            if rest.starts_with('/') || !to.is_empty() && rest.is_empty() { "" } else { "/" };
        let changed = match head.uri.query() {
            Some(query) => format!("{to}{slash}{rest}?{query}"),
            None => format!("{to}{slash}{rest}"),
        };
        PathAndQuery::try_from(changed).unwrap_or_else(|_| sent())
    }
}

/// The path below a prefix of whole segments.
fn below<'p>(prefix: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}
