use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use notify::{ErrorKind, EventHandler, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tidegate_rules::Source;

use super::shared::Signals;
use super::*;
use crate::source::LoadError;
use crate::source::watched_paths::WatchedPaths;

const PATIENCE: Duration = Duration::from_secs(60);

/// Rules that a test holds in its hand.
#[derive(Clone, Default)]
struct TestSource {
    text: Arc<Mutex<String>>,
    breaks: Arc<AtomicBool>,
    watched: WatchedPaths,
}

impl TestSource {
    fn set(&self, text: &str) {
        *self.text.lock() = text.to_owned();
    }
}

impl TextSource for TestSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        assert!(!self.breaks.load(Ordering::Relaxed), "the source is broken");
        Ok(vec![Source::new("held", self.text.lock().as_str())])
    }

    fn watched(&self) -> WatchedPaths {
        self.watched.clone()
    }
}

fn held(text: &str) -> TestSource {
    let held = TestSource::default();
    held.set(text);
    held
}

fn of(held: &TestSource) -> WatchBuilder<TestSource> {
    Watch::of(held.clone(), || SystemTime::UNIX_EPOCH)
}

fn reload(watch: &Watch) -> Arc<WatchStatus> {
    let ticket = watch.handle().reload();
    watch.handle().wait_until(PATIENCE, |status| status.answers(ticket)).expect("it looks")
}

/// A watcher that the system has no room for.
struct NoRoom;

impl Watcher for NoRoom {
    fn new<F: EventHandler>(_: F, _: notify::Config) -> notify::Result<Self> {
        Ok(NoRoom)
    }

    fn watch(&mut self, _: &std::path::Path, _: RecursiveMode) -> notify::Result<()> {
        Err(notify::Error::new(ErrorKind::MaxFilesWatch))
    }

    fn unwatch(&mut self, _: &std::path::Path) -> notify::Result<()> {
        Ok(())
    }

    fn kind() -> notify::WatcherKind {
        notify::WatcherKind::NullWatcher
    }
}

/// Polls without a pause once there are no events, and otherwise never.
fn only_polling_helps() -> WatchSettings {
    WatchSettings {
        poll: Duration::MAX,
        poll_without_events: Duration::ZERO,
        ..WatchSettings::default()
    }
}

fn finds_a_change_by_polling(open: Open) -> (Arc<WatchStatus>, Vec<String>) {
    let root = tempfile::tempdir().expect("a directory");
    let mut held = held("domain: a");
    held.watched.add_directory(root.path());
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let watch = of(&held).settings(only_polling_helps()).events_from(open);
    let watch = watch.report(move |event| heard.lock().push(format!("{event:?}")));
    let watch = watch.start(|_| {}).expect("a thread");
    watch.handle().wait_until(PATIENCE, |status| status.published == 1).expect("it starts");
    held.set("domain: b");
    let status = watch.handle().wait_until(PATIENCE, |status| status.published == 2);
    watch.stop();
    let events = events.lock().clone();
    (status.expect("the change is found"), events)
}

#[test]
fn changes_are_polled_for_where_no_events_can_be_had() {
    let (status, events) =
        finds_a_change_by_polling(|_| Err(notify::Error::generic("no inotify instance is left")));
    assert_eq!(status.polling.as_deref(), Some("no inotify instance is left"));
    let told = events.iter().filter(|event| event.starts_with("Polling")).count();
    assert_eq!(told, 1, "{events:?}");
}

#[test]
fn changes_are_polled_for_where_no_more_directories_can_be_watched() {
    let (status, _) = finds_a_change_by_polling(|_| Ok(Box::new(NoRoom)));
    let why = status.polling.as_deref().unwrap_or_default();
    assert!(why.contains("OS file watch limit reached"), "{why}");
}

#[test]
fn changes_are_polled_for_where_the_watchers_thread_has_died() {
    let (status, _) = finds_a_change_by_polling(|_| panic!("its thread is gone"));
    assert_eq!(status.polling.as_deref(), Some("the watcher has stopped"));
}

#[test]
fn a_directory_that_cannot_be_watched_is_no_reason_to_look_at_it_again() {
    let root = tempfile::tempdir().expect("a directory");
    let mut wanted = WatchedPaths::new();
    wanted.add_directory(root.path());
    let mut notice = DirectoryWatcher::new(Arc::default(), |_| Ok(Box::new(NoRoom)));
    for _ in 0..2 {
        let followed = notice.follow(wanted.clone());
        assert!(!followed.moved && followed.trouble.is_some(), "{followed:?}");
    }
}

#[test]
fn a_directory_that_is_watched_already_is_no_reason_to_look_at_it_again() {
    let root = tempfile::tempdir().expect("a directory");
    let mut wanted = WatchedPaths::new();
    wanted.add_directory(root.path());
    let mut notice = DirectoryWatcher::new(Arc::default(), directory_watcher::open);
    let moved: Vec<bool> = (0..3).map(|_| notice.follow(wanted.clone()).moved).collect();
    assert_eq!(moved, [true, false, false]);
    let everything = Signals { all_lost: true, ..Signals::default() };
    notice.mark_lost(&everything);
    assert!(notice.follow(wanted).moved, "what was lost is watched anew");
    assert!(notice.follow(WatchedPaths::new()).moved, "nothing is watched any more");
}

