//! Path templates: `/users/{id}/orders`, `/files/{*rest}`.

use super::Parameters;

/// A path with names for some of its segments.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    text: Box<str>,
    segments: Box<[Segment]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Fixed(Box<str>),
    /// Any one segment that is not empty.
    Named(Box<str>),
    /// All the rest, at the end only.
    Rest(Box<str>),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("`{0}` does not begin with a slash")]
    NoSlash(String),
    #[error("`{0}` has a brace that does not enclose a whole segment's name")]
    Brace(String),
    #[error("`{0}` has something behind the rest")]
    BehindRest(String),
}

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        let Some(inside) = text.strip_prefix('/') else {
            return Err(TemplateError::NoSlash(text.to_owned()));
        };
        let mut segments = Vec::new();
        for segment in inside.split('/') {
            if matches!(segments.last(), Some(Segment::Rest(_))) {
                return Err(TemplateError::BehindRest(text.to_owned()));
            }
            let name = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
            let parsed = match name {
                Some(name) => match name.strip_prefix('*') {
                    Some(rest) => Segment::Rest(rest.into()),
                    None => Segment::Named(name.into()),
                },
                None => Segment::Fixed(segment.into()),
            };
            let (Segment::Fixed(inner) | Segment::Named(inner) | Segment::Rest(inner)) = &parsed;
            if inner.contains(['{', '}']) || (name.is_some() && inner.is_empty()) {
                return Err(TemplateError::Brace(text.to_owned()));
            }
            segments.push(parsed);
        }
        Ok(Template { text: text.into(), segments: segments.into() })
    }

    /// The template as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it names a segment so.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| match segment {
            Segment::Named(other) | Segment::Rest(other) => **other == *name,
            Segment::Fixed(_) => false,
        })
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        self.walk(path, |_, _| {})
    }

    /// What the names stand for in this path, if it matches.
    pub(crate) fn read<'p>(&'p self, path: &'p str) -> Option<Parameters<'p>> {
        let mut parameters = Parameters::new();
        self.walk(path, |name, value| parameters.push((name, value))).then_some(parameters)
    }

    fn walk<'p>(&'p self, path: &'p str, mut note: impl FnMut(&'p str, &'p str)) -> bool {
        let Some(mut rest) = path.strip_prefix('/') else { return false };
        let mut last = false;
        for segment in &self.segments {
            if last {
                return false;
            }
            if let Segment::Rest(name) = segment {
                note(name, rest);
                return true;
            }
            let (found, behind) = match rest.split_once('/') {
                Some((found, behind)) => (found, behind),
                None => {
                    last = true;
                    (rest, "")
                }
            };
            match segment {
                Segment::Fixed(text) if **text != *found => return false,
                Segment::Named(_) if found.is_empty() => return false,
                Segment::Named(name) => note(name, found),
                Segment::Fixed(_) | Segment::Rest(_) => {}
            }
            rest = behind;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    #[test]
    fn names_stand_for_one_segment_each() {
        let orders = template("/users/{id}/orders/{order}");
        let read = orders.read("/users/7/orders/b%2F2").unwrap();
        assert_eq!(read.as_slice(), [("id", "7"), ("order", "b%2F2")]);
        for other in ["/users/7/orders", "/users//orders/1", "/users/7/orders/1/x", "/", "/users"] {
            assert!(!orders.matches(other), "{other}");
        }
    }

    #[test]
    fn the_rest_may_be_empty() {
        let files = template("/files/{*path}");
        assert_eq!(files.read("/files/a/b").unwrap().as_slice(), [("path", "a/b")]);
        assert_eq!(files.read("/files/").unwrap().as_slice(), [("path", "")]);
        assert!(!files.matches("/files"));
    }

    #[test]
    fn the_root_and_a_slash_at_the_end_are_paths_of_their_own() {
        assert!(template("/").matches("/") && !template("/").matches("/a"));
        assert!(template("/a/").matches("/a/") && !template("/a/").matches("/a"));
        assert!(!template("/a").matches("/a/"));
    }

    #[test]
    fn what_is_no_template_is_told() {
        for text in ["users", "/{}", "/a{b}", "/{a}{b}", "/{*}", "/{*a}/b", "/{a"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
