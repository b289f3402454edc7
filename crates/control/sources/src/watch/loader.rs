//! One load of the texts: read, compare, activate.
//!
//! A function accepts the texts: [`rules`] compiles them to a snapshot, [`document`] passes them
//! to the reader of another document.
//!
//! Remembers the active texts and the last failure, so that the same texts are neither compiled
//! nor reported again. A panic counts as a failure: the watch's thread must not end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_rules::{Options, Problem, Report, Snapshot, Source, compile};
use xxhash_rust::xxh3::Xxh3;

use super::status::ReloadError;
use crate::source::TextSource;
use crate::source::watched_paths::WatchedPaths;

/// The result of a load.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The active texts.
    AsActive,
    /// The texts that failed before.
    AsFailed,
    /// The active texts under other names.
    Renamed(LoadedTexts),
    /// New texts, now active.
    Published(LoadedTexts),
    /// Texts that cannot be used.
    Failed(ReloadError),
}

/// Texts that can be used.
#[derive(Debug)]
pub(super) struct LoadedTexts {
    pub(super) version: u64,
    pub(super) sources: Vec<Source>,
    pub(super) warnings: Vec<Problem>,
}

/// Identifies what a load found, for comparison with the next.
#[derive(Debug, PartialEq, Eq)]
enum ContentKey {
    Texts(u128),
    /// The error of a load.
    Reason(String),
}

/// Accepts texts; the second argument is the active version. Returns their version and warnings, and whether they
/// differ from the active ones and were published.
pub(super) type Accept =
    Box<dyn FnMut(&[Source], Option<u64>) -> Result<(u64, Vec<Problem>, bool), ReloadError> + Send>;

/// Compiles texts as rules.
pub(super) fn rules(
    options: Options,
    mut publish: impl FnMut(Snapshot) + Send + 'static,
) -> Accept {
    Box::new(move |sources, active| {
        let snapshot = compile(sources, &options).map_err(ReloadError::Wrong)?;
        let (version, warnings) = (snapshot.version(), snapshot.warnings().to_vec());
        let new = active != Some(version);
        if new {
            publish(snapshot);
        }
        Ok((version, warnings, new))
    })
}

/// Passes texts to the reader of another document, which activates them.
pub(super) fn document(
    mut activate: impl FnMut(&[Source]) -> Result<Vec<Problem>, Report> + Send + 'static,
) -> Accept {
    Box::new(move |sources, _| {
        let warnings = activate(sources).map_err(ReloadError::Wrong)?;
        Ok((hashed(sources).digest(), warnings, true))
    })
}

/// Loads the texts of a source.
pub(super) struct Loader<S> {
    source: S,
    accept: Accept,
    active: Option<(ContentKey, u64)>,
    failed: Option<ContentKey>,
}

impl<S: TextSource> Loader<S> {
    pub(super) fn new(source: S, accept: Accept) -> Self {
        Loader { source, accept, active: None, failed: None }
    }

    /// The paths to watch; none if the source panics.
    pub(super) fn watched(&self) -> WatchedPaths {
        catch_unwind(AssertUnwindSafe(|| self.source.watched())).unwrap_or_default()
    }

    /// Treats these texts as active.
    pub(super) fn adopt(&mut self, sources: Vec<Source>) -> LoadedTexts {
        let version = hashed(&sources).digest();
        self.active = Some((ContentKey::Texts(fingerprint(&sources)), version));
        LoadedTexts { version, sources, warnings: Vec::new() }
    }

    /// Loads once. Texts that failed before are tried again only with `again`.
    pub(super) fn load(&mut self, again: bool) -> Outcome {
        let sources = match contained(|| self.source.load().map_err(ReloadError::Load)) {
            Ok(sources) => sources,
            Err(error) => return self.fail(ContentKey::Reason(error.to_string()), error, again),
        };
        let seen = ContentKey::Texts(fingerprint(&sources));
        if self.active.as_ref().is_some_and(|(active, _)| *active == seen) {
            self.failed = None;
            return Outcome::AsActive;
        }
        if self.failed.as_ref() == Some(&seen) && !again {
            return Outcome::AsFailed;
        }
        let active = self.active.as_ref().map(|(_, version)| *version);
        match contained(|| (self.accept)(&sources, active)) {
            Ok((version, warnings, is_new)) => {
                self.active = Some((seen, version));
                self.failed = None;
                let loaded = LoadedTexts { version, sources, warnings };
                if is_new { Outcome::Published(loaded) } else { Outcome::Renamed(loaded) }
            }
            Err(error) => self.fail(seen, error, true),
        }
    }

    fn fail(&mut self, seen: ContentKey, error: ReloadError, again: bool) -> Outcome {
        if self.failed.as_ref() == Some(&seen) && !again {
            return Outcome::AsFailed;
        }
        self.failed = Some(seen);
        Outcome::Failed(error)
    }
}

/// Runs `work`; a panic becomes a defect.
fn contained<T>(work: impl FnOnce() -> Result<T, ReloadError>) -> Result<T, ReloadError> {
    let ended = catch_unwind(AssertUnwindSafe(work));
    ended.unwrap_or_else(|panic| Err(ReloadError::Defect(panic_message(&*panic))))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no reason was given").to_owned()
}

/// A hash of names and texts, with their lengths, so that no byte can move from one text to the
/// next unnoticed.
fn fingerprint(sources: &[Source]) -> u128 {
    hashed(sources).digest128()
}

fn hashed(sources: &[Source]) -> Xxh3 {
    let mut hash = Xxh3::new();
    for source in sources {
        for text in [&source.name, &source.text] {
            hash.update(&text.len().to_le_bytes());
            hash.update(text.as_bytes());
        }
    }
    hash
}
