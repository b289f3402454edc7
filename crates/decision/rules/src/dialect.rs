//! How rule files report unknown keys, and what envoyproxy/ratelimit would say.

use tidegate_document::{
    Dialect, Fault, Key, MappingType, NodeId, NodeKind, PlainValue, ReadProblem, Reader, closest,
    did_you_mean,
};

use crate::table::{DescriptorKeys, all_keys, homes_of, is_upstream, is_upstream_mapping};

/// Words of other rate limiters, and the keys for them here.
static FOREIGN_WORDS: &[(&str, &str)] = &[
    ("limit", "requests_per_unit"),
    ("requests", "requests_per_unit"),
    ("rate", "requests_per_unit"),
    ("count", "requests_per_unit"),
    ("max", "requests_per_unit"),
    ("window", "per"),
    ("period", "per"),
    ("interval", "per"),
    ("duration", "per"),
    ("ttl", "time_to_live"),
    ("rules", "descriptors"),
    ("shadow", "shadow_mode"),
    ("dry_run", "shadow_mode"),
    ("type", "algorithm"),
    ("strategy", "algorithm"),
    ("tz", "time_zone"),
    ("ip", "cidr"),
];

/// The dialect of rule files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleDialect;

impl Dialect for RuleDialect {
    fn items_max(&self) -> usize {
        // The size of a file and the number of its nodes are bounded already.
        usize::MAX
    }

    fn unknown_key(
        &self,
        reader: &mut Reader<'_, '_>,
        mapping: &'static MappingType,
        name: &str,
        key: NodeId,
        value: NodeId,
    ) {
        let location = reader.yaml().location(key);
        let Some((home, known)) = homes_of(name).next() else {
            return unknown_key(reader, mapping, name, key);
        };
        let hint = format!("it belongs in {}", home.title);
        if is_upstream(known) && is_upstream_mapping(mapping) {
            // envoyproxy/ratelimit accepts its keys in any mapping, and ignores them in the wrong one.
            let message = format!("`{name}` has no effect in {}", mapping.title);
            reader.warn_at(location, Fault::new("misplaced_key", message).hint(hint));
            if name != "metadata" {
                check_ignored(reader, value);
            }
            return;
        }
        let message = format!("`{name}` does not belong in {}", mapping.title);
        let fault = Fault::new("misplaced_key", message)
            .hint(hint)
            .compat(format!("config error, unknown key '{name}'"));
        reader.error_at(location, fault);
    }

    fn missing_key(
        &self,
        _: &mut Reader<'_, '_>,
        _: &MappingType,
        _: &Key,
        _: tidegate_document::Location,
    ) {
        // Reported where the key is used, because null and an empty text are missing too.
    }

    fn compat_message(&self, misread: &ReadProblem<'_>) -> Option<String> {
        match *misread {
            ReadProblem::KeyNotText { text } => {
                Some(format!("config error, key is not of type string: {text}"))
            }
            ReadProblem::ItemNotMapping { text } => Some(format!(
                "config error, yaml file contains list of type other than map: {text}"
            )),
            ReadProblem::WrongType { key, expected, found } if is_upstream(key) => {
                Some(format!("error loading config file: expected {expected}, found {found}"))
            }
            ReadProblem::Value { key, fault } if is_upstream(key) => match fault.code() {
                // envoyproxy/ratelimit refuses fractions before it looks at types.
                "wrong_type" if fault.message().ends_with("a number with a fraction") => {
                    Some("error checking config".to_owned())
                }
                "wrong_type" => Some(format!("error loading config file: {}", fault.message())),
                "out_of_range" | "not_whole" => Some("error checking config".to_owned()),
                _ => None,
            },
            ReadProblem::Value { fault, .. } if fault.code() == "not_whole" => {
                Some("error checking config".to_owned())
            }
            ReadProblem::WrongType { .. } | ReadProblem::Value { .. } => None,
        }
    }
}

fn unknown_key(
    reader: &mut Reader<'_, '_>,
    mapping: &'static MappingType,
    name: &str,
    key: NodeId,
) {
    let hint = (!reader.is_full()).then(|| suggestion(mapping, name));
    let fault = Fault::new("unknown_key", format!("unknown key `{name}` in {}", mapping.title))
        .maybe_hint(hint)
        .compat(format!("config error, unknown key '{name}'"));
    reader.error_at(reader.yaml().location(key), fault);
}

/// What an unknown key was probably meant to be.
fn suggestion(mapping: &'static MappingType, name: &str) -> String {
    let foreign = FOREIGN_WORDS
        .iter()
        .find(|(word, ours)| *word == name && mapping.names().any(|name| name == *ours));
    if let Some((_, ours)) = foreign {
        return format!("use `{ours}`");
    }
    if let Some(question) = did_you_mean(name, mapping.names()) {
        return question;
    }
    if let Some(word) = closest(name, all_keys().map(|(_, key)| key.name)) {
        let home = homes_of(word).next().map_or("", |(home, _)| home.title);
        return format!("did you mean `{word}`, which belongs in {home}?");
    }
    format!("the keys are {}", mapping.names().collect::<Vec<_>>().join(", "))
}

/// Checks a part that has no effect as far as envoyproxy/ratelimit does: it refuses a file for what is wrong there,
/// so we do too.
fn check_ignored(reader: &mut Reader<'_, '_>, node: NodeId) {
    let yaml = reader.yaml();
    match &yaml.node(node).kind {
        NodeKind::Scalar(scalar) => {
            if matches!(scalar.plain(), PlainValue::Float(_)) {
                let fault = Fault::new("not_whole", "a number with a fraction has no meaning here")
                    .hint("put quotes around it to make it text")
                    .compat("error checking config");
                reader.error_at(yaml.location(node), fault);
            }
        }
        NodeKind::Sequence(items) => {
            for item in yaml.items(*items) {
                if matches!(yaml.node(*item).kind, NodeKind::Mapping(_)) {
                    check_ignored(reader, *item);
                    continue;
                }
                let text = yaml.scalar(*item).map_or("", |scalar| &*scalar.text);
                let found = yaml.describe(*item);
                let fault =
                    Fault::new("item_not_mapping", format!("expected a mapping, found {found}"))
                        .maybe_compat(
                            RuleDialect.compat_message(&ReadProblem::ItemNotMapping { text }),
                        );
                reader.error_at(yaml.location(*item), fault);
            }
        }
        NodeKind::Mapping(_) => {
            for (key, value) in reader.pairs(node).unwrap_or_default() {
                let Some(name) = reader.key_name(key) else { continue };
                if homes_of(name).next().is_none() {
                    unknown_key(reader, DescriptorKeys::mapping(), name, key);
                } else if name != "metadata" {
                    check_ignored(reader, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_lead_to_keys_that_exist() {
        for (word, ours) in FOREIGN_WORDS {
            assert!(homes_of(word).next().is_none(), "{word} is a key");
            assert!(homes_of(ours).next().is_some(), "{ours} is no key");
        }
    }
}
