//! Globs, templates and the characters of names, as `statsd_exporter` has them.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// A pattern of fields between dots; [`None`] matches any field.
#[derive(Clone, Debug)]
pub(super) struct Glob(Vec<Option<String>>);

impl Glob {
    /// [`None`] if the text is not a glob.
    pub(super) fn parse(text: &str) -> Option<Self> {
        static FORM: LazyLock<Regex> = LazyLock::new(|| {
            let first = r"[a-zA-Z_][a-zA-Z0-9_\-]*";
            let next = r"[a-zA-Z0-9_][a-zA-Z0-9_\-]*";
            Regex::new(&format!(r"^(\*|{first})(\.(\*|{next}))*$")).expect("a pattern")
        });
        FORM.is_match(text).then(|| {
            Glob(text.split('.').map(|field| (field != "*").then(|| field.to_owned())).collect())
        })
    }

    /// The fields that its stars match, if all of the name matches.
    pub(super) fn captures<'n>(&self, name: &'n str) -> Option<Vec<&'n str>> {
        let mut fields = name.split('.');
        let mut captures = Vec::new();
        for wanted in &self.0 {
            let field = fields.next()?;
            match wanted {
                None => captures.push(field),
                Some(wanted) if wanted == field => {}
                Some(_) => return None,
            }
        }
        fields.next().is_none().then_some(captures)
    }

    /// For each field whether it is a star.
    pub(super) fn wildcards(&self) -> Vec<bool> {
        self.0.iter().map(Option::is_none).collect()
    }
}

/// A text with `$1` or `${1}` in it.
#[derive(Clone, Debug)]
pub(super) struct Template(String);

impl Template {
    pub(super) fn new(text: &str) -> Self {
        Template(text.to_owned())
    }

    /// The text with the captures of a glob. A number without a capture is left out.
    pub(super) fn fill(&self, captures: &[&str]) -> String {
        static REFERENCE: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\$\{?([a-zA-Z0-9_$]+)\}?").expect("a pattern"));
        let capture = |reference: &Captures<'_>| {
            let index = reference.get(1).and_then(|number| number.as_str().parse::<usize>().ok());
            let index = index.and_then(|index| index.checked_sub(1));
            index.and_then(|index| captures.get(index)).copied().unwrap_or_default().to_owned()
        };
        REFERENCE.replace_all(&self.0, capture).into_owned()
    }

    /// The text with the groups of a regular expression.
    pub(super) fn expand(&self, captures: &Captures<'_>) -> String {
        let mut text = String::new();
        captures.expand(&self.0, &mut text);
        text
    }
}

/// Whether a text can be the name of a metric, with templates in it.
pub(super) fn is_metric_name(text: &str) -> bool {
    static FORM: LazyLock<Regex> = LazyLock::new(|| {
        let reference = r"\$\{?[0-9]+\}?";
        let form = format!(r"^([a-zA-Z_]|{reference})([a-zA-Z0-9_]|{reference})*$");
        Regex::new(&form).expect("a pattern")
    });
    FORM.is_match(text)
}

/// Whether a text can be the name of a label.
pub(super) fn is_label(text: &str) -> bool {
    let mut bytes = text.bytes();
    let begins = bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    text.len() > 1 && begins && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The name with `_` for every character that the name of a metric cannot have; of two dashes one is left out.
pub(super) fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len() + 1);
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        escaped.push('_');
    }
    let mut before = None;
    for char in name.chars() {
        match char {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => escaped.push(char),
            '-' if before == Some('-') => {}
            _ => escaped.push('_'),
        }
        before = Some(char);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_one_field() {
        let glob = Glob::parse("a.*.c").unwrap();
        assert_eq!(glob.captures("a.b.c"), Some(vec!["b"]));
        assert_eq!(glob.captures("a.b.b.c"), None);
        assert_eq!(glob.captures("a.b"), None);
        assert!(Glob::parse("a*.b").is_none() && Glob::parse("").is_none());
    }

    #[test]
    fn templates_take_what_was_matched() {
        assert_eq!(Template::new("x/$1/${2}").fill(&["a", "b"]), "x/a/b");
        assert_eq!(Template::new("x_${1}_${3}").fill(&["a", "b"]), "x_a_");
        let captures = Regex::new("(.)(.)").unwrap().captures("ab").unwrap();
        assert_eq!(Template::new("${2}x$1").expand(&captures), "bxa");
    }

    #[test]
    fn names_have_only_letters_digits_and_underscores() {
        assert_eq!(escape("a.b-c--d/é"), "a_b_c_d__");
        assert_eq!(escape("1a"), "_1a");
        assert!(is_metric_name("a_$1") && !is_metric_name("a.b") && !is_metric_name(""));
        assert!(is_label("key1") && !is_label("k") && !is_label("1a"));
    }
}
