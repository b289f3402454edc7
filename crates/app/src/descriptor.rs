//! Descriptors as people type them: `user=ada path=/login -- ip=10.1.2.3`.

use std::fmt;

use serde::Serialize;
use tidegate_engine::{DESCRIPTORS_MAX, Entry, Rule};
use tidegate_rules::ShownValue;

use crate::exit::Complaint;

/// Separates two descriptors.
pub(crate) const SEPARATOR: &str = "--";

/// One key and value, as typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TypedEntry {
    key: String,
    value: String,
}

/// The entries of one descriptor, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct TypedDescriptor {
    entries: Vec<TypedEntry>,
}

impl TypedDescriptor {
    /// A descriptor that should meet a rule, with made-up values where the rule takes any.
    pub(crate) fn example(rule: &Rule) -> Self {
        let entries = rule.levels().iter().map(|level| TypedEntry {
            key: level.key().to_string(),
            value: match level.shown() {
                ShownValue::Written(text) | ShownValue::Shared(text) => text.replace('*', "1"),
                ShownValue::KeyOnly | ShownValue::Requested => "ada".to_owned(),
            },
        });
        TypedDescriptor { entries: entries.collect() }
    }

    /// Whether it can be typed without quotes.
    pub(crate) fn is_plain(&self) -> bool {
        self.entries.iter().all(|TypedEntry { key, value }| {
            !key.contains(['=', '"', ' ']) && !value.contains(['"', ' '])
        })
    }

    /// The entries of the request.
    pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
        let entries = self.entries.iter();
        entries.map(|TypedEntry { key, value }| Entry { key, value }).collect()
    }
}

impl fmt::Display for TypedDescriptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, TypedEntry { key, value }) in self.entries.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            write!(out, "{space}{key}={value}")?;
        }
        Ok(())
    }
}

/// Reads descriptors that [`SEPARATOR`] separates.
///
/// # Errors
/// When a descriptor is empty or an entry is malformed.
pub(crate) fn parse<'t>(
    typed: impl IntoIterator<Item = &'t str>,
) -> Result<Vec<TypedDescriptor>, Complaint> {
    let words: Vec<&str> = typed.into_iter().collect();
    let descriptors = words.split(|word| *word == SEPARATOR).map(|words| {
        let entries: Result<_, Complaint> = words.iter().map(|word| parse_entry(word)).collect();
        Ok(TypedDescriptor { entries: entries? })
    });
    let descriptors: Vec<TypedDescriptor> = descriptors.collect::<Result<_, Complaint>>()?;
    if descriptors.iter().any(|descriptor| descriptor.entries.is_empty()) {
        return Err(Complaint::new(
            "a descriptor has no entries",
            "give at least one, such as `user=ada`",
        ));
    }
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(Complaint::new(
            format!("{} descriptors are too many", descriptors.len()),
            format!("a request may have {DESCRIPTORS_MAX}"),
        ));
    }
    Ok(descriptors)
}

fn parse_entry(typed: &str) -> Result<TypedEntry, Complaint> {
    match typed.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok(TypedEntry { key: key.to_owned(), value: value.to_owned() })
        }
        _ => Err(Complaint::new(
            format!("`{typed}` is not an entry"),
            "write entries as KEY=VALUE, such as `user=ada`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(typed: &[&str]) -> Result<Vec<String>, String> {
        let parsed = parse(typed.iter().copied()).map_err(|complaint| complaint.message)?;
        Ok(parsed.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn reads_entries_in_order_and_descriptors_apart() {
        let typed = shown(&["user=ada", "path=/a=b", "--", "ip="]).unwrap();
        assert_eq!(typed, ["user=ada path=/a=b", "ip="]);
    }

    #[test]
    fn malformed_entries_are_refused() {
        assert_eq!(shown(&["user"]).unwrap_err(), "`user` is not an entry");
        assert_eq!(shown(&["=ada"]).unwrap_err(), "`=ada` is not an entry");
        assert_eq!(shown(&[]).unwrap_err(), "a descriptor has no entries");
        assert_eq!(shown(&["a=1", "--"]).unwrap_err(), "a descriptor has no entries");
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let typed = ["a=1", "--"].repeat(DESCRIPTORS_MAX);
        let typed = [typed.as_slice(), &["a=1"]].concat();
        assert_eq!(shown(&typed).unwrap_err(), "1001 descriptors are too many");
    }
}
