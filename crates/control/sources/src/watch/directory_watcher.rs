//! File system events for the directories of a source.
//!
//! Directories are watched one by one, by their real paths. Any event except an access is a
//! change: the kind of event for a swap of links differs by system, and our own reads are
//! accesses. A replaced directory must be watched again, because the system watches its inode
//! and not its name.
//!
//! The [schedule](super::schedule) decides when to load after an event.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecursiveMode, Watcher};
use parking_lot::Mutex;

use super::shared::{SharedState, Signals};
use crate::source::runtime::identity;
use crate::source::watched_paths::WatchedPaths;

/// The most directories that are watched: the system limits the watches of a user.
pub const WATCHES_MAX: usize = 4096;

type Handler = Box<dyn FnMut(notify::Result<Event>) + Send>;
pub(super) type Open = fn(Handler) -> notify::Result<Box<dyn Watcher + Send>>;

/// Opens a watcher of the system.
#[cfg(target_os = "linux")]
pub(super) fn open(handler: Handler) -> notify::Result<Box<dyn Watcher + Send>> {
    use super::inotify_watcher::InotifyWatcher;
    Ok(Box::new(InotifyWatcher::new(handler, notify::Config::default())?))
}

/// Opens a watcher of the system.
#[cfg(not(target_os = "linux"))]
pub(super) fn open(handler: Handler) -> notify::Result<Box<dyn Watcher + Send>> {
    Ok(Box::new(notify::recommended_watcher(handler)?))
}

/// The watched directories.
pub(super) struct DirectoryWatcher {
    shared: Arc<SharedState>,
    open: Open,
    watcher: Option<Box<dyn Watcher + Send>>,
    /// The paths by which the watcher's thread filters events.
    wanted: Arc<Mutex<WatchedPaths>>,
    /// Watched directories, with their identity when the watch began.
    held: HashMap<PathBuf, Option<(u64, u64)>>,
}

/// The result of [`DirectoryWatcher::follow`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FollowResult {
    /// The set of directories changed, so earlier changes there were not seen.
    pub(super) moved: bool,
    /// Why some directories are not watched.
    pub(super) trouble: Option<String>,
}

impl DirectoryWatcher {
    pub(super) fn new(shared: Arc<SharedState>, open: Open) -> Self {
        DirectoryWatcher {
            shared,
            open,
            watcher: None,
            wanted: Arc::default(),
            held: HashMap::new(),
        }
    }

    /// Watches these directories and no others.
    pub(super) fn follow(&mut self, wanted: WatchedPaths) -> FollowResult {
        // The library panics when its thread is gone.
        let followed = catch_unwind(AssertUnwindSafe(|| self.try_follow(wanted)));
        let trouble = match followed {
            Ok(Ok(followed)) => return followed,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the watcher has stopped".to_owned(),
        };
        // The next call opens a new watcher.
        self.watcher = None;
        self.held.clear();
        FollowResult { moved: false, trouble: Some(trouble) }
    }

    /// Marks lost directories, so that they are watched again.
    pub(super) fn mark_lost(&mut self, signals: &Signals) {
        let lost = |path: &Path| signals.lost.iter().any(|lost| path.starts_with(lost));
        for (path, identity) in &mut self.held {
            if signals.all_lost || lost(path) {
                // No directory has this identity, so it is watched again.
                *identity = Some((u64::MAX, u64::MAX));
            }
        }
    }

    fn try_follow(&mut self, wanted: WatchedPaths) -> notify::Result<FollowResult> {
        let directories: BTreeSet<PathBuf> = wanted.directories().map(Path::to_owned).collect();
        // Released before the watcher is called: its thread may wait for this lock.
        *self.wanted.lock() = wanted;
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert((self.open)(handler(&self.shared, &self.wanted))?),
        };
        let mut followed = FollowResult::default();
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
            // Read before the watch begins, so that a later change is seen either way.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let found = identity(&metadata);
            if self.held.get(&path) == Some(&found) {
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
                    self.held.insert(path, found);
                    followed.moved = true;
                }
                // Removed meanwhile: the directory above has an event for that.
                Err(error) if matches!(error.kind, notify::ErrorKind::PathNotFound) => {}
                Err(error) => followed.trouble = Some(error.to_string()),
            }
        }
        Ok(followed)
    }
}

/// Turns events into signals. Runs on the watcher's thread.
fn handler(shared: &Arc<SharedState>, wanted: &Arc<Mutex<WatchedPaths>>) -> Handler {
    let (shared, wanted) = (Arc::clone(shared), Arc::clone(wanted));
    Box::new(move |event| match event {
        Ok(event) if event.need_rescan() => shared.signal(mark_all_lost),
        Ok(event) => filter(&event, &shared, &wanted),
        Err(_) => shared.signal(mark_all_lost),
    })
}

const fn mark_all_lost(signals: &mut Signals) {
    signals.changed = true;
    signals.all_lost = true;
}

fn filter(event: &Event, shared: &SharedState, wanted: &Mutex<WatchedPaths>) {
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
