//! The database as files: `diff`, `apply`, `export`.
//!
//! `rules/NAME` has the documents, `plans/DOMAIN/NAME.json` the plans, `clients/TABLE.csv` and `rows/TABLE.csv` the
//! clients and rows of tables. Names become file names with every other character than letters, digits and `-._`
//! encoded; a `/` in the name of a document is a folder. Switches and API keys are not among them: they are set for the
//! present.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use axum::http::Method;
use clap::Args;
use serde_json::{Value, json};

use super::WhyArgs;
use super::client::{ControlClient, ControlServerArgs, encode};
use super::rows::read_rows;
use super::view::write_difference;
use crate::exit::{Complaint, Exit, Failure};
use crate::output::Output;

/// The kinds that are files, in the order in which they are shown.
const KINDS: [&str; 4] = ["document", "plan", "client", "row"];
/// Differences that are shown one by one.
const SHOWN_MAX: usize = 100;
/// Folders below a directory that are followed.
const DEPTH_MAX: usize = 16;

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// The directory.
    directory: PathBuf,
    /// Shows what the directory lacks too, as `apply --prune` removes it.
    #[arg(long)]
    prune: bool,
    /// Ends with 1 if anything differs.
    #[arg(long)]
    exit_code: bool,
}

/// What to apply.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    #[command(flatten)]
    why: WhyArgs,
    /// The directory.
    directory: PathBuf,
    /// Removes what the directory lacks.
    #[arg(long)]
    prune: bool,
    /// Proposes the changes as a draft of this name instead.
    #[arg(long, value_name = "NAME")]
    draft: Option<String>,
}

/// What to export.
#[derive(Debug, Args)]
pub(crate) struct DatabaseExportArgs {
    #[command(flatten)]
    server: ControlServerArgs,
    /// The directory: new, empty, or an export.
    directory: PathBuf,
    /// As it was at this version.
    #[arg(long, value_name = "VERSION")]
    at: Option<u64>,
}

/// An entry by kind, collection and name.
type Key = (String, String, String);
type Entries = BTreeMap<Key, Value>;

fn key_of(entry: &Value) -> Key {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("collection"), text("name"))
}

/// The entries of the service at a version.
fn remote(client: &ControlClient, version: u64) -> Result<Entries, Failure> {
    let mut entries = Entries::new();
    for kind in KINDS {
        let found = client.entries(kind, &format!("&at={version}"))?;
        entries.extend(found.into_iter().map(|entry| (key_of(&entry), entry)));
    }
    Ok(entries)
}

fn newest(client: &ControlClient) -> Result<u64, Failure> {
    Ok(client.get("/v1/status")?["version"].as_u64().unwrap_or(0))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    let help = "check the path and its permissions";
    Complaint::new(format!("`{}` cannot be read: {error}", path.display()), help).into()
}

/// The files below a directory, by their paths in it.
fn walk(root: &Path, depth: usize) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    if depth == 0 {
        return Ok(found);
    }
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(unreadable(root, &error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| unreadable(root, &error))?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        match (hidden, path.is_dir()) {
            (true, _) => {}
            (false, true) => found.extend(walk(&path, depth - 1)?),
            (false, false) => found.push(path),
        }
    }
    Ok(found)
}

/// A name that was encoded as the name of a file.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hexadecimal = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = hexadecimal.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match decoded.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The parts of a path below a root, decoded; the extension of the last one is cut off.
fn names(root: &Path, path: &Path, extension: &str) -> Option<Vec<String>> {
    let inside = path.strip_prefix(root).ok()?.to_str()?;
    let inside = inside.strip_suffix(extension)?;
    Some(inside.split('/').map(decode).collect())
}

