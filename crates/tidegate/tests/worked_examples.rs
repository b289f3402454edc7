//! docs/worked-examples.md is true: every table is played on a clock set by hand, and every named test exists.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{
    Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, Nanos, Options, Permit,
    Request, Snapshot, Source, Tenure, Timestamp, compile,
};

/// Every window of every length up to a week begins here.
const START: Timestamp = Timestamp::from_secs(2_900 * 7 * 86_400);

type PlayedEngine = Engine<MemoryStore, Arc<ManualClock>>;

/// The rules of an example and its tables' rows, as cells by column.
#[derive(Debug)]
struct Example {
    title: String,
    rules: String,
    rows: Vec<BTreeMap<String, String>>,
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/worked-examples.md");
    std::fs::read_to_string(path).expect("the page is there")
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The examples of a page: each block of rules with the table below it.
fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let (mut title, mut columns) = (String::new(), Vec::new());
    let mut inside = false;
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            title = heading.trim_start_matches('#').trim().to_owned();
        } else if line == "```yaml" {
            inside = true;
            examples.push(Example { title: title.clone(), rules: String::new(), rows: Vec::new() });
        } else if line == "```" {
            inside = false;
        } else if let (true, Some(example)) = (inside, examples.last_mut()) {
            example.rules += &format!("{line}\n");
        } else if !line.starts_with('|') {
            columns.clear();
        } else if columns.is_empty() {
            columns = cells(line);
        } else if let (Some("time"), Some(example)) =
            (columns.first().map(String::as_str), examples.last_mut())
            && !line.starts_with("|-")
        {
            example.rows.push(columns.iter().cloned().zip(cells(line)).collect());
        }
    }
    examples
}

/// Hours, minutes and seconds after the start.
fn instant(text: &str) -> Timestamp {
    let parts: Vec<f64> = text.split(':').map(|part| part.parse().expect(text)).collect();
    let [hours, minutes, seconds] = parts[..] else { panic!("`{text}` is no time") };
    let since = Duration::from_secs_f64(hours * 3_600.0 + minutes * 60.0 + seconds);
    START.after(Nanos::from_millis(u64::try_from(since.as_millis()).expect("few weeks")))
}

/// What the requests of one row met.
#[derive(Debug, Default)]
struct Played {
    admitted: u64,
    left: Option<u64>,
    longest_wait: Nanos,
    refused_by: Option<String>,
}

/// Plays the rows of one example.
struct Player {
    engine: Arc<PlayedEngine>,
    clock: Arc<ManualClock>,
    domain: String,
    held: VecDeque<Permit<MemoryStore, Arc<ManualClock>>>,
}

impl Player {
    fn new(rules: &str) -> Self {
        let compiled: Result<Snapshot, _> =
            compile(&[Source::new("worked-examples.md", rules)], &Options::default());
        let snapshot = compiled.unwrap_or_else(|report| panic!("{report}"));
        let domain = rules.lines().find_map(|line| line.strip_prefix("domain: "));
        let clock = Arc::new(ManualClock::at(START));
        let store = MemoryStore::new(MemoryConfig::default()).expect("the defaults are right");
        let engine = Engine::new(store, Arc::clone(&clock)).with_rules(snapshot);
        let domain = domain.expect("the rules have a domain").to_owned();
        Player { engine: Arc::new(engine), clock, domain, held: VecDeque::new() }
    }

    fn play(&mut self, request: &str, sent: u64) -> Played {
        if request.starts_with("release ") {
            let sent = usize::try_from(sent).expect("few");
            assert!(sent <= self.held.len(), "only {} are held", self.held.len());
            self.held.drain(..sent);
            return Played::default();
        }
        let (request, holds) =
            request.strip_prefix("hold ").map_or((request, false), |rest| (rest, true));
        let entries: Vec<Entry<'_>> = request
            .split(", ")
            .map(|entry| entry.split_once('=').expect("an entry is `key=value`"))
            .map(|(key, value)| Entry { key, value })
            .collect();
        let descriptors = [Descriptor::new(&entries)];
        let request = Request::new(&self.domain, &descriptors);
        let mut played = Played::default();
        for _ in 0..sent {
            let (verdict, permit) = self.engine.admit_now(&request, Tenure::default());
            played.left = verdict.tightest().map(|ruling| ruling.decision.remaining);
            if let Some(refusal) = verdict.refusal() {
                played.refused_by = Some(refusal.limit.unwrap_or(refusal.path).to_owned());
                continue;
            }
            played.admitted += 1;
            played.longest_wait = played.longest_wait.max(verdict.delay());
            if holds {
                self.held.push_back(permit);
            }
        }
        played
    }
}

#[test]
fn every_table_is_what_the_rules_decide() {
    let examples = examples(&page());
    assert!(examples.len() >= 22, "the page has {} examples", examples.len());
    for Example { title, rules, rows } in &examples {
        assert!(!rows.is_empty(), "{title}: no table");
        let mut player = Player::new(rules);
        for row in rows {
            player.clock.set(instant(&row["time"]));
            let played = player.play(&row["request"], row["sent"].parse().expect("a number"));
            let what = format!("{title}: {row:?}");
            if !row["request"].starts_with("release ") {
                assert_eq!(played.admitted.to_string(), row["admitted"], "{what}");
            }
            if let Some(left) = row.get("left") {
                assert_eq!(played.left.map(|left| left.to_string()).as_ref(), Some(left), "{what}");
            }
            if let Some(wait) = row.get("longest wait") {
                let longest = played.longest_wait;
                let longest =
                    if longest == Nanos::ZERO { "none".to_owned() } else { longest.to_string() };
                assert_eq!(longest, *wait, "{what}");
            }
            if let Some(limit) = row.get("refused by") {
                assert_eq!(played.refused_by.unwrap_or_default(), *limit, "{what}");
            }
        }
    }
}

#[test]
fn every_test_that_the_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = page();
    let named = page.lines().filter(|line| line.starts_with('|') && line.contains("`crates/"));
    let mut count = 0;
    for line in named {
        let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let [path, test] = quoted[..] else { panic!("a path and a test are missing: {line}") };
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        assert!(text.contains(&format!("fn {test}(")), "{path} has no test `{test}`");
        count += 1;
    }
    assert!(count >= 5, "the page names {count} tests");
}
