//! Which files a runtime directory of envoyproxy/ratelimit gives, and under which names.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidegate_sources::{Cause, DotFiles, RuntimeChanges, RuntimeSource, TextSource};

fn directory(files: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for file in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    root
}

/// Upstream's defaults, with a subdirectory.
fn source(root: &Path) -> RuntimeSource {
    RuntimeSource {
        root: root.to_owned(),
        subdirectory: PathBuf::from("ratelimit"),
        app_directory: PathBuf::from("config"),
        dot_files: DotFiles::Read,
        changes: RuntimeChanges::Root,
    }
}

fn names(source: &RuntimeSource) -> Vec<String> {
    source.load().unwrap().into_iter().map(|source| source.name).collect()
}

#[test]
fn every_file_below_the_application_directory_is_a_rule_file() {
    let root = directory(&[
        "ratelimit/config/b.yaml",
        "ratelimit/config/README",
        "ratelimit/config/inner/a.txt",
        "ratelimit/other/c.yaml",
        "config/d.yaml",
    ]);
    let expected = ["config.README", "config.b.yaml", "config.inner.a.txt"];
    assert_eq!(names(&source(root.path())), expected);
}

#[test]
fn names_begin_at_the_application_directory_where_its_changes_are_watched() {
    let root = directory(&["ratelimit/config/a.yaml", "ratelimit/config/inner/b.yaml"]);
    let source = RuntimeSource { changes: RuntimeChanges::Directory, ..source(root.path()) };
    assert_eq!(names(&source), ["a.yaml", "inner.b.yaml"]);
}

#[test]
fn empty_parts_lead_nowhere_else() {
    let root = directory(&["a.yaml", "config/b.yaml"]);
    let nothing = PathBuf::new();
    let source = RuntimeSource { subdirectory: nothing.clone(), ..source(root.path()) };
    assert_eq!(names(&source), ["config.b.yaml"]);
    let source = RuntimeSource { app_directory: nothing, ..source };
    assert_eq!(names(&source), ["a.yaml", "config.b.yaml"]);
}

#[test]
fn a_leading_slash_does_not_lead_out_of_the_root() {
    let root = directory(&["ratelimit/config/a.yaml"]);
    let slashed = RuntimeSource {
        subdirectory: PathBuf::from("/ratelimit/"),
        app_directory: PathBuf::from("/config"),
        ..source(root.path())
    };
    assert_eq!(slashed.directory(), root.path().join("ratelimit/config"));
    assert_eq!(names(&slashed), ["config.a.yaml"]);
}

#[test]
fn files_that_begin_with_a_dot_are_read_unless_they_are_to_be_skipped() {
    let root = directory(&["ratelimit/config/.a", "ratelimit/config/.git/b"]);
    assert_eq!(names(&source(root.path())), ["config..a", "config..git.b"]);
    let skipping = RuntimeSource { dot_files: DotFiles::Skip, ..source(root.path()) };
    assert_eq!(names(&skipping), [""; 0]);
}

#[test]
fn an_empty_directory_is_a_set_of_no_rules() {
    let root = directory(&[]);
    fs::create_dir_all(root.path().join("ratelimit/config")).unwrap();
    assert_eq!(names(&source(root.path())), [""; 0]);
}

#[test]
fn a_missing_directory_is_a_fault() {
    let root = directory(&["ratelimit/a.yaml"]);
    let error = source(root.path()).load().unwrap_err();
    let [fault] = error.faults() else { panic!("{error}") };
    assert!(fault.place.ends_with("ratelimit/config"), "{error}");
    assert!(matches!(fault.cause, Cause::Missing));
}

/// <https://github.com/envoyproxy/ratelimit/issues/367>: upstream reads the
/// file behind the link as well, and then finds its domain twice.
#[cfg(unix)]
#[test]
fn a_mounted_volume_of_kubernetes_is_read_once_even_where_dot_files_are_read() {
    use std::os::unix::fs::symlink;

    let root = directory(&["ratelimit/config/..2026_11_15/api.yaml"]);
    let config = root.path().join("ratelimit/config");
    symlink("..2026_11_15", config.join("..data")).unwrap();
    symlink("..data/api.yaml", config.join("api.yaml")).unwrap();
    assert_eq!(names(&source(root.path())), ["config.api.yaml"]);
}