/// The entries that a directory has.
fn local(directory: &Path) -> Result<Entries, Failure> {
    if !directory.is_dir() {
        let error = "it is no directory";
        return Err(unreadable(directory, &error));
    }
    let is_export =
        ["rules", "plans", "clients", "rows"].iter().any(|name| directory.join(name).is_dir());
    let rules = if is_export { directory.join("rules") } else { directory.to_owned() };
    let mut entries = Entries::new();
    let mut add = |entry: Value| {
        entries.insert(key_of(&entry), entry);
    };
    for path in walk(&rules, DEPTH_MAX)? {
        let is_yaml = path.extension().is_some_and(|name| name == "yaml" || name == "yml");
        let Some(name) = names(&rules, &path, "").filter(|_| is_yaml || is_export) else {
            continue;
        };
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        add(json!({ "kind": "document", "name": name.join("/"), "body": { "text": text } }));
    }
    if !is_export {
        return Ok(entries);
    }
    let plans = directory.join("plans");
    for path in walk(&plans, 2)? {
        let parts: Option<[String; 2]> =
            names(&plans, &path, ".json").and_then(|parts| parts.try_into().ok());
        let Some([domain, name]) = parts else {
            return Err(unreadable(&path, &"expected plans/DOMAIN/NAME.json"));
        };
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        let body: Value = serde_json::from_str(&text).map_err(|error| unreadable(&path, &error))?;
        add(json!({ "kind": "plan", "collection": domain, "name": name, "body": body }));
    }
    for (kind, folder) in [("client", "clients"), ("row", "rows")] {
        let root = directory.join(folder);
        for path in walk(&root, 1)? {
            let parts: Option<[String; 1]> =
                names(&root, &path, ".csv").and_then(|parts| parts.try_into().ok());
            let Some([table]) = parts else {
                let expected = "expected the file of a table, such as api%2Fclients.csv";
                return Err(unreadable(&path, &expected));
            };
            read_rows(&path, kind, &table)?.into_iter().for_each(&mut add);
        }
    }
    Ok(entries)
}

/// What makes an entry what it is; who set it and when does not.
fn essence(entry: &Value) -> (&Value, &str, &str) {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    (&entry["body"], text("owner"), text("until"))
}

/// Whether two states are the same: a file without an owner or with a day instead of an instant differs only in form.
fn is_same(remote: &Value, local: &Value) -> bool {
    let ((body, owner, until), (new_body, new_owner, new_until)) =
        (essence(remote), essence(local));
    let same_until = until == new_until || until.strip_suffix("T00:00:00Z") == Some(new_until);
    body == new_body && same_until && (new_owner.is_empty() || owner == new_owner)
}

/// The entries that differ: as they are, and as the directory has them.
fn compare(remote: &Entries, local: &Entries, prune: bool) -> Vec<(Value, Value)> {
    let mut found = Vec::new();
    for (key, new) in local {
        match remote.get(key) {
            Some(old) if is_same(old, new) => {}
            old => found.push((old.cloned().unwrap_or(Value::Null), new.clone())),
        }
    }
    if prune {
        let gone = remote.iter().filter(|(key, _)| !local.contains_key(*key));
        found.extend(gone.map(|(_, old)| (old.clone(), Value::Null)));
    }
    found
}

fn write_differences(found: &[(Value, Value)], out: &mut Output) -> Result<(), Failure> {
    for (before, after) in found.iter().take(SHOWN_MAX) {
        write_difference(out, before, after)?;
    }
    if found.len() > SHOWN_MAX {
        writeln!(out, "… and {} more", found.len() - SHOWN_MAX)?;
    }
    Ok(())
}

pub(super) fn diff(args: &DiffArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let local = local(&args.directory)?;
    let found = compare(&remote(&client, newest(&client)?)?, &local, args.prune);
    write_differences(&found, out)?;
    if found.is_empty() {
        writeln!(out, "nothing differs")?;
    }
    Ok(Exit::of_check(found.is_empty() || !args.exit_code))
}

/// The change that makes an entry as the directory has it.
fn change(before: &Value, after: &Value) -> Value {
    if after.is_null() {
        let (kind, collection, name) = key_of(before);
        let mut change = json!({ "kind": kind, "name": name, "remove": true });
        if !collection.is_empty() {
            change["collection"] = json!(collection);
        }
        return change;
    }
    after.clone()
}

