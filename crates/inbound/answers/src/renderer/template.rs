//! Texts with words of an answer in braces.

use std::borrow::Cow;

use bytes::Bytes;

use crate::cause::CauseText;

/// The usual page.
pub(super) const PAGE: &str = concat!(
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{status} {title}</title>",
    "<h1>{title}</h1><p>{detail}</p><p><small>{status} {code}</small></p></html>\n"
);

/// The words that a template can have.
const WORDS: [(&str, Word); 6] = [
    ("type", |wording| wording.problem_type.into()),
    ("status", |wording| wording.status.as_u16().to_string().into()),
    ("code", |wording| wording.code.into()),
    ("title", |wording| wording.title.into()),
    ("detail", |wording| (&*wording.detail).into()),
    ("quota", |wording| wording.quota.into()),
];

/// Returns the value of a word.
type Word = for<'w> fn(&'w CauseText<'_>) -> Cow<'w, str>;

/// How values are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    Json,
    Html,
}

/// A text with words to fill in.
#[derive(Debug)]
pub(super) struct Template {
    parts: Box<[Part]>,
    escape: Escape,
}

#[derive(Debug)]
enum Part {
    Text(Box<str>),
    Word(Word),
}

/// Why a text cannot be used as a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The JSON template does not make JSON.
    #[error("the JSON template does not make valid JSON: {0}")]
    NotJson(String),
}

impl Template {
    pub(super) fn json(text: &str) -> Result<Self, TemplateError> {
        let template = Template::parse(text, Escape::Json);
        let sample = CauseText {
            status: http::StatusCode::TOO_MANY_REQUESTS,
            code: "code",
            problem_type: "type",
            title: "title",
            detail: "\"".into(),
            quota: "\\",
        };
        serde_json::from_slice::<serde::de::IgnoredAny>(&template.fill(&sample))
            .map_err(|error| TemplateError::NotJson(error.to_string()))?;
        Ok(template)
    }

    /// Any text makes a page.
    pub(super) fn html(text: &str) -> Self {
        Template::parse(text, Escape::Html)
    }

    /// A brace that encloses no known word stays a brace.
    fn parse(text: &str, escape: Escape) -> Self {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(begin) = rest.find('{') {
            let (before, from) = rest.split_at(begin);
            plain.push_str(before);
            let word = from.find('}').and_then(|end| {
                let name = from.get(1..end)?;
                let (_, word) = WORDS.iter().find(|(known, _)| *known == name)?;
                Some((*word, from.get(end.saturating_add(1)..)?))
            });
            match word {
                Some((word, behind)) => {
                    parts.push(Part::Text(std::mem::take(&mut plain).into()));
                    parts.push(Part::Word(word));
                    rest = behind;
                }
                None => {
                    plain.push('{');
                    rest = from.get(1..).unwrap_or_default();
                }
            }
        }
        plain.push_str(rest);
        parts.push(Part::Text(plain.into()));
        Template { parts: parts.into(), escape }
    }

    pub(super) fn fill(&self, wording: &CauseText<'_>) -> Bytes {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Word(word) => self.escape(&mut out, &word(wording)),
            }
        }
        Bytes::from(out)
    }

    fn escape(&self, out: &mut String, text: &str) {
        match self.escape {
            Escape::Json => {
                // A text always serializes. The template has the quotes around it.
                let quoted = serde_json::to_string(text).unwrap_or_default();
                let bare = quoted.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"'));
                out.push_str(bare.unwrap_or_default());
            }
            Escape::Html => {
                for character in text.chars() {
                    match character {
                        '&' => out.push_str("&amp;"),
                        '<' => out.push_str("&lt;"),
                        '>' => out.push_str("&gt;"),
                        '"' => out.push_str("&quot;"),
                        '\'' => out.push_str("&#39;"),
                        other => out.push(other),
                    }
                }
            }
        }
    }
}
