//! Names that become a shorter name and tags.
//!
//! envoyproxy/ratelimit calls this a mogrifier: a regular expression, a name and tags in which `$1` stands for the text of
//! the first group. The first one that matches a name rewrites it.

use regex::{Captures, Regex};

/// A rewrite of names.
#[derive(Clone, Debug)]
pub struct Mogrifier {
    pattern: Regex,
    name: String,
    tags: Vec<(String, String)>,
}

/// A mogrifier that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MogrifierError {
    /// Its pattern is empty or no regular expression.
    #[error("the pattern `{0}` is not a regular expression")]
    Pattern(String, #[source] Option<Box<regex::Error>>),
    /// It has no name.
    #[error("it has no name")]
    NoName,
    /// A tag has no key or no value.
    #[error("the tag `{0}` has no key or no value")]
    Tag(String),
}

impl Mogrifier {
    /// A rewrite of names that match the pattern.
    ///
    /// # Errors
    /// When the pattern, the name or a tag is missing or malformed.
    pub fn new(
        pattern: &str,
        name: &str,
        tags: Vec<(String, String)>,
    ) -> Result<Self, MogrifierError> {
        if pattern.is_empty() {
            return Err(MogrifierError::Pattern(String::new(), None));
        }
        let compiled = Regex::new(pattern)
            .map_err(|error| MogrifierError::Pattern(pattern.to_owned(), Some(Box::new(error))))?;
        if name.is_empty() {
            return Err(MogrifierError::NoName);
        }
        if let Some((key, value)) =
            tags.iter().find(|(key, value)| key.is_empty() || value.is_empty())
        {
            return Err(MogrifierError::Tag(format!("{key}:{value}")));
        }
        Ok(Mogrifier { pattern: compiled, name: name.to_owned(), tags })
    }

    /// The new name and its tags, if the name matches.
    pub(crate) fn rewrite(&self, name: &str) -> Option<(String, Vec<(String, String)>)> {
        let groups = self.pattern.captures(name)?;
        let tags = self.tags.iter().map(|(key, value)| (key.clone(), fill(value, &groups)));
        Some((fill(&self.name, &groups), tags.collect()))
    }
}

/// Replaces `$0`, `$1`, … by the groups. A number without a group stays as it is.
fn fill(template: &str, groups: &Captures<'_>) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = after.split_at(digits);
        let index = number.parse().ok().filter(|index: &usize| *index < groups.len());
        match index {
            Some(index) => filled.push_str(groups.get(index).map_or("", |group| group.as_str())),
            None => {
                filled.push('$');
                filled.push_str(number);
            }
        }
        rest = after;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn groups_become_the_name_and_tags() {
        let pattern = r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$";
        let tags = vec![tag("domain", "$1"), tag("descriptor", "$2")];
        let mogrifier = Mogrifier::new(pattern, "ratelimit.$3", tags).unwrap();
        let (name, tags) =
            mogrifier.rewrite("ratelimit.service.rate_limit.api.user.ip.over_limit").unwrap();
        assert_eq!(name, "ratelimit.over_limit");
        assert_eq!(tags, [tag("domain", "api"), tag("descriptor", "user.ip")]);
        assert!(mogrifier.rewrite("ratelimit_server.total").is_none());
    }

    #[test]
    fn a_number_without_a_group_stays() {
        let mogrifier = Mogrifier::new("^a(b)?", "$0.$1.$2.$", Vec::new()).unwrap();
        assert_eq!(mogrifier.rewrite("ac").unwrap().0, "a..$2.$");
    }

    #[test]
    fn missing_parts_are_errors() {
        assert!(matches!(Mogrifier::new("", "a", Vec::new()), Err(MogrifierError::Pattern(..))));
        assert!(matches!(Mogrifier::new("(", "a", Vec::new()), Err(MogrifierError::Pattern(..))));
        assert!(matches!(Mogrifier::new("a", "", Vec::new()), Err(MogrifierError::NoName)));
        let empty = Mogrifier::new("a", "b", vec![tag("", "x")]);
        assert!(matches!(empty, Err(MogrifierError::Tag(_))));
    }
}
