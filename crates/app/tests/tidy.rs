//! The workspace keeps its own rules: who may use whom, nothing orphaned, nothing left open.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates by folder, and which of ours each uses. Exactly these edges exist: an unused permission is an error too.
const EDGES: &[(&str, &[&str])] = &[
    ("decision/words", &[]),
    ("decision/macros", &[]),
    ("decision/client-tls", &[]),
    ("decision/algorithms", &["words"]),
    ("decision/document", &["words"]),
    ("decision/row-table", &[]),
    ("decision/rules", &["algorithms", "document", "macros", "row-table"]),
    ("decision/overload", &["algorithms", "macros", "metrics", "words"]),
    ("decision/metrics", &["words"]),
    ("decision/redis-link", &["client-tls", "macros", "metrics", "words"]),
    ("decision/redis-board", &["algorithms", "overload", "redis-link"]),
    ("decision/stores", &["algorithms", "macros", "metrics", "redis-link", "words"]),
    ("decision/engine", &["algorithms", "macros", "metrics", "rules", "stores", "words"]),
    ("inbound/server", &["algorithms", "metrics", "words"]),
    ("inbound/access", &["algorithms", "words"]),
    ("inbound/answers", &["engine", "overload", "words"]),
    ("inbound/admission", &["answers", "engine", "macros"]),
    ("inbound/rls", &["access", "answers", "engine", "macros", "metrics"]),
    (
        "inbound/http-api",
        &["access", "admission", "answers", "engine", "macros", "metrics", "rules"],
    ),
    (
        "inbound/gateway",
        &[
            "access",
            "admission",
            "answers",
            "client-tls",
            "document",
            "engine",
            "macros",
            "metrics",
            "overload",
            "queue",
            "server",
        ],
    ),
    (
        "inbound/admin",
        &[
            "access", "answers", "engine", "history", "insight", "macros", "metrics", "overload",
            "statsd", "words",
        ],
    ),
    ("inbound/tower-layer", &["admission", "answers", "engine", "macros", "overload"]),
    ("inbound/spans", &["engine"]),
    ("inbound/statsd", &["document", "metrics"]),
    ("outbound/pacer", &["algorithms", "stores"]),
    ("outbound/response-fields", &["algorithms"]),
    ("outbound/client", &["algorithms", "response-fields"]),
    ("outbound/queue", &["algorithms", "data-dir", "redis-link"]),
    ("outbound/capacity", &["algorithms", "redis-link"]),
    ("outbound/delivery", &["client-tls", "queue", "response-fields"]),
    (
        "outbound/forwarder",
        &[
            "access",
            "algorithms",
            "answers",
            "capacity",
            "delivery",
            "document",
            "metrics",
            "overload",
            "queue",
            "words",
        ],
    ),
    ("control/data-dir", &[]),
    ("control/history", &[]),
    ("control/snapshot-file", &["row-table"]),
    ("control/retriever", &["client-tls", "metrics", "row-table", "snapshot-file"]),
    ("control/sources", &["macros", "rules"]),
    ("control/insight", &["algorithms", "rules", "words"]),
    ("control/kernel-rules", &["algorithms", "rules"]),
    (
        "control/plane",
        &[
            "access",
            "algorithms",
            "answers",
            "data-dir",
            "metrics",
            "row-table",
            "rules",
            "snapshot-file",
            "words",
        ],
    ),
    (
        "tidegate",
        &[
            "admission",
            "answers",
            "capacity",
            "client",
            "delivery",
            "engine",
            "forwarder",
            "overload",
            "pacer",
            "queue",
            "retriever",
            "stores",
            "tower-layer",
        ],
    ),
    (
        "app",
        &[
            "access",
            "admin",
            "admission",
            "answers",
            "capacity",
            "data-dir",
            "delivery",
            "document",
            "engine",
            "forwarder",
            "gateway",
            "http-api",
            "insight",
            "kernel-rules",
            "metrics",
            "overload",
            "plane",
            "queue",
            "redis-board",
            "retriever",
            "rls",
            "rules",
            "server",
            "simulation",
            "snapshot-file",
            "sources",
            "spans",
            "statsd",
            "stores",
            "throttled-service",
        ],
    ),
    ("lab/test-servers", &[]),
    ("lab/throttled-service", &["algorithms", "capacity", "server"]),
    (
        "lab/forward-faults",
        &[
            "algorithms",
            "capacity",
            "delivery",
            "forwarder",
            "queue",
            "test-servers",
            "throttled-service",
        ],
    ),
    ("lab/upstream-diff", &["rls", "test-servers"]),
    ("lab/simulation", &["algorithms", "engine", "insight", "overload", "rules"]),
    (
        "lab/bench",
        &[
            "admin",
            "algorithms",
            "answers",
            "capacity",
            "delivery",
            "engine",
            "forwarder",
            "gateway",
            "metrics",
            "overload",
            "queue",
            "rls",
            "rules",
            "server",
            "simulation",
            "stores",
            "test-servers",
            "throttled-service",
        ],
    ),
    (
        "lab/fuzz",
        &[
            "access",
            "admin",
            "app",
            "delivery",
            "engine",
            "gateway",
            "http-api",
            "metrics",
            "queue",
            "rls",
            "rules",
            "server",
            "simulation",
        ],
    ),
];

