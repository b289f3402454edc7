//! Which files a path leads to, and the errors when it leads to none.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tidegate_rules::SOURCE_BYTES_MAX;
use tidegate_sources::{Cause, DEPTH_MAX, Fault, FileSource, LoadError, TextSource};

fn directory(files: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for file in files {
        write(root.path(), file, file);
    }
    root
}

fn write(root: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The names of the sources below the root, in order.
fn names(root: &Path, paths: &[&str]) -> Vec<String> {
    let sources = load(root, paths).unwrap();
    let short = |name: &str| {
        Path::new(name).strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/")
    };
    sources.iter().map(|source| short(&source.name)).collect()
}

fn load(root: &Path, paths: &[&str]) -> Result<Vec<tidegate_rules::Source>, LoadError> {
    FileSource::new(paths.iter().map(|path| root.join(path))).load()
}

/// The only fault: where it is below the root, and its cause.
fn fault(root: &Path, paths: &[&str]) -> (String, Cause) {
    let error = load(root, paths).unwrap_err();
    let mut faults = error.into_faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let Fault { place, cause } = faults.remove(0);
    let place = Path::new(&place).strip_prefix(root).unwrap();
    (place.to_string_lossy().into_owned(), cause)
}

#[test]
fn a_file_is_read_whatever_it_is_called() {
    let root = directory(&["rules.txt", ".hidden"]);
    let sources = load(root.path(), &["rules.txt", ".hidden"]).unwrap();
    let texts: Vec<&str> = sources.iter().map(|source| source.text.as_str()).collect();
    assert_eq!(texts, ["rules.txt", ".hidden"]);
}

#[test]
fn a_source_is_named_by_its_path() {
    let root = directory(&["api.yaml"]);
    let sources = load(root.path(), &["api.yaml"]).unwrap();
    assert_eq!(sources[0].name, root.path().join("api.yaml").to_string_lossy());
}

#[test]
fn a_directory_gives_its_yaml_files_sorted_by_name() {
    let root = directory(&["b.yml", "a.yaml", "c.yaml", "notes.md", "yaml", "d.yaml~"]);
    assert_eq!(names(root.path(), &[""]), ["a.yaml", "b.yml", "c.yaml"]);
}

#[test]
fn directories_below_are_read_too_in_the_same_order_every_time() {
    let root = directory(&["z.yaml", "m/inner/b.yaml", "m/a.yaml", "a.yaml"]);
    let expected = ["a.yaml", "m/a.yaml", "m/inner/b.yaml", "z.yaml"];
    for _ in 0..3 {
        assert_eq!(names(root.path(), &[""]), expected);
    }
}

#[test]
fn hidden_files_and_directories_are_skipped() {
    let root = directory(&["a.yaml", ".b.yaml", ".git/c.yaml", "..data/d.yaml"]);
    assert_eq!(names(root.path(), &[""]), ["a.yaml"]);
}

#[test]
fn paths_are_read_in_the_order_given() {
    let root = directory(&["a.yaml", "b.yaml"]);
    assert_eq!(names(root.path(), &["b.yaml", "a.yaml"]), ["b.yaml", "a.yaml"]);
}

#[test]
fn a_file_that_is_given_twice_is_read_once() {
    let root = directory(&["rules/a.yaml", "rules/b.yaml"]);
    let twice = ["rules/b.yaml", "rules", "rules"];
    assert_eq!(names(root.path(), &twice), ["rules/b.yaml", "rules/a.yaml"]);
}

#[test]
fn a_missing_path_is_told() {
    let root = directory(&[]);
    let (place, cause) = fault(root.path(), &["nowhere.yaml"]);
    assert_eq!(place, "nowhere.yaml");
    assert!(matches!(cause, Cause::Missing));
}

#[test]
fn all_faults_are_told_at_once() {
    let root = directory(&["good.yaml"]);
    write(root.path(), "bad.yaml", [b'a', 0xff]);
    let error = load(root.path(), &["", "gone"]).unwrap_err();
    let causes: Vec<String> = error.faults().iter().map(|fault| fault.cause.to_string()).collect();
    assert_eq!(causes.len(), 2);
    assert!(causes[0].starts_with("is not UTF-8 text: the byte at offset 1"), "{}", causes[0]);
    assert_eq!(causes[1], "does not exist");
}

#[test]
fn a_directory_without_rule_files_is_a_fault_and_not_an_empty_set_of_rules() {
    let root = directory(&["empty/.keep", "empty/inner/notes.txt"]);
    let (place, cause) = fault(root.path(), &["empty"]);
    assert_eq!(place, "empty");
    assert!(matches!(cause, Cause::NoRuleFiles));
}

#[test]
fn a_file_that_is_no_text_is_told_with_the_place() {
    let root = directory(&[]);
    write(root.path(), "latin.yaml", b"domain: caf\xe9");
    let (_, cause) = fault(root.path(), &["latin.yaml"]);
    assert!(matches!(cause, Cause::NotUtf8 { offset: 11 }));
}

#[test]
fn a_file_of_the_largest_size_is_read_and_one_byte_more_is_not() {
    let root = directory(&[]);
    write(root.path(), "full.yaml", vec![b'#'; SOURCE_BYTES_MAX]);
    assert_eq!(names(root.path(), &["full.yaml"]), ["full.yaml"]);
    write(root.path(), "over.yaml", vec![b'#'; SOURCE_BYTES_MAX + 1]);
    let (place, cause) = fault(root.path(), &["over.yaml"]);
    assert_eq!(place, "over.yaml");
    assert!(matches!(cause, Cause::TooLarge));
}

#[test]
fn directories_are_followed_only_so_far_down() {
    let deep = "d/".repeat(DEPTH_MAX - 1) + "a.yaml";
    let root = directory(&[&deep]);
    assert_eq!(names(root.path(), &[""]), [deep.as_str()]);
    let deeper = "d/".repeat(DEPTH_MAX) + "a.yaml";
    let root = directory(&[&deeper]);
    let (_, cause) = fault(root.path(), &[""]);
    assert!(matches!(cause, Cause::TooDeep));
}

#[cfg(unix)]
mod links {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn links_to_files_and_directories_are_followed() {
        let root = directory(&["outside/b.yaml", "rules/c.yaml", "a.txt"]);
        symlink(root.path().join("a.txt"), root.path().join("rules/a.yaml")).unwrap();
        symlink(root.path().join("outside"), root.path().join("rules/more")).unwrap();
        let expected = ["rules/a.yaml", "rules/c.yaml", "rules/more/b.yaml"];
        assert_eq!(names(root.path(), &["rules"]), expected);
    }

    #[test]
    fn a_mounted_volume_of_kubernetes_is_read_once() {
        let root = directory(&["..2026_11_15/api.yaml"]);
        symlink("..2026_11_15", root.path().join("..data")).unwrap();
        symlink("..data/api.yaml", root.path().join("api.yaml")).unwrap();
        assert_eq!(names(root.path(), &[""]), ["api.yaml"]);
    }

    #[test]
    fn a_directory_that_links_back_to_itself_is_told() {
        let root = directory(&["rules/a.yaml"]);
        symlink(root.path().join("rules"), root.path().join("rules/again")).unwrap();
        let (place, cause) = fault(root.path(), &["rules"]);
        assert_eq!(place, "rules/again");
        assert!(matches!(cause, Cause::Loop));
    }

    #[test]
    fn a_file_that_links_to_itself_is_told() {
        let root = directory(&["rules/a.yaml"]);
        symlink("b.yaml", root.path().join("rules/b.yaml")).unwrap();
        let (place, cause) = fault(root.path(), &["rules"]);
        assert_eq!(place, "rules/b.yaml");
        assert!(matches!(cause, Cause::Loop));
    }

    #[test]
    fn a_link_to_nothing_matters_only_where_a_rule_file_is_meant() {
        let root = directory(&["rules/a.yaml"]);
        symlink("gone", root.path().join("rules/notes")).unwrap();
        assert_eq!(names(root.path(), &["rules"]), ["rules/a.yaml"]);
        symlink("gone", root.path().join("rules/b.yaml")).unwrap();
        let (place, cause) = fault(root.path(), &["rules"]);
        assert_eq!(place, "rules/b.yaml");
        assert!(matches!(cause, Cause::Missing));
    }

    #[test]
    fn what_is_no_file_is_told_and_not_waited_for() {
        let root = directory(&[]);
        let _socket = UnixListener::bind(root.path().join("socket.yaml")).unwrap();
        let (place, cause) = fault(root.path(), &[""]);
        assert_eq!(place, "socket.yaml");
        assert!(matches!(cause, Cause::NotAFile));
    }

    #[test]
    fn what_cannot_be_opened_is_told_with_the_systems_words() {
        let root = directory(&[]);
        let _socket = UnixListener::bind(root.path().join("socket.yaml")).unwrap();
        let error = load(root.path(), &["socket.yaml"]).unwrap_err();
        let [fault] = error.faults() else { panic!("{error}") };
        assert!(matches!(fault.cause, Cause::Unreadable(_)), "{error}");
        assert!(error.to_string().contains("socket.yaml` cannot be read: "), "{error}");
    }
}
