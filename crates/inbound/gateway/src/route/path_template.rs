//! Path templates: `/users/{id}/orders`, `/files/{*rest}`.

use super::PathParameters;

/// A path pattern with names for some of its segments.
#[derive(Clone, Debug)]
pub(crate) struct PathTemplate {
    text: Box<str>,
    segments: Box<[Segment]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Fixed(Box<str>),
    /// One segment that is not empty.
    Named(Box<str>),
    /// All remaining segments; allowed only at the end.
    Rest(Box<str>),
}

/// Why a text is not a valid template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathTemplateError {
    #[error("`{0}` does not begin with a slash")]
    NoSlash(String),
    #[error("`{0}` has a brace that does not enclose the name of a whole segment")]
    Brace(String),
    #[error("`{0}` has segments after `{{*…}}`")]
    AfterRest(String),
}

impl PathTemplate {
    pub(crate) fn parse(text: &str) -> Result<Self, PathTemplateError> {
        let Some(inside) = text.strip_prefix('/') else {
            return Err(PathTemplateError::NoSlash(text.to_owned()));
        };
        let mut segments = Vec::new();
        for segment in inside.split('/') {
            if matches!(segments.last(), Some(Segment::Rest(_))) {
                return Err(PathTemplateError::AfterRest(text.to_owned()));
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
                return Err(PathTemplateError::Brace(text.to_owned()));
            }
            segments.push(parsed);
        }
        Ok(PathTemplate { text: text.into(), segments: segments.into() })
    }

    /// The template as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a segment has this name.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| match segment {
            Segment::Named(other) | Segment::Rest(other) => **other == *name,
            Segment::Fixed(_) => false,
        })
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        self.match_segments(path, |_, _| {})
    }

    /// The values of the named segments, if the path matches.
    pub(crate) fn parameters<'p>(&'p self, path: &'p str) -> Option<PathParameters<'p>> {
        let mut parameters = PathParameters::new();
        self.match_segments(path, |name, value| parameters.push((name, value)))
            .then_some(parameters)
    }

    /// Whether the path matches. Calls `visit` with the name and the value of each named segment.
    fn match_segments<'p>(
        &'p self,
        path: &'p str,
        mut visit: impl FnMut(&'p str, &'p str),
    ) -> bool {
        let Some(mut rest) = path.strip_prefix('/') else { return false };
        let mut last = false;
        for segment in &self.segments {
            if last {
                return false;
            }
            if let Segment::Rest(name) = segment {
                visit(name, rest);
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
                Segment::Named(name) => visit(name, found),
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

    fn template(text: &str) -> PathTemplate {
        PathTemplate::parse(text).unwrap()
    }

    #[test]
    fn a_name_matches_one_segment() {
        let orders = template("/users/{id}/orders/{order}");
        let read = orders.parameters("/users/7/orders/b%2F2").unwrap();
        assert_eq!(read.as_slice(), [("id", "7"), ("order", "b%2F2")]);
        for other in ["/users/7/orders", "/users//orders/1", "/users/7/orders/1/x", "/", "/users"] {
            assert!(!orders.matches(other), "{other}");
        }
    }

    #[test]
    fn the_rest_may_be_empty() {
        let files = template("/files/{*path}");
        assert_eq!(files.parameters("/files/a/b").unwrap().as_slice(), [("path", "a/b")]);
        assert_eq!(files.parameters("/files/").unwrap().as_slice(), [("path", "")]);
        assert!(!files.matches("/files"));
    }

    #[test]
    fn the_root_and_a_trailing_slash_are_distinct_paths() {
        assert!(template("/").matches("/") && !template("/").matches("/a"));
        assert!(template("/a/").matches("/a/") && !template("/a/").matches("/a"));
        assert!(!template("/a").matches("/a/"));
    }

    #[test]
    fn invalid_templates_are_rejected() {
        for text in ["users", "/{}", "/a{b}", "/{a}{b}", "/{*}", "/{*a}/b", "/{a"] {
            assert!(PathTemplate::parse(text).is_err(), "{text}");
        }
    }
}
