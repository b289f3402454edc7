//! Changes of a document that is not rules, and of the files that it names.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "rules are not what this is about")]
mod support;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use support::{PATIENCE, by_events, write};
use tempfile::TempDir;
use tidegate_rules::{Options, Report, Source, compile};
use tidegate_sources::{DocumentSource, NamedFiles, ReloadError, TextSource, Watch, WatchStatus};

/// A watch on `document`, which names `keys`. A document that contains `bad` is invalid.
struct WatchedFolder {
    // Before the directory, so that the watch ends first.
    watch: Watch,
    root: TempDir,
    in_place: Arc<Mutex<Vec<String>>>,
}

/// A report, which only a compiler makes.
fn report() -> Report {
    compile(&[Source::new("document", "descriptors: nonsense")], &Options::default()).unwrap_err()
}

impl WatchedFolder {
    fn new(prepare: impl FnOnce(&Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        let in_place: Arc<Mutex<Vec<String>>> = Arc::default();
        let (list, named) = (Arc::clone(&in_place), NamedFiles::default());
        let keys = root.path().join("keys");
        let source = DocumentSource::new(root.path().join("document"), named.clone());
        let watch = Watch::of(source, || SystemTime::UNIX_EPOCH)
            .settings(by_events())
            .start_document(move |sources| {
                named.set(vec![keys.clone()]);
                let text = &sources[0].text;
                if text.contains("bad") || fs::read(&keys).unwrap_or_default() == b"bad" {
                    return Err(report());
                }
                list.lock().unwrap().push(text.clone());
                Ok(Vec::new())
            })
            .unwrap();
        let kept = WatchedFolder { watch, root, in_place };
        kept.waits(|status| status.looks > 0);
        kept
    }

    #[track_caller]
    fn waits(&self, wanted: impl FnMut(&WatchStatus) -> bool) -> Arc<WatchStatus> {
        self.watch.handle().wait_until(PATIENCE, wanted).expect("it came about")
    }

    fn write(&self, name: &str, text: &str) {
        write(&self.root.path().join(name), text);
    }

    fn last(&self) -> Option<String> {
        self.in_place.lock().unwrap().last().cloned()
    }
}

#[test]
fn a_changed_document_is_put_in_place_and_a_bad_one_is_told() {
    let kept = WatchedFolder::new(|root| write(&root.join("document"), "one"));
    kept.write("document", "two");
    kept.waits(|_| kept.last().as_deref() == Some("two"));
    kept.write("document", "bad");
    let status = kept.waits(|status| status.differs);
    assert!(matches!(status.current_failure().unwrap().error, ReloadError::Wrong(_)));
    assert_eq!(status.active.as_ref().unwrap().sources[0].text, "two");
    fs::remove_file(kept.root.path().join("document")).unwrap();
    let status = kept.waits(|status| status.failed >= 2);
    assert!(status.failure.as_ref().unwrap().error.to_string().ends_with("does not exist"));
    kept.write("document", "three");
    kept.waits(|status| !status.differs);
    assert_eq!(kept.last().as_deref(), Some("three"));
}

#[test]
fn a_change_of_a_file_that_it_names_is_a_change_and_mends_what_failed() {
    let kept = WatchedFolder::new(|root| write(&root.join("document"), "one"));
    kept.write("keys", "bad");
    kept.waits(|status| status.differs);
    kept.write("keys", "good");
    kept.waits(|status| !status.differs);
    let before = kept.in_place.lock().unwrap().len();
    kept.write("keys", "other");
    kept.waits(|_| kept.in_place.lock().unwrap().len() > before);
}

#[test]
fn a_document_behind_a_link_that_is_swapped_is_followed() {
    let swap = |root: &Path, to: &str| {
        std::os::unix::fs::symlink(to, root.join("..tmp")).unwrap();
        fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
    };
    let kept = WatchedFolder::new(|root| {
        write(&root.join("..1/document"), "one");
        swap(root, "..1");
        std::os::unix::fs::symlink("..data/document", root.join("document")).unwrap();
    });
    assert_eq!(kept.last().as_deref(), Some("one"));
    kept.write("..2/document", "two");
    swap(kept.root.path(), "..2");
    kept.waits(|_| kept.last().as_deref() == Some("two"));
}

#[test]
fn a_document_that_is_in_use_already_is_not_put_in_place_again_until_it_changes() {
    let root = tempfile::tempdir().unwrap();
    let (path, keys) = (root.path().join("document"), root.path().join("keys"));
    write(&path, "one");
    write(&keys, "first");
    let named = NamedFiles::default();
    named.set(vec![keys.clone()]);
    let source = DocumentSource::new(&path, named);
    let in_use = source.load().unwrap();
    let in_place = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&in_place);
    #[expect(clippy::disallowed_methods, reason = "the watch wants a date")]
    let watch = Watch::of(source, SystemTime::now).settings(by_events()).in_use(in_use);
    let put = move |sources: &[Source]| {
        list.lock().unwrap().push(sources[0].text.clone());
        Ok(Vec::new())
    };
    let watch = watch.start_document(put).unwrap();
    let first = watch.handle().wait_until(PATIENCE, |status| status.looks > 0).unwrap();
    assert_eq!((first.published, first.active.as_ref().unwrap().sources.len()), (1, 2));
    assert!(in_place.lock().unwrap().is_empty(), "nobody was asked to put it in place");
    write(&keys, "second one");
    watch.handle().wait_until(PATIENCE, |status| status.published > 1).unwrap();
    assert_eq!(in_place.lock().unwrap().first().map(String::as_str), Some("one"));
}
