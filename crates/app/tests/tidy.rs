//! The workspace keeps its own rules: who may use whom, nothing orphaned, nothing left open.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates by folder, and which of ours each uses. Exactly these edges exist: an unused permission is an error too.
const EDGES: &[(&str, &[&str])] = &[
    ("decision/algorithms", &[]),
    ("decision/document", &[]),
    ("decision/rules", &["algorithms", "document"]),
    ("decision/overload", &["algorithms", "metrics"]),
    ("decision/metrics", &[]),
    ("decision/redis-link", &["metrics"]),
    ("decision/redis-board", &["algorithms", "overload", "redis-link"]),
    ("decision/stores", &["algorithms", "metrics", "redis-link"]),
    ("decision/engine", &["algorithms", "metrics", "rules", "stores"]),
    ("inbound/server", &[]),
    ("inbound/answers", &["engine", "overload"]),
    ("inbound/admission", &["answers", "engine"]),
    ("inbound/rls", &["answers", "engine", "metrics"]),
    ("inbound/http-api", &["admission", "answers", "engine", "metrics", "rules"]),
    (
        "inbound/gateway",
        &["admission", "answers", "document", "engine", "metrics", "overload", "server"],
    ),
    ("inbound/admin", &["answers", "engine", "metrics", "overload"]),
    ("inbound/tower-layer", &["admission", "answers", "engine", "overload"]),
    ("inbound/spans", &["engine"]),
    ("inbound/statsd", &[]),
    ("outbound/pacer", &["algorithms", "stores"]),
    ("control/sources", &["rules"]),
    ("tidegate", &["admission", "answers", "engine", "overload", "pacer", "stores", "tower-layer"]),
    (
        "app",
        &[
            "admin",
            "admission",
            "answers",
            "document",
            "engine",
            "gateway",
            "http-api",
            "metrics",
            "overload",
            "redis-board",
            "rls",
            "rules",
            "server",
            "simulation",
            "sources",
            "spans",
            "stores",
        ],
    ),
    ("lab/test-servers", &[]),
    ("lab/simulation", &["algorithms", "engine", "overload", "rules"]),
    (
        "lab/bench",
        &[
            "answers", "engine", "gateway", "metrics", "overload", "rls", "rules", "server",
            "stores",
        ],
    ),
    ("lab/fuzz", &["app", "engine", "http-api", "metrics", "rls", "rules"]),
];

