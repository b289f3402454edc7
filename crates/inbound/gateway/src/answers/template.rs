//! Texts with places for the words of an answer.

use std::borrow::Cow;

use bytes::Bytes;

use tidegate_answers::refusals::Words;

/// A problem, as RFC 9457 has it, with the members of the IETF's draft on rate limits.
pub(super) const PROBLEM: &str = concat!(
    r#"{"type":"{type}","title":"{title}","status":{status},"code":"{code}","#,
    r#""detail":"{detail}"{policies}}"#
);

/// A page for people.
pub(super) const PAGE: &str = concat!(
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{status} {title}</title>",
    "<h1>{title}</h1><p>{detail}</p><p><small>{status} {code}</small></p></html>\n"
);

/// Words that a template can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Type,
    Status,
    Code,
    Title,
    Detail,
    Quota,
    /// The member that lists quotas, with its comma; nothing where no quota is meant.
    Policies,
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    Json,
    Html,
}

/// A text with places.
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

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("the template in JSON is no JSON: {0}")]
    NotJson(String),
}

impl Template {
    pub(super) fn json(text: &str) -> Result<Self, TemplateError> {
        let template = Template::parse(text, Escape::Json);
        let sample = Words {
            status: http::StatusCode::TOO_MANY_REQUESTS,
            code: "code",
            kind: "type",
            title: "title",
            detail: "\"".into(),
            quota: "\\",
        };
        serde_json::from_slice::<serde::de::IgnoredAny>(&template.write(&sample))
            .map_err(|error| TemplateError::NotJson(error.to_string()))?;
        Ok(template)
    }

    /// Any text is a page.
    pub(super) fn html(text: &str) -> Result<Self, TemplateError> {
        Ok(Template::parse(text, Escape::Html))
    }

    /// A brace that encloses no known word is a brace.
    fn parse(text: &str, escape: Escape) -> Self {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(begin) = rest.find('{') {
            let (before, from) = rest.split_at(begin);
            plain.push_str(before);
            let word = from.find('}').and_then(|end| {
                let word = word(from.get(1..end)?)?;
                Some((word, from.get(end.saturating_add(1)..)?))
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

    pub(super) fn write(&self, words: &Words<'_>) -> Bytes {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Word(word) => self.write_word(&mut out, *word, words),
            }
        }
        Bytes::from(out)
    }

    fn write_word(&self, out: &mut String, word: Word, words: &Words<'_>) {
        let text = match word {
            Word::Type => Cow::Borrowed(words.kind),
            Word::Status => Cow::Owned(words.status.as_u16().to_string()),
            Word::Code => Cow::Borrowed(words.code),
            Word::Title => Cow::Borrowed(words.title),
            Word::Detail => Cow::Borrowed(&*words.detail),
            Word::Quota => Cow::Borrowed(words.quota),
            Word::Policies if words.quota.is_empty() => return,
            Word::Policies => {
                out.push_str(",\"violated-policies\":[\"");
                self.escaped(out, words.quota);
                out.push_str("\"]");
                return;
            }
        };
        self.escaped(out, &text);
    }

    fn escaped(&self, out: &mut String, text: &str) {
        match self.escape {
            Escape::Json => {
                // A text always serializes; the quotes around it are the template's.
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

fn word(name: &str) -> Option<Word> {
    Some(match name {
        "type" => Word::Type,
        "status" => Word::Status,
        "code" => Word::Code,
        "title" => Word::Title,
        "detail" => Word::Detail,
        "quota" => Word::Quota,
        "policies" => Word::Policies,
        _ => return None,
    })
}
