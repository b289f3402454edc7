//! Events of the file system, for the directories that a source wants watched.
//!
//! Directories are watched one by one, by their real paths. Any event but an
//! access is a change: which kind a swap of links shows as differs by system,
//! and our own reading is an access. A directory that is replaced has to be
//! watched anew, because the system watches what it was and not its name.
//!
//! When to look after an event, and at what, is not here.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecursiveMode, Watcher};
use parking_lot::Mutex;

use super::shared::{Shared, Signals};
use crate::source::places::Watched;
use crate::source::runtime::identity;

/// The most directories that are watched; the system has a limit for all
/// programs of a user together.
pub const WATCHES_MAX: usize = 4096;

type Handler = Box<dyn FnMut(notify::Result<Event>) + Send>;
pub(super) type Open = fn(Handler) -> notify::Result<Box<dyn Watcher + Send>>;

/// Asks the system for events.
pub(super) fn open(handler: Handler) -> notify::Result<Box<dyn Watcher + Send>> {
    Ok(Box::new(notify::recommended_watcher(handler)?))
}

/// The directories that are watched.
pub(super) struct Notice {
    shared: Arc<Shared>,
    open: Open,
    watcher: Option<Box<dyn Watcher + Send>>,
    /// What the watcher's own thread sorts events by.
    wanted: Arc<Mutex<Watched>>,
    /// What is watched, and what was there when the watch began.
    held: HashMap<PathBuf, Option<(u64, u64)>>,
}

impl fmt::Debug for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Notice").field("held", &self.held).finish_non_exhaustive()
    }
}

/// How far the wish to watch was met.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Followed {
    /// Other directories are watched than before: what happened there until now went unseen.
    pub(super) moved: bool,
    /// Why not everything is watched.
    pub(super) trouble: Option<String>,
}

impl Notice {
    pub(super) fn new(shared: Arc<Shared>, open: Open) -> Self {
        Notice { shared, open, watcher: None, wanted: Arc::default(), held: HashMap::new() }
    }

    /// Watches these directories and no others.
    pub(super) fn follow(&mut self, wanted: Watched) -> Followed {
        // The watcher's library gives up by panicking when its thread is gone.
        let followed = catch_unwind(AssertUnwindSafe(|| self.try_follow(wanted)));
        let trouble = match followed {
            Ok(Ok(followed)) => return followed,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the watcher has stopped".to_owned(),
        };
        // The next look starts afresh.
        self.watcher = None;
        self.held.clear();
        Followed { moved: false, trouble: Some(trouble) }
    }

    /// Forgets what is not watched any more.
    pub(super) fn lose(&mut self, signals: &Signals) {
        let lost = |path: &Path| signals.lost.iter().any(|lost| path.starts_with(lost));
        for (path, place) in &mut self.held {
            if signals.all_lost || lost(path) {
                // No place has this identity, so it is watched anew.
                *place = Some((u64::MAX, u64::MAX));
            }
        }
    }

    fn try_follow(&mut self, wanted: Watched) -> notify::Result<Followed> {
        let directories: BTreeSet<PathBuf> = wanted.directories().map(Path::to_owned).collect();
        // Never held while the watcher is asked: its thread may be waiting for it.
        *self.wanted.lock() = wanted;
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert((self.open)(handler(&self.shared, &self.wanted))?),
        };
        let mut followed = Followed::default();
        self.held.retain(|path, _| {
            let keep = directories.contains(path);
            if !keep {
                // It may be gone, and its watch with it.
                let _ = watcher.unwatch(path);
                followed.moved = true;
            }
            keep
        });
        // In the order of paths, so that a directory is watched before those in it.
        for path in directories {
            // Asked before the watch begins: a later change is then seen by one or the other.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let place = identity(&metadata);
            if self.held.get(&path) == Some(&place) {
                continue;
            }
            if self.held.remove(&path).is_some() {
                let _ = watcher.unwatch(&path);
            }
            if self.held.len() >= WATCHES_MAX {
                followed.trouble = Some(format!("there are more than {WATCHES_MAX} directories"));
                break;
            }
            match watcher.watch(&path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.held.insert(path, place);
                    followed.moved = true;
                }
                // Gone in the meantime, which the directory above tells.
                Err(error) if matches!(error.kind, notify::ErrorKind::PathNotFound) => {}
                Err(error) => followed.trouble = Some(error.to_string()),
            }
        }
        Ok(followed)
    }
}

/// Turns events into signals. Runs on the watcher's thread.
fn handler(shared: &Arc<Shared>, wanted: &Arc<Mutex<Watched>>) -> Handler {
    let (shared, wanted) = (Arc::clone(shared), Arc::clone(wanted));
    Box::new(move |event| match event {
        Ok(event) if event.need_rescan() => shared.signal(everything_is_lost),
        Ok(event) => sort(&event, &shared, &wanted),
        Err(_) => shared.signal(everything_is_lost),
    })
}

const fn everything_is_lost(signals: &mut Signals) {
    signals.changed = true;
    signals.all_lost = true;
}

fn sort(event: &Event, shared: &Shared, wanted: &Mutex<Watched>) {
    let removes = match event.kind {
        EventKind::Access(_) => return,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => true,
        EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Other => false,
    };
    let wanted = wanted.lock();
    let changed = event.paths.iter().any(|path| wanted.concerns(path));
    let mut lost = event.paths.clone();
    lost.retain(|path| removes && wanted.has_below(path));
    drop(wanted);
    if changed || !lost.is_empty() {
        shared.signal(|signals| {
            signals.changed = true;
            signals.lost.extend(lost);
        });
    }
}