pub(super) fn apply(args: &ApplyArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let local = local(&args.directory)?;
    let base = newest(&client)?;
    let found = compare(&remote(&client, base)?, &local, args.prune);
    if found.is_empty() {
        writeln!(out, "nothing differs from version {base}")?;
        return Ok(Exit::Fine);
    }
    let changes: Vec<Value> = found.iter().map(|(before, after)| change(before, after)).collect();
    let body = json!({ "changes": changes, "why": args.why.why, "base": base });
    let answer = match &args.draft {
        None => client.exchange(Method::POST, "/v1/changes", Some(&body), &[])?,
        Some(name) => client.exchange(
            Method::PUT,
            &format!("/v1/drafts/{}", encode(name)),
            Some(&body),
            &[],
        )?,
    };
    if answer.status.as_u16() == 422 {
        super::client::refusal(&answer).write(out)?;
        return Ok(Exit::Problems);
    }
    if !answer.status.is_success() {
        return Err(super::client::refusal(&answer).into());
    }
    write_differences(&found, out)?;
    match &args.draft {
        None => writeln!(
            out,
            "version {}: {} entries changed",
            answer.body["version"], answer.body["changed"]
        )?,
        Some(name) => writeln!(out, "draft `{name}`: {} changes wait for a review", found.len())?,
    }
    Ok(Exit::Fine)
}

/// Where an entry's file is; rows and clients share one for each table.
fn file_of(kind: &str, collection: &str, name: &str) -> PathBuf {
    match kind {
        "document" => {
            let inside = |part: &str| match part {
                "." => "%2E".to_owned(),
                part => encode(part).replace("..", "%2E%2E"),
            };
            // An empty part would make the path absolute, or vanish: such a name is one component.
            let path = match name.split('/').any(str::is_empty) {
                true => inside(name),
                false => name.split('/').map(inside).collect::<Vec<_>>().join("/"),
            };
            PathBuf::from("rules").join(path)
        }
        "plan" => {
            PathBuf::from("plans").join(encode(collection)).join(format!("{}.json", encode(name)))
        }
        kind => PathBuf::from(format!("{kind}s")).join(format!("{}.csv", encode(collection))),
    }
}

/// The texts of the files of an export.
fn texts(entries: &Entries) -> Result<BTreeMap<PathBuf, Vec<u8>>, Failure> {
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let mut tables: BTreeMap<PathBuf, csv::Writer<Vec<u8>>> = BTreeMap::new();
    let broken = |error: csv::Error| Failure::Output(std::io::Error::other(error));
    for ((kind, collection, name), entry) in entries {
        let (body, path) = (&entry["body"], file_of(kind, collection, name));
        let text = |field: &str| body[field].as_str().unwrap_or_default();
        match kind.as_str() {
            "document" => drop(files.insert(path, text("text").as_bytes().to_vec())),
            "plan" => drop(files.insert(path, format!("{body:#}\n").into_bytes())),
            kind => {
                let is_client = kind == "client";
                let terms = if is_client { "plan" } else { "terms" };
                if !tables.contains_key(&path) {
                    let mut writer = csv::Writer::from_writer(Vec::new());
                    let mut titles = vec!["value", terms, "until", "owner"];
                    titles.extend(is_client.then_some("labels"));
                    writer.write_record(&titles).map_err(broken)?;
                    tables.insert(path.clone(), writer);
                }
                let (_, owner, until) = essence(entry);
                let labels = body.get("labels").map(Value::to_string).unwrap_or_default();
                let mut record = vec![name.as_str(), text(terms), until, owner];
                record.extend(is_client.then_some(labels.as_str()));
                if let Some(writer) = tables.get_mut(&path) {
                    writer.write_record(&record).map_err(broken)?;
                }
            }
        }
    }
    for (path, writer) in tables {
        let bytes = writer.into_inner().map_err(|error| Failure::Output(error.into_error()))?;
        files.insert(path, bytes);
    }
    Ok(files)
}

