//! One look at the texts: read, compare, put in place.
//!
//! What texts are taken for is a function: [`rules`] compiles them to a snapshot, [`document`]
//! gives them to whoever reads another document.
//!
//! Knows what is in use and what failed last, so that the same again is
//! neither compiled nor told again. A panic on the way, whoever's it is, is a
//! failure like others: the thread that keeps texts fresh must not end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_rules::{Options, Problem, Report, Snapshot, Source, compile};
use xxhash_rust::xxh3::Xxh3;

use super::status::ReloadError;
use crate::source::TextSource;
use crate::source::places::Watched;

/// What a look came to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The texts in use.
    AsActive,
    /// What failed before.
    AsFailed,
    /// The texts in use, under other names.
    Renamed(Loaded),
    /// Other texts, put in place.
    Published(Loaded),
    /// Something that cannot be used.
    Failed(ReloadError),
}

/// Texts that can be used.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) version: u64,
    pub(super) sources: Vec<Source>,
    pub(super) warnings: Vec<Problem>,
}

/// What was seen, kept small to be compared with.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Texts(u128),
    /// There were no texts, for this reason.
    Reason(String),
}

/// Texts that were taken.
#[derive(Debug)]
pub(super) struct Taken {
    version: u64,
    warnings: Vec<Problem>,
    /// Whether they are others than those in use, and were published.
    new: bool,
}

/// Takes texts; is told the version in use.
pub(super) type Take = Box<dyn FnMut(&[Source], Option<u64>) -> Result<Taken, ReloadError> + Send>;

/// Takes texts for rules.
pub(super) fn rules(options: Options, mut publish: impl FnMut(Snapshot) + Send + 'static) -> Take {
    Box::new(move |sources, active| {
        let snapshot = compile(sources, &options).map_err(ReloadError::Wrong)?;
        let (version, warnings) = (snapshot.version(), snapshot.warnings().to_vec());
        let new = active != Some(version);
        if new {
            publish(snapshot);
        }
        Ok(Taken { version, warnings, new })
    })
}

/// Takes texts for a document that somebody else reads and puts in place.
pub(super) fn document(
    mut put_in_place: impl FnMut(&[Source]) -> Result<Vec<Problem>, Report> + Send + 'static,
) -> Take {
    Box::new(move |sources, _| {
        let warnings = put_in_place(sources).map_err(ReloadError::Wrong)?;
        Ok(Taken { version: hashed(sources).digest(), warnings, new: true })
    })
}

/// Looks at the texts of a source.
pub(super) struct Attempts<S> {
    source: S,
    take: Take,
    active: Option<(Seen, u64)>,
    failed: Option<Seen>,
}

impl<S: TextSource> Attempts<S> {
    pub(super) fn new(source: S, take: Take) -> Self {
        Attempts { source, take, active: None, failed: None }
    }

    /// Where changes show; nowhere if the source breaks.
    pub(super) fn watched(&self) -> Watched {
        catch_unwind(AssertUnwindSafe(|| self.source.watched())).unwrap_or_default()
    }

    /// Counts these texts as in use.
    pub(super) fn adopt(&mut self, sources: Vec<Source>) -> Loaded {
        let version = hashed(&sources).digest();
        self.active = Some((Seen::Texts(fingerprint(&sources)), version));
        Loaded { version, sources, warnings: Vec::new() }
    }

    /// Looks once. What failed before is tried again only if `again` says so.
    pub(super) fn look(&mut self, again: bool) -> Outcome {
        let sources = match contained(|| self.source.load().map_err(ReloadError::Load)) {
            Ok(sources) => sources,
            Err(error) => return self.fail(Seen::Reason(error.to_string()), error, again),
        };
        let seen = Seen::Texts(fingerprint(&sources));
        if self.active.as_ref().is_some_and(|(active, _)| *active == seen) {
            self.failed = None;
            return Outcome::AsActive;
        }
        if self.failed.as_ref() == Some(&seen) && !again {
            return Outcome::AsFailed;
        }
        match self.take_new(sources) {
            Ok((loaded, published)) => {
                self.active = Some((seen, loaded.version));
                self.failed = None;
                if published { Outcome::Published(loaded) } else { Outcome::Renamed(loaded) }
            }
            Err(error) => self.fail(seen, error, true),
        }
    }

    fn fail(&mut self, seen: Seen, error: ReloadError, again: bool) -> Outcome {
        if self.failed.as_ref() == Some(&seen) && !again {
            return Outcome::AsFailed;
        }
        self.failed = Some(seen);
        Outcome::Failed(error)
    }

    /// The texts, and whether they were put in place: those in use are not.
    fn take_new(&mut self, sources: Vec<Source>) -> Result<(Loaded, bool), ReloadError> {
        let active = self.active.as_ref().map(|(_, version)| *version);
        let Taken { version, warnings, new } = contained(|| (self.take)(&sources, active))?;
        Ok((Loaded { version, sources, warnings }, new))
    }
}

/// What the work says; a panic is said as a defect.
fn contained<T>(work: impl FnOnce() -> Result<T, ReloadError>) -> Result<T, ReloadError> {
    let ended = catch_unwind(AssertUnwindSafe(work));
    ended.unwrap_or_else(|panic| Err(ReloadError::Defect(words(&*panic))))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no reason was given").to_owned()
}

/// A number that names and texts have for themselves. Lengths go in as well, so
/// that nothing can move from one text to the next.
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
