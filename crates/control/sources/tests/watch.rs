//! Real files change, and the active rules follow.
//!
//! No test sleeps: tests wait for a status, as long as it takes. Polling is off unless a test is about it, so that every
//! change is found by an event.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use support::{PATIENCE, WatchedFolder, by_events, domain, write};
use tidegate_rules::Options;
use tidegate_sources::{ChangeDetection, FileSource, ReloadError, Watch, WatchSettings};

#[test]
fn a_file_that_is_rewritten_in_place_is_read_again() {
    let kept = WatchedFolder::file("rules.yaml", "a");
    for name in ["b", "c"] {
        fs::write(kept.path("rules.yaml"), domain(name)).unwrap();
        kept.waits_for(&[name]);
    }
}

#[test]
fn a_file_that_another_is_renamed_over_is_read_again() {
    let kept = WatchedFolder::file("rules.yaml", "a");
    for name in ["b", "c"] {
        fs::write(kept.path(".rules.yaml.new"), domain(name)).unwrap();
        fs::rename(kept.path(".rules.yaml.new"), kept.path("rules.yaml")).unwrap();
        kept.waits_for(&[name]);
    }
    assert_eq!(kept.published(), [["a"], ["b"], ["c"]]);
}

#[test]
fn files_come_and_go_in_a_directory() {
    let kept = WatchedFolder::directory(&["a"]);
    write(&kept.path("rules/b.yaml"), &domain("b"));
    kept.waits_for(&["a", "b"]);
    fs::remove_file(kept.path("rules/a.yaml")).unwrap();
    kept.waits_for(&["b"]);
}

#[test]
fn directories_come_and_go_in_a_directory() {
    let kept = WatchedFolder::directory(&["a"]);
    write(&kept.path("rules/inner/deep/b.yaml"), &domain("b"));
    kept.waits_for(&["a", "b"]);
    write(&kept.path("rules/inner/deep/c.yaml"), &domain("c"));
    kept.waits_for(&["a", "b", "c"]);
    fs::remove_dir_all(kept.path("rules/inner")).unwrap();
    kept.waits_for(&["a"]);
}

#[test]
fn a_directory_that_is_removed_and_made_again_is_still_watched() {
    let kept = WatchedFolder::directory(&["a"]);
    for name in ["b", "c"] {
        fs::remove_dir_all(kept.path("rules")).unwrap();
        let status = kept.waits(|status| status.differs);
        assert!(status.active.is_some(), "the rules in use stay");
        write(&kept.path("rules/first.yaml"), &domain(name));
        kept.waits_for(&[name]);
        write(&kept.path("rules/second.yaml"), &domain("also"));
        kept.waits_for(&[name, "also"]);
    }
}

#[test]
fn a_directory_that_another_takes_the_place_of_is_still_watched() {
    let kept = WatchedFolder::directory(&["a"]);
    write(&kept.path("new/b.yaml"), &domain("b"));
    fs::rename(kept.path("rules"), kept.path("old")).unwrap();
    fs::rename(kept.path("new"), kept.path("rules")).unwrap();
    kept.waits_for(&["b"]);
    write(&kept.path("rules/c.yaml"), &domain("c"));
    kept.waits_for(&["b", "c"]);
}

#[test]
fn rules_may_come_later_than_the_watch() {
    let kept = WatchedFolder::new(|root| FileSource::new([root.join("not/yet/here")]));
    let status = kept.status();
    assert!(status.active.is_none() && status.differs);
    write(&kept.path("not/yet/here/a.yaml"), &domain("a"));
    kept.waits_for(&["a"]);
}

#[test]
fn a_bad_change_is_told_whole_and_the_good_rules_stay() {
    let kept = WatchedFolder::directory(&["a"]);
    write(&kept.path("rules/bad.yaml"), "domain: b\ndescriptors:\n  - key: ''\n  - vlaue: x\n");
    let status = kept.waits(|status| status.differs);
    let failure = status.current_failure().unwrap();
    let ReloadError::Wrong(report) = &failure.error else { panic!("{failure:?}") };
    assert!(report.problems().len() >= 2, "{report}");
    assert!(report.problems()[0].file.ends_with("bad.yaml"));
    let text = failure.error.to_string();
    assert!(text.contains("bad.yaml:3:"), "{text}");
    assert_eq!(status.active.as_ref().unwrap().sources.len(), 1);
    assert_eq!(kept.published(), [["a"]]);
}

#[test]
fn rules_that_are_as_before_again_are_not_published_again() {
    let kept = WatchedFolder::directory(&["a"]);
    write(&kept.path("rules/bad.yaml"), "nonsense");
    kept.waits(|status| status.differs);
    fs::remove_file(kept.path("rules/bad.yaml")).unwrap();
    let status = kept.waits(|status| !status.differs);
    assert_eq!(status.published, 1);
    assert!(status.failure.is_some(), "what went wrong last is still known");
    assert!(status.current_failure().is_none());
}