pub(super) fn export(args: &DatabaseExportArgs, out: &mut Output) -> Result<Exit, Failure> {
    let client = ControlClient::new(&args.server)?;
    let version = match args.at {
        Some(version) => version,
        None => newest(&client)?,
    };
    let entries = remote(&client, version)?;
    let folders = ["rules", "plans", "clients", "rows"];
    let foreign = fs::read_dir(&args.directory).into_iter().flatten().flatten().find(|entry| {
        let name = entry.file_name();
        !name.to_string_lossy().starts_with('.') && !folders.iter().any(|folder| name == *folder)
    });
    if let Some(foreign) = foreign {
        let message = format!("`{}` holds other files", args.directory.display());
        let help = format!("choose a new directory, or move `{}` away", foreign.path().display());
        return Err(Complaint::new(message, help).into());
    }
    for folder in folders {
        let path = args.directory.join(folder);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(unreadable(&path, &error));
            }
            _ => {}
        }
    }
    for (path, text) in texts(&entries)? {
        let path = args.directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&args.directory))?;
        fs::write(&path, text)?;
    }
    writeln!(
        out,
        "{} entries of version {version} in {}",
        entries.len(),
        args.directory.display()
    )?;
    Ok(Exit::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Entries {
        let entries = [
            json!({"kind": "document", "name": "a/b ü.yaml", "body": {"text": "domain: api\n"}}),
            json!({"kind": "plan", "collection": "api", "name": "gold", "body": {"limits": [1]}}),
            json!({"kind": "row", "collection": "api/clients", "name": "a,\"b\"", "body": {"terms": "rate=5"},
                   "until": "2027-01-31T00:00:00Z", "owner": "team"}),
            json!({"kind": "client", "collection": "api/clients", "name": "c",
                   "body": {"plan": "gold", "labels": {"team": "x"}}}),
        ];
        entries.into_iter().map(|entry| (key_of(&entry), entry)).collect()
    }

    fn write(entries: &Entries, directory: &Path) {
        for (path, text) in texts(entries).unwrap() {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn an_export_that_is_read_again_differs_in_nothing() {
        let directory = tempfile::tempdir().unwrap();
        write(&sample(), directory.path());
        let read = local(directory.path()).unwrap();
        assert_eq!(compare(&sample(), &read, true), []);
        let again = tempfile::tempdir().unwrap();
        write(&read, again.path());
        let texts = |root: &Path| {
            let files = walk(root, 9).unwrap().into_iter();
            let read = |path: PathBuf| {
                (path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap())
            };
            files.map(read).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(texts(directory.path()), texts(again.path()));
    }

    #[test]
    fn what_the_directory_lacks_is_removed_only_if_asked() {
        let mut fewer = sample();
        fewer.retain(|(kind, _, _), _| kind != "row");
        assert_eq!(compare(&sample(), &fewer, false), []);
        let found = compare(&sample(), &fewer, true);
        assert_eq!((found.len(), found[0].1.is_null()), (1, true));
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        for name in ["../../etc/passwd", "..", "/etc/passwd", "a/../b", "a//b", "a/", "a/./b"] {
            let path = file_of("document", "", name);
            let found = names(Path::new("rules"), &path, "").unwrap().join("/");
            assert_eq!(found, name, "the name comes back");
            assert!(path.starts_with("rules"), "{}", path.display());
            let up = path.components().any(|part| part == std::path::Component::ParentDir);
            assert!(!up, "{}", path.display());
        }
    }

    #[test]
    fn a_wrong_csv_file_is_named_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.csv");
        for (text, expected) in [
            ("value,terms\na,rate=1\nb,\n", ":3: a value and its terms are not blank"),
            ("value,colour\na,rate=1\n", ":1: there is no column `colour`"),
            ("value\na\n", ":1: the columns `value` and `terms` are needed"),
        ] {
            fs::write(&path, text).unwrap();
            let Err(Failure::Usage(complaint)) = read_rows(&path, "row", "api/clients") else {
                panic!("{text}")
            };
            assert!(complaint.message.ends_with(expected), "{}", complaint.message);
        }
    }
}
