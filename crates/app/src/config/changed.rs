//! Which fields of two configurations differ.

use serde_json::Value;

use super::fields::Config;
use super::section::Entry;

/// The fields that have another value in `other`, by their paths. Secrets all look the same.
pub fn changed(config: &Config, other: &Config) -> Vec<String> {
    let (before, after) = (values(config), values(other));
    let pairs = before.into_iter().zip(after);
    pairs.filter(|(before, after)| before != after).map(|((path, _), _)| path).collect()
}

fn values(config: &Config) -> Vec<(String, Value)> {
    let mut config = config.clone();
    let entries = config.entries().into_iter();
    let fields = entries.filter_map(|entry| match entry {
        Entry::Field(field) => Some((field.path, field.value.shown())),
        Entry::Section { .. } => None,
    });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_differ_are_named_and_others_are_not() {
        let config = Config::default();
        assert_eq!(changed(&config, &config.clone()), Vec::<String>::new());
        let mut other = config.clone();
        other.gateway.connections_max = 7;
        other.overload.capacity = Some(5);
        assert_eq!(changed(&config, &other), ["gateway.connections_max", "overload.capacity"]);
    }
}
