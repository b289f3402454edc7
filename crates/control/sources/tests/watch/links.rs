//! Links are swapped, as Kubernetes and deployments do it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_sources::{
    ChangeDetection, DotFiles, FileSource, RuntimeChanges, RuntimeSource, TextSource, WatchSettings,
};

use crate::support::{WatchedFolder, by_events, domain, write};

/// Puts a link in another's place in one step.
fn swap(link: &Path, target: &str) {
    let new = link.with_extension("tmp");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

/// Writes a volume as the kubelet does: a directory with a date, a link to it
/// that is swapped, links to the files behind that, and then the old directory goes.
fn mount(volume: &Path, date: &str, files: &[(&str, &str)]) {
    let data = volume.join("..data");
    let old = fs::read_link(&data).ok();
    for (file, name) in files {
        write(&volume.join(date).join(file), &domain(name));
    }
    symlink(date, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), &data).unwrap();
    for (file, _) in files {
        let link = volume.join(file);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(file), link).unwrap();
        }
    }
    if let Some(old) = old {
        for entry in fs::read_dir(volume.join(&old)).unwrap() {
            let file = entry.unwrap().file_name();
            if !files.iter().any(|(kept, _)| file == *kept) {
                fs::remove_file(volume.join(file)).unwrap();
            }
        }
        fs::remove_dir_all(volume.join(old)).unwrap();
    }
}

#[test]
fn a_mounted_volume_is_followed_through_every_swap() {
    let prepare = |root: &Path| mount(root, "..1", &[("api.yaml", "a")]);
    let kept = WatchedFolder::prepared(prepare, |root| FileSource::new([root]), by_events());
    mount(&kept.path(""), "..2", &[("api.yaml", "b")]);
    kept.waits_for(&["b"]);
    mount(&kept.path(""), "..3", &[("api.yaml", "c"), ("more.yaml", "d")]);
    kept.waits_for(&["c", "d"]);
    mount(&kept.path(""), "..4", &[("more.yaml", "e")]);
    kept.waits_for(&["e"]);
    assert_eq!(kept.status().polling, None);
}

#[test]
fn one_file_of_a_mounted_volume_is_followed_through_every_swap() {
    let prepare = |root: &Path| mount(root, "..1", &[("api.yaml", "a")]);
    let kept = WatchedFolder::prepared(
        prepare,
        |root| FileSource::new([root.join("api.yaml")]),
        by_events(),
    );
    for (date, name) in [("..2", "b"), ("..3", "c"), ("..4", "d")] {
        mount(&kept.path(""), date, &[("api.yaml", name)]);
        kept.waits_for(&[name]);
    }
    assert_eq!(kept.published(), [["a"], ["b"], ["c"], ["d"]]);
}

#[test]
fn a_file_behind_a_link_is_watched_where_it_is() {
    let prepare = |root: &Path| {
        write(&root.join("elsewhere/shared.txt"), &domain("a"));
        write(&root.join("rules/own.yaml"), &domain("own"));
        symlink("../elsewhere/shared.txt", root.join("rules/shared.yaml")).unwrap();
    };
    let kept =
        WatchedFolder::prepared(prepare, |root| FileSource::new([root.join("rules")]), by_events());
    fs::write(kept.path("elsewhere/shared.txt"), domain("b")).unwrap();
    kept.waits_for(&["own", "b"]);
}

#[test]
fn a_link_anywhere_on_the_way_may_be_swapped() {
    let prepare = |root: &Path| {
        write(&root.join("v1/etc/rules.yaml"), &domain("a"));
        write(&root.join("v2/etc/rules.yaml"), &domain("b"));
        symlink("v1", root.join("current")).unwrap();
    };
    let source = |root: &Path| FileSource::new([root.join("current/etc/rules.yaml")]);
    let kept = WatchedFolder::prepared(prepare, source, by_events());
    swap(&kept.path("current"), "v2");
    kept.waits_for(&["b"]);
    fs::write(kept.path("v2/etc/rules.yaml"), domain("c")).unwrap();
    kept.waits_for(&["c"]);
    swap(&kept.path("current"), "v1");
    kept.waits_for(&["a"]);
}

/// `current -> v1`, and a second version beside it.
fn two_versions(root: &Path) {
    write(&root.join("v1/ratelimit/config/rules"), &domain("a"));
    write(&root.join("v2/ratelimit/config/rules"), &domain("b"));
    symlink("v1", root.join("current")).unwrap();
}

fn runtime(root: &Path, changes: RuntimeChanges) -> RuntimeSource {
    RuntimeSource {
        root: root.join("current"),
        subdirectory: PathBuf::from("ratelimit"),
        app_directory: PathBuf::from("config"),
        dot_files: DotFiles::Read,
        changes,
    }
}

#[test]
fn a_runtime_root_is_read_again_when_its_link_is_swapped_and_not_before() {
    let root_only = |root: &Path| runtime(root, RuntimeChanges::Root);
    let kept = WatchedFolder::prepared(two_versions, root_only, by_events());
    let watched = root_only(&kept.path("")).watched();
    assert!(watched.concerns(&kept.path("").canonicalize().unwrap().join("current")));
    write(&kept.path("v1/ratelimit/config/rules"), &domain("unseen"));
    swap(&kept.path("current"), "v2");
    kept.waits_for(&["b"]);
    swap(&kept.path("current"), "v1");
    kept.waits_for(&["unseen"]);
    assert_eq!(kept.published(), [["a"], ["b"], ["unseen"]]);
}

#[test]
fn polling_a_runtime_root_looks_at_its_link_only() {
    let settings = WatchSettings {
        detection: ChangeDetection::Polling,
        poll_without_events: Duration::ZERO,
        ..WatchSettings::default()
    };
    let root_only = |root: &Path| runtime(root, RuntimeChanges::Root);
    let kept = WatchedFolder::prepared(two_versions, root_only, settings);
    write(&kept.path("v1/ratelimit/config/rules"), &domain("unseen"));
    let before = kept.status().looks;
    kept.waits(|status| status.looks > before + 2);
    assert_eq!(kept.published(), [["a"]]);
    swap(&kept.path("current"), "v2");
    kept.waits_for(&["b"]);
}

#[test]
fn a_runtime_root_that_is_not_watched_as_a_whole_is_read_at_every_change() {
    let everything = |root: &Path| runtime(root, RuntimeChanges::Directory);
    let kept = WatchedFolder::prepared(two_versions, everything, by_events());
    write(&kept.path("v1/ratelimit/config/more/rules"), &domain("c"));
    kept.waits_for(&["c", "a"]);
    fs::remove_dir_all(kept.path("v1/ratelimit/config/more")).unwrap();
    fs::remove_file(kept.path("v1/ratelimit/config/rules")).unwrap();
    kept.waits_for(&[]);
    swap(&kept.path("current"), "v2");
    kept.waits_for(&["b"]);
}

#[test]
fn a_volume_mounted_as_the_runtime_directory_is_followed_through_every_swap() {
    let prepare = |root: &Path| mount(&root.join("current/ratelimit/config"), "..1", &[("x", "a")]);
    let everything = |root: &Path| runtime(root, RuntimeChanges::Directory);
    let kept = WatchedFolder::prepared(prepare, everything, by_events());
    for (date, name) in [("..2", "b"), ("..3", "c")] {
        mount(&kept.path("current/ratelimit/config"), date, &[("x", name)]);
        kept.waits_for(&[name]);
    }
    assert_eq!(kept.published(), [["a"], ["b"], ["c"]]);
}
