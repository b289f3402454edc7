use std::time::Duration;

use proptest::prelude::*;
use tidegate_capacity::{Dimension, TargetLimit};
use tidegate_document::Presence;
use tidegate_queue::{OrderMode, QueueSettings};

use super::*;
use crate::retry::AmbiguousRule;

const SMALLEST: &str = "
targets: [{name: database, limits: [{units: 20000, per: 1s}]}]
types: [{name: records, target: database, http: {url: 'https://database.example.com/records'}}]
";

fn read(text: &str) -> Result<ForwardDocument, String> {
    ForwardDocument::read(Source::new("forward.yaml", text)).map_err(|report| report.to_string())
}

#[track_caller]
fn refused(text: &str, message: &str) {
    let report = read(text).unwrap_err();
    assert!(report.contains(message), "{report}");
}

#[test]
fn a_small_document_has_the_defaults_of_the_library() {
    let document = read(SMALLEST).unwrap();
    let limits = tidegate_capacity::TargetLimits::new(vec![TargetLimit::per_second(
        Dimension::Units,
        20_000,
    )]);
    assert_eq!(document.targets, [Target::new("database", limits.unwrap())]);
    let [plan] = document.types.as_slice() else { panic!("{document:?}") };
    assert_eq!(plan.settings, TypeSettings::new("records"));
    let ProcessorPlan::Http(http) = &plan.processor else { panic!("{plan:?}") };
    let defaults = tidegate_delivery::HttpSettings::post(http.settings.url.clone());
    assert_eq!(format!("{:?}", http.settings), format!("{defaults:?}"));
    assert!(document.warnings.is_empty() && document.tenants.is_empty());
}

#[test]
fn every_default_of_the_declaration_changes_nothing() {
    // Writes each default of a mapping as it is declared.
    let written = |name: &str, except: &[&str]| {
        let mapping = DocumentKeys::mapping().reachable();
        let mapping = mapping.into_iter().find(|mapping| mapping.name == name).unwrap();
        let keys = mapping.keys.iter().filter(|key| !except.contains(&key.name));
        let pairs = keys.filter_map(|key| match key.presence {
            Presence::Default(text) => Some(format!("{}: {text}", key.name)),
            Presence::Required | Presence::Optional => None,
        });
        pairs.collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "targets: [{{name: database, limits: [{{units: 20000, per: 1s}}], {}}}]\n\
         types: [{{name: records, target: database, {}, queue: {{{}}}, retry: {{{}}}, http: {{url: \
         'https://database.example.com/records', {}, timeouts: {{{}}}}}}}]\n",
        written("target", &[]),
        written("type", &[]),
        written("queue", &[]),
        written("retry", &[]),
        written("http", &[]),
        written("timeouts", &[]),
    );
    let (long, short) = (read(&text).unwrap(), read(SMALLEST).unwrap());
    assert_eq!(format!("{long:?}"), format!("{short:?}"));
}

#[test]
fn everything_can_be_written() {
    let document = read(include_str!("everything.yaml")).unwrap();
    let [target] = document.targets.as_slice() else { panic!("{document:?}") };
    let limits = [
        TargetLimit::per_second(Dimension::Operations, 20),
        TargetLimit::per_minute(Dimension::Bytes, 2 << 30),
        TargetLimit::per_second(Dimension::Units, 20_000),
        TargetLimit::per_day(Dimension::Units, 100_000_000),
    ];
    assert_eq!(target.limits.limits(), limits);
    assert_eq!((target.limits.slots(), target.utilisation_ppm), (20, 950_000));
    assert_eq!(target.pools.len(), 2);
    let [orders, thumbnails] = document.types.as_slice() else { panic!("{document:?}") };
    assert_eq!(orders.settings.store_lost, StoreLost::SafeShare);
    assert_eq!(orders.settings.on_ambiguous, AmbiguousRule::Bury);
    assert_eq!(orders.settings.queue.order, OrderMode::Key);
    assert_eq!(orders.settings.queue.age_max, None);
    assert_eq!(thumbnails.settings.queue, QueueSettings::default());
    let ProcessorPlan::Http(http) = &orders.processor else { panic!("{orders:?}") };
    assert_eq!(http.settings.headers.len(), 1);
    assert_eq!((http.field_files.len(), http.signing_secrets.len()), (1, 1));
    assert_eq!(http.settings.bulk.map(|bulk| bulk.records_max), Some(50));
    let ProcessorPlan::Command(command) = &thumbnails.processor else { panic!("{thumbnails:?}") };
    assert_eq!(command.timeout, Duration::from_secs(20));
    assert_eq!(document.kept_secrets, ["authorization"]);
    assert_eq!(document.tenants.get("acme-token").map(String::as_str), Some("acme"));
}