/// Outside crates that only some of ours may use, beside their tests.
const KEPT_TO: &[(&str, &[&str])] = &[
    ("axum", &["app", "bench"]),
    ("h2", &["server"]),
    (
        "hyper",
        &[
            "app",
            "admin",
            "delivery",
            "forwarder",
            "gateway",
            "http-api",
            "plane",
            "retriever",
            "rls",
            "server",
            "spans",
            "throttled-service",
            "bench",
            "fuzz",
        ],
    ),
    ("hyper-util", &["app", "delivery", "gateway", "retriever", "server", "throttled-service"]),
    (
        "http",
        &[
            "access",
            "admin",
            "answers",
            "client",
            "delivery",
            "forwarder",
            "gateway",
            "http-api",
            "plane",
            "response-fields",
            "rls",
            "server",
            "spans",
            "throttled-service",
            "tower-layer",
            "bench",
            "fuzz",
        ],
    ),
    ("tonic", &["rls", "bench", "fuzz", "upstream-diff"]),
    ("redis", &["redis-link"]),
    ("rusqlite", &["capacity", "data-dir", "plane", "queue"]),
    ("tokio-postgres", &["capacity", "plane", "queue"]),
    ("object_store", &["capacity", "plane"]),
    ("quanta", &["engine", "overload"]),
    // Who waits for it must know how to: see the lock of a shard.
    ("spinning_top", &["stores", "bench"]),
    ("clap", &["app", "bench", "forward-faults", "fuzz", "simulation", "upstream-diff"]),
    ("governor", &["bench"]),
    ("limitador", &["bench"]),
    ("throttlecrab", &["bench"]),
];

/// Words for a part that many modules have, so that a crate may declare them more than once.
const ROLE_WORDS: &[&str] = &[
    "Settings", "Error", "Config", "Request", "Response", "Inner", "State", "Args", "Body",
    "Future", "Service", "Layer", "Metrics",
];

/// Nouns that only look like a participle or a gerund. The glossary adds its terms.
const NOUNS: &[&str] = &["Setting", "String", "Ring"];

/// Participles without the usual endings.
const IRREGULAR: &[&str] = &[
    "Begun", "Chosen", "Drawn", "Found", "Given", "Gone", "Held", "Kept", "Known", "Left", "Lost",
    "Met", "Said", "Seen", "Sent", "Shown", "Spent", "Taken", "Told", "Written",
];

/// The longest line of prose in a document, outside tables and code.
const PROSE_COLUMNS_MAX: usize = 120;

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

/// The type that a line declares. A declaration within a trait or an implementation is none: the trait chose its name.
fn declared_type(line: &str) -> Option<&str> {
    let line = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
    let line = line.trim_start_matches("pub(super) ");
    let (word, rest) = line.split_once(' ')?;
    let name = rest.split(|end: char| !end.is_alphanumeric()).next()?;
    let is_type = matches!(word, "struct" | "enum" | "trait" | "type");
    (is_type && name.starts_with(|first: char| first.is_uppercase())).then_some(name)
}

