//! Events of directories from inotify, for changes only.
//!
//! `notify` asks the kernel for opened files too and drops these events afterwards, so that its thread wakes whenever
//! a file of a watched directory is read: in a document root or a shared `/etc`, for every request of another program.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use notify::event::{
    CreateKind, DataChange, Flag, MetadataKind, ModifyKind, RemoveKind, RenameMode,
};
use notify::{Config, Error, Event, EventHandler, EventKind, RecursiveMode, Watcher, WatcherKind};
use parking_lot::Mutex;

/// What is reported. Changed permissions can make a file readable.
const CHANGES: WatchMask = WatchMask::ATTRIB
    .union(WatchMask::CREATE)
    .union(WatchMask::DELETE)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MODIFY)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO);

/// Room for a hundred events with usual names; more are read in turn.
const BUFFER_BYTES: usize = 4_096;

/// Exists everywhere and is no directory of rules. The end of its watch wakes the thread.
const WAKE_PATH: &str = "/dev/null";

/// Watched directories by the kernel's number for their watch.
type Directories = Arc<Mutex<HashMap<i32, PathBuf>>>;

/// Watches directories, not recursively.
#[derive(Debug)]
pub(super) struct InotifyWatcher {
    watches: Watches,
    by_path: HashMap<PathBuf, WatchDescriptor>,
    directories: Directories,
    stopped: Arc<AtomicBool>,
    wake: Option<WatchDescriptor>,
}

impl Watcher for InotifyWatcher {
    fn new<F: EventHandler>(handler: F, _: Config) -> notify::Result<Self> {
        let inotify = Inotify::init().map_err(Error::io)?;
        let mut watches = inotify.watches();
        let wake = watches.add(WAKE_PATH, WatchMask::DELETE_SELF).map_err(Error::io)?;
        let directories = Directories::default();
        let stopped = Arc::new(AtomicBool::new(false));
        let reader = EventReader {
            inotify,
            directories: Arc::clone(&directories),
            stopped: Arc::clone(&stopped),
            handler,
        };
        let thread = thread::Builder::new().name("tidegate-inotify".to_owned());
        thread.spawn(move || reader.run()).map_err(Error::io)?;
        let by_path = HashMap::new();
        Ok(InotifyWatcher { watches, by_path, directories, stopped, wake: Some(wake) })
    }

    fn watch(&mut self, path: &Path, _: RecursiveMode) -> notify::Result<()> {
        // Locked until the path is known: the first event may come before `add` returns.
        let mut directories = self.directories.lock();
        let added = self.watches.add(path, CHANGES);
        let watch = added.map_err(|error| watch_error(error).add_path(path.to_owned()))?;
        directories.insert(watch.get_watch_descriptor_id(), path.to_owned());
        self.by_path.insert(path.to_owned(), watch);
        Ok(())
    }

    fn unwatch(&mut self, path: &Path) -> notify::Result<()> {
        let watch = self.by_path.remove(path).ok_or_else(Error::watch_not_found)?;
        self.directories.lock().remove(&watch.get_watch_descriptor_id());
        self.watches.remove(watch).map_err(Error::io)
    }

    fn kind() -> WatcherKind {
        WatcherKind::Inotify
    }
}

impl Drop for InotifyWatcher {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(wake) = self.wake.take() {
            // Fails only for a watch that does not exist.
            let _ = self.watches.remove(wake);
        }
    }
}

fn watch_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::path_not_found(),
        // The user has no more watches.
        io::ErrorKind::StorageFull => Error::new(notify::ErrorKind::MaxFilesWatch),
        _ => Error::io(error),
    }
}

/// The thread that reads events.
struct EventReader<F> {
    inotify: Inotify,
    directories: Directories,
    stopped: Arc<AtomicBool>,
    handler: F,
}

impl<F: EventHandler> EventReader<F> {
    fn run(mut self) {
        let mut buffer = [0; BUFFER_BYTES];
        while !self.stopped.load(Ordering::Acquire) {
            let events = match self.inotify.read_events_blocking(&mut buffer) {
                Ok(events) => events,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.handler.handle_event(Err(Error::io(error))),
            };
            for event in events {
                if event.mask.contains(EventMask::Q_OVERFLOW) {
                    let lost = Event::new(EventKind::Other).set_flag(Flag::Rescan);
                    self.handler.handle_event(Ok(lost));
                    continue;
                }
                let directory =
                    self.directories.lock().get(&event.wd.get_watch_descriptor_id()).cloned();
                let (Some(directory), Some(kind)) = (directory, kind_of(event.mask)) else {
                    continue;
                };
                let path =
                    event.name.map_or_else(|| directory.clone(), |name| directory.join(name));
                self.handler.handle_event(Ok(Event::new(kind).add_path(path)));
            }
        }
    }
}

/// The kind of a change; `None` for the end of a watch.
fn kind_of(mask: EventMask) -> Option<EventKind> {
    let kinds = [
        (EventMask::CREATE, EventKind::Create(CreateKind::Any)),
        (EventMask::DELETE, EventKind::Remove(RemoveKind::Any)),
        (EventMask::DELETE_SELF, EventKind::Remove(RemoveKind::Any)),
        (EventMask::UNMOUNT, EventKind::Remove(RemoveKind::Any)),
        (EventMask::MOVE_SELF, EventKind::Modify(ModifyKind::Name(RenameMode::From))),
        (EventMask::MOVED_FROM, EventKind::Modify(ModifyKind::Name(RenameMode::From))),
        (EventMask::MOVED_TO, EventKind::Modify(ModifyKind::Name(RenameMode::To))),
        (EventMask::MODIFY, EventKind::Modify(ModifyKind::Data(DataChange::Any))),
        (EventMask::ATTRIB, EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any))),
    ];
    kinds.into_iter().find(|(bit, _)| mask.contains(*bit)).map(|(_, kind)| kind)
}