/// Outside crates that only some of ours may use, beside their tests.
const KEPT_TO: &[(&str, &[&str])] = &[
    ("axum", &["app", "bench"]),
    ("h2", &["server"]),
    ("hyper", &["app", "admin", "gateway", "http-api", "rls", "server", "spans", "bench", "fuzz"]),
    ("hyper-util", &["app", "gateway", "server"]),
    (
        "http",
        &[
            "admin",
            "answers",
            "gateway",
            "http-api",
            "rls",
            "server",
            "spans",
            "tower-layer",
            "bench",
            "fuzz",
        ],
    ),
    ("tonic", &["rls", "bench", "fuzz"]),
    ("redis", &["redis-link"]),
    ("quanta", &["engine", "overload"]),
    // Who waits for it must know how to: see the lock of a shard.
    ("spinning_top", &["stores", "bench"]),
    ("clap", &["app", "bench", "fuzz", "simulation"]),
    ("governor", &["bench"]),
    ("limitador", &["bench"]),
    ("throttlecrab", &["bench"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders below `crates` that hold a crate: `app`, `decision/rules`, …
fn crates() -> Vec<String> {
    let mut found = Vec::new();
    let top = root().join("crates");
    for entry in fs::read_dir(&top).expect("the workspace has crates") {
        let path = entry.expect("readable").path();
        let inside = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
        for folder in std::iter::once(path.clone()).chain(inside) {
            if folder.join("Cargo.toml").is_file() {
                let name = folder.strip_prefix(&top).expect("it is below");
                found.push(name.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// The last part of a folder: the package is `tidegate-` and this.
fn package(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or(folder)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names in the `[dependencies]` of a crate, without those for tests.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]" || line.starts_with("[target.");
            continue;
        }
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        if inside && !key.is_empty() && !key.starts_with('#') {
            found.push(key.to_owned());
        }
    }
    found
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_rust_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    rust_files(&root().join("crates"), &mut found);
    assert!(found.len() > 50, "the walk finds the sources");
    found
}

#[test]
fn every_crate_uses_only_what_the_design_allows() {
    for name in crates() {
        let (_, allowed) = EDGES
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("crates/{name} is not in the design: add it to EDGES"));
        let mut used: Vec<String> = dependencies(&name)
            .iter()
            .filter_map(|used| used.strip_prefix("tidegate-").map(str::to_owned))
            .collect();
        used.sort();
        assert_eq!(used, *allowed, "the edges of {name}: what it uses, and what EDGES lists");
    }
}

#[test]
fn wire_protocols_and_stores_stay_in_their_crates() {
    for name in crates() {
        for used in dependencies(&name) {
            let kept = KEPT_TO.iter().find(|(outside, _)| *outside == used);
            assert!(
                kept.is_none_or(|(_, places)| places.contains(&package(&name))),
                "{name} may not use {used}"
            );
        }
    }
}

#[test]
fn every_source_file_begins_with_its_module_doc() {
    for path in all_rust_files() {
        let tests = path.file_name().is_some_and(|name| name == "tests.rs");
        let text = read(&path);
        assert!(tests || text.starts_with("//!"), "{} says nothing of itself", path.display());
    }
}

#[test]
fn every_source_file_belongs_to_a_module_tree() {
    for path in all_rust_files() {
        let text_path = path.to_string_lossy().into_owned();
        let Some((_, inside)) = text_path.rsplit_once("/src/") else { continue };
        if matches!(inside, "lib.rs" | "main.rs") || inside.starts_with("bin/") {
            continue;
        }
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let directory = path.parent().unwrap_or(Path::new(""));
        let parents =
            [directory.with_extension("rs"), directory.join("lib.rs"), directory.join("main.rs")];
        let declared = parents.iter().filter(|parent| parent.is_file()).any(|parent| {
            read(parent).lines().any(|line| line.trim_end().ends_with(&format!("mod {name};")))
        });
        assert!(declared, "{} is in no module", path.display());
    }
}

#[test]
fn nothing_is_left_open() {
    // Put together here, so that this file does not find itself.
    let marks =
        [["TO", "DO"], ["FIX", "ME"], ["todo", "!("], ["unimplemented", "!("], ["#[ign", "ore"]];
    for path in all_rust_files() {
        let text = read(&path);
        for mark in marks.map(|parts| parts.concat()) {
            assert!(!text.contains(&mark), "{} has a {mark}", path.display());
        }
    }
}

#[test]
fn every_crate_is_on_the_maps() {
    for map in ["README.md", "ARCHITECTURE.md"] {
        let text = read(&root().join(map));
        for name in crates() {
            let named =
                [name.as_str(), package(&name)].map(|name| text.contains(&format!("`{name}`")));
            assert!(named.contains(&true), "{map} does not name crates/{name}");
        }
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut documents = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    documents.extend([root().join("CONTRIBUTING.md"), root().join("CHANGELOG.md")]);
    for directory in ["docs", "docs/decisions", "docs/guides"] {
        let entries = fs::read_dir(root().join(directory)).expect("docs are there");
        let paths = entries.map(|entry| entry.expect("readable").path());
        documents.extend(paths.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    for document in documents {
        let text = read(&document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let target = document.parent().unwrap_or(Path::new("")).join(path);
            assert!(target.exists(), "{}: {link} leads nowhere", document.display());
        }
    }
}
