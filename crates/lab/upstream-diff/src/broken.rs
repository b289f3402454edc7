//! Broken rule files: both refuse the same ones, and log the same text.

use std::thread;
use std::time::Duration;

use tidegate_test_servers::eventually;

use crate::programs::{Backend, Programs, RunningProgram};
use crate::random::Random;

const FAILED: &str = "Error loading new configuration: ";
const REFUSED: &str = "cannot use the rules";
const LOADED: &str = "Successfully loaded new configuration";

/// Descriptors, each with one fault; a domain stands before them.
const DESCRIPTORS: &[&str] = &[
    "- {value: x}",
    "- {key: ''}",
    "- {key: a}\n- {key: a}",
    "- {key: a, value: b}\n- {key: a, value: b}",
    "- key: a\n  descriptors:\n  - {key: b}\n  - {key: b}",
    "- {key: a, rate_limit: {}}",
    "- {key: a, rate_limit: {requests_per_unit: 5}}",
    "- {key: a, rate_limit: {unit: fortnight, requests_per_unit: 1}}",
    "- {key: a, rate_limit: {unit: unknown, requests_per_unit: 1}}",
    "- {key: a, rate_limit: {unit: [day], requests_per_unit: 1}}",
    "- {key: a, rate_limit: {unit: day, unlimited: true}}",
    "- {key: a, rate_limit: {unit: day, unlimited: perhaps}}",
    "- {key: a, rate_limit: {unit: day, replaces: [{name: ''}]}}",
    "- {key: a, rate_limit: {unit: day, replaces: [{}]}}",
    "- {key: a, rate_limit: {unit: day, replaces: [one]}}",
    "- {key: a, rate_limit: {unit: day, replaces: {name: one}}}",
    "- {key: a, rate_limit: {unit: day, name: n, replaces: [{name: n}]}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: -1}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: 1.5}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: abc}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: '5'}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: [1]}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: true}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: 99999999999999999999}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: a very long text}}",
    "- {key: a, rate_limit: 5}",
    "- {key: a, rate_limit: day}",
    "- {key: a, rate_limit: [{unit: day}]}",
    "- {key: a, ratelimit: {unit: day}}",
    "- {key: a, rate_limit: {requestsperunit: 1, unit: day}}",
    "- {key: a, rate_limit: {unit: day, requests_per_unit: 1, burst_size: 3}}",
    "- {0.25: a}",
    "- {7: a}",
    "- {true: a}",
    "- {~: a}",
    "- a",
    "- 5",
    "- [a, b]",
    "- null",
    "a",
    "{key: a}",
    "- {key: a, shadow_mode: maybe}",
    "- {key: a, shadow_mode: 1}",
    "- {key: a, quota_mode: [true]}",
    "- {key: a, detailed_metric: x}",
    "- {key: a, value_to_metric: 0}",
    "- {key: a, share_threshold: 'true'}",
    "- {key: [a]}",
    "- {key: {a: b}}",
    "- {key: {key: b}}",
    "- {key: a, value: [1]}",
    "- {key: a, value: 1.5}",
    "- {key: a, descriptors: b}",
    "- {key: a, descriptors: {key: b}}",
    "- {key: a, descriptors: [b]}",
    "- {key: a, value: !!binary '***'}",
    "- {key: a",
    "- {key: a]",
    "- [key, a",
    "- key: a\n\tvalue: b",
    "- key: a\n  value: 'b",
    "- key: a\n  value: \"b",
    "- key: a\n value: b",
    "- key: a\n   value: b",
    "- key: *a",
    "- key: a: b",
    "- key: \"\\q\"",
    "- key: @a",
    "- key: `a`",
    "- key: a\n  <<: 5",
    "- key: %a",
    "-key: a",
];

/// Whole files.
const FILES: &[&str] = &[
    "",
    "# nothing",
    "descriptors: []",
    "domain:",
    "domain: ''",
    "domain: [a]",
    "domain: {a: b}",
    "domain: 1.5",
    "domains: a",
    "[1, 2]",
    "hello",
    "5",
    "domain: a\ndescriptors: 5",
    "domain: a\ndescriptors: {key: a}",
    "domain: a\n  descriptors: []",
    "domain: a: b",
    "domain: 'a",
    "\"domain",
    "}",
    "domain: a\n}",
    "a\nb: c",
];

/// Compares what both say about broken files. Returns how many files were compared, and the differences.
///
/// # Errors
/// When a program cannot be started.
pub fn compare_broken_files(
    programs: &Programs,
    seeds: u64,
) -> anyhow::Result<(usize, Vec<String>)> {
    let under = |descriptors: &&str| format!("domain: a\ndescriptors:\n{descriptors}\n");
    let mut files: Vec<String> = DESCRIPTORS.iter().map(under).collect();
    files.extend(FILES.iter().map(|file| (*file).to_owned()));
    files.extend((0..seeds).map(damaged));
    // Starting a client needs a runtime, although nothing is asked here.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let mut differences = Vec::new();
    for file in &files {
        let mut pair = programs.start(&[("broken.yaml", file)], &[], Backend::Memory)?;
        let (upstream, tidegate) = (outcome(&mut pair.upstream), outcome(&mut pair.tidegate));
        if upstream != tidegate {
            differences.push(format!("{file}\n  upstream: {upstream}\n  tidegate: {tidegate}"));
        }
    }
    Ok((files.len(), differences))
}

/// A valid file with one value replaced by another.
fn damaged(seed: u64) -> String {
    const VALUES: [&str; 10] =
        ["x", "7", "-7", "1.5", "true", "~", "[]", "{}", "[{}]", "'quoted text'"];
    let mut random = Random::new(seed);
    let file = crate::random::rules(&mut random, "a");
    let lines: Vec<&str> = file.lines().collect();
    let at = usize::try_from(random.below(lines.len() as u64)).unwrap_or_default();
    let mut damaged = String::new();
    for (index, line) in lines.iter().enumerate() {
        match line.split_once(": ") {
            Some((key, _)) if index == at => {
                damaged.push_str(&format!("{key}: {}\n", random.pick(&VALUES)));
            }
            _ => damaged.push_str(&format!("{line}\n")),
        }
    }
    damaged
}

/// The error in upstream's words.
fn failure(log: &str) -> Option<String> {
    let (_, error) = log.lines().find_map(|line| line.split_once(FAILED))?;
    // Upstream quotes its messages.
    Some(error.trim_end_matches('"').replace("\\\"", "\""))
}

/// The error that it logs about the rules, or that they are loaded.
pub(crate) fn outcome(running: &mut RunningProgram) -> String {
    eventually("the first load", || {
        let log = running.log();
        if let Some(error) = failure(&log) {
            return Some(error);
        }
        if log.contains(REFUSED) {
            // In upstream's words too, unless upstream accepts the file.
            thread::park_timeout(Duration::from_millis(300));
            return Some(failure(&running.log()).unwrap_or_else(|| "refused".to_owned()));
        }
        if log.contains(LOADED) {
            return Some("loaded".to_owned());
        }
        running.has_ended().then(|| "the process has ended".to_owned())
    })
}
