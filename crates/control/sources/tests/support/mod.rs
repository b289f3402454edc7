//! A directory with rules, and a watch that keeps them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tempfile::{NamedTempFile, TempDir};
use tidegate_sources::{FileSource, TextSource, Watch, WatchSettings, WatchStatus};

/// Far longer than anything takes: a wait of this length has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Finds changes by events only, and soon.
pub(crate) fn by_events() -> WatchSettings {
    WatchSettings {
        quiet: Duration::from_millis(10),
        poll: Duration::MAX,
        poll_without_events: Duration::MAX,
        ..WatchSettings::default()
    }
}

/// The text of rules for a domain.
pub(crate) fn domain(name: &str) -> String {
    format!("domain: {name}\n")
}

/// Replaces a file in one step, so that no reader sees half of it.
pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.persist(path).unwrap();
}

/// Rules below a directory of their own, watched.
pub(crate) struct WatchedFolder {
    // Before the directory, so that the watch ends first.
    watch: Watch,
    root: TempDir,
    /// The domains of each snapshot published.
    published: Arc<Mutex<Vec<Vec<String>>>>,
}

impl WatchedFolder {
    /// A watch on a source below an empty directory; has looked once.
    pub(crate) fn new<S: TextSource + Send + 'static>(source: impl FnOnce(&Path) -> S) -> Self {
        WatchedFolder::prepared(|_| {}, source, by_events())
    }

    /// The same, with something in the directory.
    pub(crate) fn prepared<S: TextSource + Send + 'static>(
        prepare: impl FnOnce(&Path),
        source: impl FnOnce(&Path) -> S,
        settings: WatchSettings,
    ) -> Self {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        let published: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
        let list = Arc::clone(&published);
        let watch = Watch::of(source(root.path()), || SystemTime::UNIX_EPOCH)
            .settings(settings)
            .start(move |snapshot| {
                let domains = snapshot.domains().map(|domain| domain.name().to_owned()).collect();
                list.lock().unwrap().push(domains);
            })
            .unwrap();
        let kept = WatchedFolder { watch, root, published };
        kept.waits(|status| status.looks > 0);
        kept
    }

    /// A watch on one file with this domain.
    pub(crate) fn file(file: &str, name: &str) -> Self {
        let prepare = |root: &Path| write(&root.join(file), &domain(name));
        WatchedFolder::prepared(prepare, |root| FileSource::new([root.join(file)]), by_events())
    }

    /// A watch on the directory `rules`, with one file for each of these domains.
    pub(crate) fn directory(names: &[&str]) -> Self {
        let prepare = |root: &Path| {
            for name in names {
                write(&root.join("rules").join(format!("{name}.yaml")), &domain(name));
            }
        };
        WatchedFolder::prepared(prepare, |root| FileSource::new([root.join("rules")]), by_events())
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    pub(crate) fn status(&self) -> Arc<WatchStatus> {
        self.watch.handle().status()
    }

    /// The domains of each snapshot published.
    pub(crate) fn published(&self) -> Vec<Vec<String>> {
        self.published.lock().unwrap().clone()
    }

    /// Waits for a status.
    #[track_caller]
    pub(crate) fn waits(&self, wanted: impl FnMut(&WatchStatus) -> bool) -> Arc<WatchStatus> {
        match self.watch.handle().wait_until(PATIENCE, wanted) {
            Some(status) => status,
            None => panic!("in vain; {:#?}, published {:?}", self.status(), self.published()),
        }
    }

    /// Waits until these domains are in use.
    #[track_caller]
    pub(crate) fn waits_for(&self, domains: &[&str]) {
        self.waits(|status| {
            let active = self.published.lock().unwrap().last().cloned().unwrap_or_default();
            active == domains && !status.differs
        });
    }

    /// Asks for a load, and waits for it.
    #[track_caller]
    pub(crate) fn reloads(&self) -> Arc<WatchStatus> {
        let ticket = self.watch.handle().reload();
        self.waits(|status| status.answers(ticket))
    }
}