#[test]
fn mistakes_that_would_send_nothing_or_everything_are_errors() {
    refused("", "the document is empty");
    refused("targets: []\ntypes: []\n", "there is no record type");
    let with = |was: &str, is: &str| SMALLEST.replacen(was, is, 1);
    refused(&with("target: database", "target: databse"), "did you mean `database`?");
    refused(&with("units: 20000", "unts: 20000"), "did you mean `units`?");
    refused(&with("{units: 20000, per: 1s}", "{per: 1s}"), "the limit has no amount");
    refused(&with("units: 20000", "units: 1, operations: 2"), "exclude each other");
    refused(&with("per: 1s", "per: 1d"), "needs a limit over at most");
    refused(
        &with("{units: 20000, per: 1s}", "{operations: 9, per: 1s}, {units: 9, per: 90d}"),
        "a window must be between",
    );
    refused(&with("name: database", "name: 'the database'"), "has 1 to 64 letters");
    refused(&with("http: {", "pool: imports, http: {"), "has no pool `imports`");
    refused(&with("https://database", "http://user:secret@database"), "a user name or a password");
    refused(&with("https://database.example.com", "http://127.0.0.1:9"), "is not public");
    refused(&with("http: {url:", "shell: {url:"), "unknown");
    let (front, _) = SMALLEST.split_once(", http:").unwrap();
    refused(&format!("{front}}}]\n"), "the type has no processor");
    refused(&with("http: {", "attempt_timeout: 10s, http: {"), "cut off before the timeout");
    refused(&with("http: {", "queue: {weights: [1, 2]}, http: {"), "there are four classes");
    let twice =
        with("types: [", "types: [{name: records, target: database, command: {program: a}}, ");
    refused(&twice, "there are two types `records`");
}

#[test]
fn no_message_repeats_a_password_of_a_url() {
    let text = SMALLEST.replace("https://database", "http://user:hunter2@database");
    let message = read(&text).unwrap_err();
    // The snippet shows the line of the file, as for every problem; the message does not.
    let sentence = message.lines().next().unwrap();
    assert!(!sentence.contains("hunter2"), "{sentence}");
}

#[test]
fn a_target_without_types_is_a_warning() {
    let text = SMALLEST.replacen(
        "targets: [",
        "targets: [{name: spare, limits: [{units: 1, per: 1s}]}, ",
        1,
    );
    let document = read(&text).unwrap();
    let [warning] = document.warnings.as_slice() else { panic!("{:?}", document.warnings) };
    assert!(warning.message.contains("no type sends to the target `spare`"), "{warning:?}");
}

#[test]
fn secrets_come_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (token, secret) =
        (file("token", "Bearer abc\n"), file("secret", "sixteen bytes or more\n"));
    let text = SMALLEST.replacen(
        "http: {",
        &format!("http: {{headers: [{{name: Authorization, value_file: '{token}'}}], signing_secrets: ['{secret}'], "),
        1,
    );
    let plan = read(&text).unwrap().types.remove(0).processor;
    assert!(!format!("{plan:?}").contains("abc"));
    assert!(plan.build().is_ok());
    file("secret", "short");
    let error = plan.build().err().unwrap().to_string();
    assert!(error.contains("at least 16 bytes"), "{error}");
    std::fs::remove_file(&secret).unwrap();
    let error = plan.build().err().unwrap().to_string();
    assert!(error.contains("cannot read"), "{error}");
}

#[test]
fn every_mapping_has_a_name_of_its_own_and_keys_that_differ() {
    let mappings = DocumentKeys::mapping().reachable();
    for (index, mapping) in mappings.iter().enumerate() {
        assert!(!mappings.iter().take(index).any(|other| other.name == mapping.name));
        let mut names: Vec<&str> = mapping.names().collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), mapping.keys.len(), "{}", mapping.name);
    }
    assert_eq!(mappings.len(), 16);
}

proptest! {
    #[test]
    fn damaged_documents_are_read_or_refused(
        at in 0_usize..2_200,
        length in 0_usize..40,
        put in "[-a-z0-9:{}\\[\\], '\"#&*!|>%@\n\u{e9}]{0,20}",
    ) {
        let text = include_str!("everything.yaml");
        let cut = |index: usize| text.floor_char_boundary(index.min(text.len()));
        let damaged = format!("{}{put}{}", &text[..cut(at)], &text[cut(at + length)..]);
        if let Err(report) = read(&damaged) {
            prop_assert!(report.contains("error"), "{report}");
        }
    }
}