/// The types of a crate that its tests do not declare, each with its file.
fn declared_types(name: &str) -> Vec<(String, PathBuf)> {
    let mut files = Vec::new();
    rust_files(&root().join("crates").join(name).join("src"), &mut files);
    let mut found = Vec::new();
    for path in files.into_iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = read(&path);
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let names = code.lines().filter_map(declared_type);
        found.extend(names.map(|name| (name.to_owned(), path.clone())));
    }
    found
}

/// The terms in the first column of the glossary.
fn glossary_terms() -> Vec<String> {
    let text = read(&root().join("docs/glossary.md"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" |").next()).map(str::to_owned).collect()
}

/// Whether a name is one word that says what was done or is being done, not what the thing is.
fn is_bare_participle(name: &str) -> bool {
    let one_word = name.chars().filter(|letter| letter.is_uppercase()).count() == 1;
    let ending = name.ends_with("ed") || name.ends_with("ing");
    one_word && (ending || IRREGULAR.contains(&name)) && !NOUNS.contains(&name)
}

#[test]
fn no_type_is_named_by_a_bare_participle_or_gerund() {
    let terms = glossary_terms();
    assert!(terms.iter().any(|term| term == "Ruling"), "the glossary is read");
    let mut found = Vec::new();
    for name in crates() {
        let types = declared_types(&name).into_iter();
        let bare = types.filter(|(name, _)| is_bare_participle(name) && !terms.contains(name));
        found.extend(bare.map(|(declared, path)| format!("{}: {declared}", path.display())));
    }
    assert!(found.is_empty(), "name these by a noun, or define them in the glossary: {found:#?}");
}

#[test]
fn a_crate_declares_a_type_name_once() {
    for name in crates() {
        let mut types = declared_types(&name);
        types.retain(|(declared, _)| !ROLE_WORDS.contains(&declared.as_str()));
        types.sort();
        for pair in types.windows(2) {
            let [(first, path), (second, other)] = pair else { continue };
            let (path, other) = (path.display(), other.display());
            assert!(first != second, "{name} declares {first} twice: {path}, {other}");
        }
    }
}

#[test]
fn declarations_and_participles_are_recognized() {
    assert_eq!(declared_type("pub(crate) struct Held<'a> {"), Some("Held"));
    assert_eq!(declared_type("type Answers = Vec<Answer>;"), Some("Answers"));
    assert_eq!(declared_type("    type Output = ();"), None);
    assert_eq!(declared_type("/// struct Held"), None);
    assert!(["Held", "Watching", "Asked"].into_iter().all(is_bare_participle));
    assert!(!["Ring", "Verdict", "HeldSlot"].into_iter().any(is_bare_participle));
}

#[test]
fn prose_is_wrapped() {
    for document in documents() {
        let text = read(&document);
        let mut in_code = false;
        for (index, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            let exempt = in_code || line.trim_start().starts_with('|') || line.contains("](");
            assert!(
                exempt || line.chars().count() <= PROSE_COLUMNS_MAX,
                "{}:{} is longer than {PROSE_COLUMNS_MAX} characters",
                document.display(),
                index + 1
            );
        }
    }
}

#[test]
fn paths_in_the_maps_exist() {
    for document in documents() {
        let text = read(&document);
        for code in text.split('`').skip(1).step_by(2) {
            let is_path = code.starts_with("crates/") || code.starts_with("docs/");
            let is_pattern = code.contains(['*', '<', '{', ' ', '\n', '…']) || code == "crates/x/y";
            if is_path && !is_pattern {
                let (path, document) = (root().join(code), document.display());
                assert!(path.exists(), "{document} names {code}, which is not there");
            }
        }
    }
}

/// Every document for people, except for the history of changes.
fn documents() -> Vec<PathBuf> {
    let mut documents: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)).into();
    for directory in ["docs", "docs/decisions", "docs/guides"] {
        let entries = fs::read_dir(root().join(directory)).expect("docs are there");
        let paths = entries.map(|entry| entry.expect("readable").path());
        documents.extend(paths.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    documents
}

#[test]
fn links_between_documents_lead_somewhere() {
    let history = root().join("CHANGELOG.md");
    for document in documents().into_iter().chain([history]) {
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
