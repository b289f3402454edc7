//! A data directory is private, has one owner, rejects other formats, migrates, and is copied while in use.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tidegate_data_dir::{DataDir, DataDirError, Schema, back_up};

const FIRST: Schema = Schema {
    name: "items",
    application_id: 77,
    migrations: &["CREATE TABLE items (name TEXT NOT NULL) STRICT"],
};

const SECOND: Schema = Schema {
    migrations: &[
        "CREATE TABLE items (name TEXT NOT NULL) STRICT",
        "ALTER TABLE items ADD COLUMN weight INTEGER NOT NULL DEFAULT 3",
    ],
    ..FIRST
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn directory_and_files_are_private() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("deep/data");
    let directory = DataDir::open(&path).unwrap();
    let database = directory.open_database(&FIRST).unwrap();
    database.execute("INSERT INTO items VALUES ('a')", []).unwrap();
    assert_eq!(mode(&path), 0o700);
    for entry in fs::read_dir(&path).unwrap() {
        let file = entry.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn every_commit_is_synced() {
    let parent = tempfile::tempdir().unwrap();
    let directory = DataDir::open(&parent.path().join("data")).unwrap();
    let database = directory.open_database(&FIRST).unwrap();
    let synchronous: i64 = database.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
    let journal: String = database.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!((synchronous, journal.as_str()), (2, "wal"), "2 is FULL");
}

#[test]
fn an_open_directory_is_restricted_to_its_owner() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    drop(DataDir::open(&path).unwrap());
    assert_eq!(mode(&path), 0o700);
}

#[test]
fn a_second_owner_is_refused_until_the_first_ends() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    let first = DataDir::open(&path).unwrap();
    let refused = DataDir::open(&path).unwrap_err();
    assert!(matches!(refused, DataDirError::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    drop(first);
    drop(DataDir::open(&path).unwrap());
}

#[test]
fn directories_of_others_and_later_formats_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("letter.txt"), "dear").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = DataDir::open(&path).unwrap_err();
    assert!(matches!(refused, DataDirError::NotADataDir { .. }), "{refused}");
    assert_eq!(mode(&path), 0o755, "the directory of another program stays as it is");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);

    fs::write(path.join("format"), "tidegate-data 2\n").unwrap();
    let refused = DataDir::open(&path).unwrap_err();
    assert!(matches!(refused, DataDirError::TooNew { found: 2, known: 1, .. }), "{refused}");

    for damage in ["", "tidegate-data x", "\u{0}\u{1}", "tidegate-data 0\n"] {
        fs::write(path.join("format"), damage).unwrap();
        let refused = DataDir::open(&path).unwrap_err();
        assert!(matches!(refused, DataDirError::Damaged { .. }), "{damage:?}: {refused}");
    }
    fs::write(path.join("format"), [0xff, 0xfe, 0x00]).unwrap();
    let refused = DataDir::open(&path).unwrap_err();
    assert!(matches!(refused, DataDirError::Damaged { .. }), "{refused}");
}

#[test]
fn an_older_database_is_migrated_and_a_newer_one_refused() {
    let parent = tempfile::tempdir().unwrap();
    let directory = DataDir::open(&parent.path().join("data")).unwrap();
    let database = directory.open_database(&FIRST).unwrap();
    database.execute("INSERT INTO items VALUES ('a')", []).unwrap();
    drop(database);

    let database = directory.open_database(&SECOND).unwrap();
    let weight: i64 = database.query_row("SELECT weight FROM items", [], |row| row.get(0)).unwrap();
    assert_eq!(weight, 3);
    drop(database);

    let refused = directory.open_database(&FIRST).unwrap_err();
    assert!(matches!(refused, DataDirError::TooNew { found: 2, known: 1, .. }), "{refused}");
}

#[test]
fn other_files_in_place_of_a_database_are_reported_with_advice() {
    let parent = tempfile::tempdir().unwrap();
    let directory = DataDir::open(&parent.path().join("data")).unwrap();
    let path = directory.database_path(&FIRST);
    fs::write(&path, "this is text, long enough to be taken for the header of a database file")
        .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let refused = directory.open_database(&FIRST).unwrap_err();
    assert!(matches!(refused, DataDirError::Damaged { .. }), "{refused}");
    assert!(refused.to_string().contains("restore a backup"), "{refused}");

    fs::remove_file(&path).unwrap();
    drop(directory.open_database(&Schema { application_id: 78, ..FIRST }).unwrap());
    let refused = directory.open_database(&FIRST).unwrap_err();
    assert!(matches!(refused, DataDirError::Damaged { .. }), "{refused}");
}

#[test]
fn a_backup_of_a_database_in_use_is_a_data_directory() {
    let parent = tempfile::tempdir().unwrap();
    let (path, copy) = (parent.path().join("data"), parent.path().join("it's a copy"));
    let directory = DataDir::open(&path).unwrap();
    let database = directory.open_database(&FIRST).unwrap();
    database.execute("INSERT INTO items VALUES ('kept')", []).unwrap();
    database.execute_batch("BEGIN; INSERT INTO items VALUES ('not committed')").unwrap();
    back_up(&path, &copy).unwrap();
    assert!(matches!(back_up(&path, &copy), Err(DataDirError::NotADataDir { .. })));

    let restored = DataDir::open(&copy).unwrap();
    assert_eq!(mode(&restored.database_path(&FIRST)), 0o600);
    let database = restored.open_database(&FIRST).unwrap();
    let names: String =
        database.query_row("SELECT group_concat(name) FROM items", [], |row| row.get(0)).unwrap();
    assert_eq!(names, "kept");
}