#[test]
fn opening_and_reading_a_file_wakes_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let path = |name: &str| root.path().join(name);
    std::fs::write(path("read"), "text").expect("a file");
    let (sender, events) = std::sync::mpsc::sync_channel(1_000);
    let handler = move |event: notify::Result<notify::Event>| {
        let event = event.expect("no error");
        let _ = sender.send(event.paths);
    };
    let mut watcher = directory_watcher::open(Box::new(handler)).expect("a watcher");
    watcher.watch(root.path(), RecursiveMode::NonRecursive).expect("a watch");
    for _ in 0..100 {
        assert_eq!(std::fs::read_to_string(path("read")).expect("a text"), "text");
        assert_eq!(std::fs::read_dir(root.path()).expect("a listing").count(), 1);
    }
    std::fs::write(path("written"), "text").expect("a file");
    // Events come in order: those of the reads would be first.
    let first = events.recv_timeout(PATIENCE).expect("an event");
    assert_eq!(first, [path("written")]);
}

#[test]
fn writes_moves_deletions_and_permissions_are_events() {
    let root = tempfile::tempdir().expect("a directory");
    let path = |name: &str| root.path().join(name);
    for name in ["a", "b", "c", "d"] {
        std::fs::write(path(name), "").expect("a file");
    }
    let (sender, events) = std::sync::mpsc::sync_channel(1_000);
    let handler = move |event: notify::Result<notify::Event>| {
        let _ = sender.send(event.expect("no error").paths);
    };
    let mut watcher = directory_watcher::open(Box::new(handler)).expect("a watcher");
    watcher.watch(root.path(), RecursiveMode::NonRecursive).expect("a watch");
    let next = || events.recv_timeout(PATIENCE).expect("an event");
    let changes: [(&str, &dyn Fn()); 4] = [
        ("a", &|| std::fs::write(path("a"), "text").expect("a file")),
        ("b", &|| {
            let permissions = std::fs::metadata(path("b")).expect("a file").permissions();
            std::fs::set_permissions(path("b"), permissions).expect("permissions");
        }),
        ("moved", &|| std::fs::rename(path("c"), path("moved")).expect("a file")),
        ("d", &|| std::fs::remove_file(path("d")).expect("a file")),
    ];
    for (name, change) in changes {
        change();
        while next() != [path(name)] {}
    }
}

#[test]
fn a_source_that_panics_is_a_failure_and_not_the_end() {
    let held = held("domain: a");
    let watch = of(&held).start(|_| {}).expect("a thread");
    reload(&watch);
    held.breaks.store(true, Ordering::Relaxed);
    let status = reload(&watch);
    let failure = status.current_failure().map(|failure| failure.error.to_string());
    assert_eq!(failure.as_deref(), Some("internal error: the source is broken"));
    held.breaks.store(false, Ordering::Relaxed);
    let status = reload(&watch);
    assert!(!status.differs);
    assert_eq!((status.published, status.failed), (1, 1));
}

#[test]
fn rules_that_could_not_be_published_are_not_in_use() {
    let held = held("domain: a");
    let refuses = Arc::new(AtomicBool::new(true));
    let refusing = Arc::clone(&refuses);
    let watch = of(&held)
        .start(move |_| assert!(!refusing.load(Ordering::Relaxed), "no room for rules"))
        .expect("a thread");
    let status = reload(&watch);
    assert!(status.active.is_none() && status.differs);
    refuses.store(false, Ordering::Relaxed);
    let status = reload(&watch);
    assert!(status.active.is_some() && !status.differs);
}

#[test]
fn a_report_that_panics_does_not_end_the_watch() {
    let held = held("domain: a");
    let watch = of(&held).report(|event| panic!("cannot write {event:?}"));
    let watch = watch.start(|_| {}).expect("a thread");
    reload(&watch);
    held.set("domain: b");
    assert_eq!(reload(&watch).published, 2);
}

#[test]
fn nobody_waits_for_a_watch_that_has_ended() {
    let watch = of(&held("domain: a")).start(|_| {}).expect("a thread");
    let handle = watch.handle().clone();
    watch.stop();
    assert!(handle.wait_until(Duration::MAX, |status| status.published > 1).is_none());
    let ticket = handle.reload();
    assert!(!handle.status().answers(ticket));
}

#[test]
fn a_watch_may_be_dropped_while_it_publishes() {
    let place: Arc<Mutex<Option<Watch>>> = Arc::default();
    let inside = Arc::clone(&place);
    let held = held("domain: a");
    let mut first = true;
    let watch = of(&held).start(move |_| {
        if !std::mem::take(&mut first) {
            drop(inside.lock().take());
        }
    });
    let watch = watch.expect("a thread");
    reload(&watch);
    let handle = watch.handle().clone();
    *place.lock() = Some(watch);
    held.set("domain: b");
    handle.reload();
    // Ends, because the watch does.
    assert!(handle.wait_until(Duration::MAX, |_| false).is_none());
}
