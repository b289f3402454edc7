//! Compares the matcher with a slow, simple one on random rules and requests.

mod support;

use proptest::prelude::*;
use support::{compiled, entries, show};
use tidegate_rules::Timestamp;

/// A descriptor as written.
#[derive(Clone, Debug)]
struct DescriptorText {
    key: String,
    value: Value,
    share: bool,
    limited: bool,
    children: Vec<DescriptorText>,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Any,
    Text(String),
    Cidr(String),
}

impl DescriptorText {
    fn yaml(&self) -> serde_json::Value {
        let mut yaml = serde_json::json!({"key": self.key});
        match &self.value {
            Value::Any => {}
            Value::Text(text) => yaml["value"] = text.as_str().into(),
            Value::Cidr(range) => yaml["cidr"] = range.as_str().into(),
        }
        if self.limited {
            yaml["rate_limit"] = serde_json::json!({"unit": "second", "requests_per_unit": 1});
        }
        if self.shares() {
            yaml["share_threshold"] = true.into();
        }
        yaml["descriptors"] = self.children.iter().map(DescriptorText::yaml).collect();
        yaml
    }

    fn is_pattern(&self) -> bool {
        matches!(&self.value, Value::Text(text) if text.contains('*'))
    }

    fn shares(&self) -> bool {
        self.share && (self.is_pattern() || matches!(self.value, Value::Cidr(_)))
    }

    fn label(&self) -> String {
        match &self.value {
            Value::Any => self.key.clone(),
            Value::Text(text) | Value::Cidr(text) => format!("{}_{text}", self.key),
        }
    }
}

/// Tries every length for every star.
fn is_like(pattern: &[char], value: &[char]) -> bool {
    match pattern.split_first() {
        None => value.is_empty(),
        Some(('*', rest)) => (0..=value.len()).any(|skip| is_like(rest, &value[skip..])),
        Some((char, rest)) => value.first() == Some(char) && is_like(rest, &value[1..]),
    }
}

/// The ranges used here are 10.0.0.0/8, 10.1.0.0/16 and 10.1.1.0/24: the prefix
/// of the text says whether an address is inside.
fn range_length(range: &str, value: &str) -> Option<usize> {
    value.parse::<std::net::Ipv4Addr>().ok()?;
    let (start, length) = match range {
        "10.0.0.0/8" => ("10.", 8),
        "10.1.0.0/16" => ("10.1.", 16),
        _ => ("10.1.1.", 24),
    };
    value.starts_with(start).then_some(length)
}

fn step<'w>(level: &'w [DescriptorText], key: &str, value: &str) -> Option<&'w DescriptorText> {
    let of_key = || level.iter().filter(|written| written.key == key);
    let exact = of_key().find(|written| written.value == Value::Text(value.to_owned()));
    let like = || {
        of_key().find(|written| match &written.value {
            Value::Text(text) if text.contains('*') => {
                let chars = |text: &str| text.chars().collect::<Vec<_>>();
                is_like(&chars(text), &chars(value))
            }
            _ => false,
        })
    };
    let within = || {
        let length = |written: &&DescriptorText| match &written.value {
            Value::Cidr(range) => range_length(range, value),
            _ => None,
        };
        of_key().filter(|written| length(written).is_some()).max_by_key(length)
    };
    let bare = || of_key().find(|written| written.value == Value::Any);
    exact.or_else(like).or_else(within).or_else(bare)
}

/// The path and the values, as in [`support::found`].
fn reference(
    rules: &[DescriptorText],
    request: &[(String, String)],
) -> Option<(String, Vec<String>)> {
    let mut level = rules;
    let mut path = Vec::new();
    let mut values = Vec::new();
    let mut limited = false;
    for (key, value) in request {
        let written = step(level, key, value)?;
        path.push(written.label());
        match &written.value {
            _ if written.shares() => {}
            Value::Text(_) if !written.is_pattern() => {}
            Value::Cidr(_) => values.push(format!("{value}/32")),
            _ => values.push(value.clone()),
        }
        limited = written.limited;
        level = &written.children;
    }
    limited.then(|| (path.join("."), values))
}

/// Removes descriptors that would be duplicates, at any level.
fn unique(level: Vec<DescriptorText>) -> Vec<DescriptorText> {
    let mut kept: Vec<DescriptorText> = Vec::new();
    for mut written in level {
        written.children = unique(written.children);
        let taken =
            |other: &DescriptorText| other.key == written.key && other.value == written.value;
        if !kept.iter().any(taken) {
            kept.push(written);
        }
    }
    kept
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => Just(Value::Any),
        3 => "[ab_]{1,2}".prop_map(Value::Text),
        4 => "[ab]{0,1}\\*[ab]{0,1}\\*?".prop_map(Value::Text),
        2 => prop::sample::select(vec!["10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24"])
            .prop_map(|range| Value::Cidr(range.to_owned())),
    ]
}

fn level() -> impl Strategy<Value = Vec<DescriptorText>> {
    let leaf = ("[ab](_[ab])?", value(), any::<bool>(), any::<bool>()).prop_map(
        |(key, value, share, limited)| DescriptorText {
            key,
            value,
            share,
            limited,
            children: Vec::new(),
        },
    );
    let tree = leaf.prop_recursive(3, 60, 8, |inner| {
        let limits = ("[ab]", value(), any::<bool>(), any::<bool>());
        (limits, prop::collection::vec(inner, 0..12)).prop_map(
            |((key, value, share, limited), children)| DescriptorText {
                key,
                value,
                share,
                limited,
                children,
            },
        )
    });
    // More than eight patterns of one key get an index.
    prop::collection::vec(tree, 0..30).prop_map(unique)
}

fn request() -> impl Strategy<Value = Vec<(String, String)>> {
    let value = prop_oneof![
        4 => "[ab_*]{0,3}",
        1 => Just("10.1.1.9".to_owned()),
        1 => Just("10.1.2.9".to_owned()),
        1 => Just("10.2.2.9".to_owned()),
        1 => Just("192.0.2.1".to_owned()),
    ];
    prop::collection::vec(("[ab](_[ab])?", value), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn finds_what_the_slow_matcher_finds(
        rules in level(),
        requests in prop::collection::vec(request(), 1..40),
    ) {
        let descriptors: Vec<_> = rules.iter().map(DescriptorText::yaml).collect();
        // JSON is YAML.
        let text = serde_json::json!({"domain": "d", "descriptors": descriptors}).to_string();
        let snapshot = compiled(&text);
        let domain = snapshot.domain("d").unwrap();
        for request in &requests {
            let pairs: Vec<(&str, &str)> =
                request.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let found = domain.find(&entries(&pairs), Timestamp::EPOCH).map(|found| {
                let values = found.values.iter().map(show).collect::<Vec<_>>();
                (found.rule.path().to_owned(), values)
            });
            prop_assert_eq!(found, reference(&rules, request), "{:?} in {}", request, text);
        }
    }
}
