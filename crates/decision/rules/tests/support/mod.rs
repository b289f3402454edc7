//! What several tests need: compiling a text, asking it, showing what it found.
#![allow(dead_code, reason = "each test uses a part")]

use tidegate_rules::{
    Entry, KeyValue, MatchedRule, Options, Report, Snapshot, Source, Timestamp, compile,
};

pub(crate) fn try_compile(text: &str) -> Result<Snapshot, Report> {
    compile(&[Source::new("rules.yaml", text)], &Options::default())
}

pub(crate) fn compiled(text: &str) -> Snapshot {
    try_compile(text).unwrap_or_else(|report| panic!("{report}"))
}

pub(crate) fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Entry<'a>> {
    let entry = |(key, value): &(&'a str, &'a str)| Entry { key, value };
    pairs.iter().map(entry).collect()
}

/// What a request finds in the first domain.
pub(crate) fn find<'s, 'r>(
    snapshot: &'s Snapshot,
    request: &[(&'r str, &'r str)],
) -> Option<MatchedRule<'s, 'r>> {
    snapshot.domains().next()?.find(&entries(request), Timestamp::EPOCH)
}

/// The path of the rule that a request meets, and the values it is counted by.
pub(crate) fn found(rules: &str, request: &[(&str, &str)]) -> String {
    let snapshot = compiled(rules);
    let Some(found) = find(&snapshot, request) else {
        return "none".to_owned();
    };
    let values: Vec<String> = found.values.iter().map(show).collect();
    match values.as_slice() {
        [] => found.rule.path().to_owned(),
        values => format!("{} [{}]", found.rule.path(), values.join(", ")),
    }
}

pub(crate) fn show(value: &KeyValue<'_>) -> String {
    match value {
        KeyValue::Text(text) => (*text).to_owned(),
        KeyValue::Net(net) => net.to_string(),
    }
}