#[test]
fn the_same_failure_is_told_once_unless_somebody_asks() {
    let kept = WatchedFolder::directory(&["a"]);
    write(&kept.path("rules/bad.yaml"), "nonsense");
    let failed = kept.waits(|status| status.differs);
    // Another file, whose change does cause a load.
    write(&kept.path("rules/notes.txt"), "");
    let again = kept.waits(|status| status.looks > failed.looks);
    assert_eq!((failed.failed, again.failed), (1, 1));
    assert_eq!(kept.reloads().failed, 2);
}

#[test]
fn a_reload_without_a_change_publishes_nothing() {
    let kept = WatchedFolder::directory(&["a"]);
    let before = kept.status();
    write(&kept.path("rules/a.yaml"), &domain("a"));
    for _ in 0..3 {
        assert_eq!(kept.reloads().published, 1);
    }
    assert_eq!(kept.status().active, before.active);
}

#[test]
fn a_file_with_another_name_is_known_by_it_and_not_published() {
    let kept = WatchedFolder::directory(&["a"]);
    fs::rename(kept.path("rules/a.yaml"), kept.path("rules/b.yaml")).unwrap();
    let status = kept.waits(|status| {
        status.active.as_ref().is_some_and(|active| active.sources[0].name.ends_with("b.yaml"))
    });
    assert_eq!(status.published, 1);
}

#[test]
fn a_status_says_which_rules_are_in_use_since_when_and_what_to_doubt() {
    let root = tempfile::tempdir().unwrap();
    let replaces = "domain: a\ndescriptors:\n  - key: k\n    rate_limit:\n      unit: second\n      \
                    requests_per_unit: 1\n      replaces: [{name: nobody}]\n";
    write(&root.path().join("a.yaml"), replaces);
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let watch = Watch::of(FileSource::new([root.path()]), move || date)
        .settings(by_events())
        .start(|_| {})
        .unwrap();
    let status = watch.handle().wait_until(PATIENCE, |status| status.published > 0).unwrap();
    let active = status.active.as_ref().unwrap();
    let snapshot = tidegate_rules::compile(&active.sources, &Options::default()).unwrap();
    assert_eq!(active.version, snapshot.version());
    assert_eq!(active.loaded_at, date);
    assert_eq!(active.sources[0].text, replaces);
    assert_eq!(active.warnings, snapshot.warnings());
    assert_eq!(active.warnings.len(), 1, "{:?}", active.warnings);
}

#[test]
fn rules_are_compiled_as_the_options_say() {
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join("a.yaml"), &domain("a"));
    write(&root.path().join("b.yaml"), &domain("a"));
    let watch = Watch::of(FileSource::new([root.path()]), || SystemTime::UNIX_EPOCH)
        .options(Options { merge_domains: false, ..Options::default() })
        .start(|_| {})
        .unwrap();
    let status = watch.handle().wait_until(PATIENCE, |status| status.looks > 0).unwrap();
    let failure = status.current_failure().unwrap();
    let ReloadError::Wrong(report) = &failure.error else { panic!("{failure:?}") };
    assert_eq!(report.problems()[0].code, "duplicate_domain");
}

#[test]
fn changes_are_found_by_polling_where_that_was_chosen() {
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join("a.yaml"), &domain("a"));
    let settings = WatchSettings {
        detection: ChangeDetection::Polling,
        poll_without_events: Duration::ZERO,
        ..WatchSettings::default()
    };
    let watch = Watch::of(FileSource::new([root.path()]), || SystemTime::UNIX_EPOCH)
        .settings(settings)
        .start(|_| {})
        .unwrap();
    watch.handle().wait_until(PATIENCE, |status| status.published == 1).unwrap();
    write(&root.path().join("b.yaml"), &domain("b"));
    let status = watch.handle().wait_until(PATIENCE, |status| status.published == 2).unwrap();
    assert_eq!(status.polling.as_deref(), Some("polling was chosen"));
}

#[test]
fn rules_are_compiled_and_published_on_a_thread_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join("a.yaml"), &domain("a"));
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let watch = Watch::of(FileSource::new([root.path()]), || SystemTime::UNIX_EPOCH)
        .start(move |_| sender.send(thread::current().id()).unwrap())
        .unwrap();
    assert_ne!(receiver.recv_timeout(PATIENCE).unwrap(), thread::current().id());
    watch.stop();
}

#[test]
fn a_stopped_watch_has_let_go_of_everything() {
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join("a.yaml"), &domain("a"));
    let token = Arc::new(());
    let inside = Arc::clone(&token);
    let watch = Watch::of(FileSource::new([root.path()]), || SystemTime::UNIX_EPOCH)
        .start(move |_| assert!(Arc::strong_count(&inside) > 1))
        .unwrap();
    watch.handle().wait_until(PATIENCE, |status| status.published == 1).unwrap();
    watch.stop();
    assert_eq!(Arc::strong_count(&token), 1);
}

#[cfg(unix)]
#[path = "watch/links.rs"]
mod links;
