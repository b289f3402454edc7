//! From a body to what is asked.
//!
//! There is one way to write each thing: objects with known fields, in JSON.
//! Texts are borrowed from the body where nothing in them is escaped. Nothing
//! that is not known is skipped, so nothing is nested deeper than the fields are.
//!
//! The body that nearly everybody sends is read by `plain`, any other by a reader
//! of JSON. One that cannot be used is read once more, more slowly, to say
//! where it is wrong.

mod object;
mod own_limit;
mod plain;

use std::borrow::Cow;

use serde::de::{Error, MapAccess};
use serde_json::error::Category;
use serde_path_to_error::Segment;
use smallvec::SmallVec;
use tidegate_engine::{DESCRIPTORS_MAX, Descriptor, Entry, Limit, Request};

use super::complaint::{Complaint, Place};
use object::{Object, Written, required, some_number, text};
use own_limit::OwnLimit;

/// How much is said of what is wrong: it may repeat a value.
const SAID_CHARS_MAX: usize = 256;
/// How much of the path to what is wrong is told: it may hold an unknown name.
const PATH_CHARS_MAX: usize = 256;

/// One request, or several.
#[derive(Debug)]
pub(super) enum Question<'a> {
    One(Asked<'a>),
    Batch(Vec<Asked<'a>>),
}

/// One request, as written.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) domain: Cow<'a, str>,
    descriptors: Vec<AskedDescriptor<'a>>,
    pub(super) cost: u64,
}

#[derive(Debug)]
pub(super) struct AskedDescriptor<'a> {
    entries: Vec<Written<AskedEntry<'a>>>,
    cost: Option<u64>,
    limit: Option<Limit>,
}

#[derive(Debug)]
pub(super) struct AskedEntry<'a> {
    key: Cow<'a, str>,
    value: Cow<'a, str>,
}

/// A permit to give back.
#[derive(Debug)]
pub(super) struct AskedRelease<'a> {
    pub(super) permit: Cow<'a, str>,
}

/// The objects of bodies with their fields, as the served document calls them.
#[cfg(test)]
pub(super) const SHAPES: &[(&str, &[&str])] = &[
    ("Question", Question::FIELDS),
    ("Request", Asked::FIELDS),
    ("Descriptor", AskedDescriptor::FIELDS),
    ("Entry", AskedEntry::FIELDS),
    ("OwnLimit", OwnLimit::FIELDS),
    ("Release", AskedRelease::FIELDS),
];

/// Reads a question.
pub(super) fn question(body: &[u8], batch_max: usize) -> Result<Question<'_>, Complaint> {
    if let Some(asked) = str::from_utf8(body).ok().and_then(plain::read) {
        return Ok(Question::One(asked));
    }
    let question: Question<'_> = read(body)?;
    match &question {
        Question::Batch(all) if all.len() > batch_max => {
            let (count, most) = (all.len(), batch_max);
            let detail = format!("`requests` has {count} requests, and {most} are the most");
            Err(Complaint::bad_request(detail).hint("send several batches".to_owned()))
        }
        _ => Ok(question),
    }
}

/// Reads a question about one request.
pub(super) fn one(body: &[u8]) -> Result<Asked<'_>, Complaint> {
    match read(body)? {
        Question::One(asked) => Ok(asked),
        Question::Batch(_) => {
            let complaint = Complaint::bad_request("this route takes one request, not `requests`");
            Err(complaint.hint("ask for one request at a time".to_owned()))
        }
    }
}

/// Reads what to release.
pub(super) fn release(body: &[u8]) -> Result<AskedRelease<'_>, Complaint> {
    read(body)
}

fn read<'a, T: Object<'a>>(body: &'a [u8]) -> Result<T, Complaint> {
    // Looking at the encoding once is cheaper than at each text of the body.
    let read = match str::from_utf8(body) {
        Ok(text) => serde_json::from_str::<Written<T>>(text),
        // Says where.
        Err(_) => serde_json::from_slice(body),
    };
    match read {
        Ok(Written(asked)) => Ok(asked),
        Err(error) => Err(complain::<T>(body, &error)),
    }
}

/// Says what is wrong with a body, and where.
#[cold]
fn complain<'a, T: Object<'a>>(body: &'a [u8], error: &serde_json::Error) -> Complaint {
    if body.iter().all(u8::is_ascii_whitespace) {
        let complaint = Complaint::bad_request("the body is empty");
        return complaint.hint(format!("send {}", T::CALLED));
    }
    let (line, column) = (error.line(), error.column());
    let said = error.to_string();
    let place = format!(" at line {line} column {column}");
    let said: String =
        said.strip_suffix(&place).unwrap_or(&said).chars().take(SAID_CHARS_MAX).collect();
    let detail = match error.classify() {
        Category::Data => said,
        Category::Eof => format!("the JSON ends too early: {said}"),
        Category::Syntax | Category::Io => format!("the body is no JSON: {said}"),
    };
    let path = path_to_error::<T>(body);
    Complaint::bad_request(detail).at(Place { path, line, column: column.max(1) })
}

fn path_to_error<'a, T: Object<'a>>(body: &'a [u8]) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let wrong = serde_path_to_error::deserialize::<_, Written<T>>(&mut reader).err()?;
    // A name that cannot be read is left out: the place says where it is.
    let known = wrong.path().iter().take_while(|segment| !matches!(segment, Segment::Unknown));
    let mut path = String::new();
    for segment in known {
        if !path.is_empty() && matches!(segment, Segment::Map { .. }) {
            path.push('.');
        }
        path.push_str(&segment.to_string());
    }
    (!path.is_empty()).then(|| path.chars().take(PATH_CHARS_MAX).collect())
}

impl Asked<'_> {
    /// The entries of all descriptors, one after the other.
    pub(super) fn entries(&self) -> SmallVec<[Entry<'_>; 8]> {
        let entries = self.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        entries.map(|Written(entry)| Entry { key: &entry.key, value: &entry.value }).collect()
    }

    /// The descriptors, given [`Asked::entries`].
    pub(super) fn descriptors<'r>(
        &'r self,
        entries: &'r [Entry<'r>],
    ) -> SmallVec<[Descriptor<'r>; 4]> {
        let mut rest = entries;
        let descriptors = self.descriptors.iter().map(|asked| {
            let (own, others) = rest.split_at_checked(asked.entries.len()).unwrap_or_default();
            rest = others;
            let (cost, limit) = (asked.cost, asked.limit.as_ref());
            Descriptor { cost, limit, ..Descriptor::new(own) }
        });
        descriptors.collect()
    }

    /// The request, given [`Asked::descriptors`].
    pub(super) fn request<'r>(&'r self, descriptors: &'r [Descriptor<'r>]) -> Request<'r> {
        Request { domain: &self.domain, descriptors, cost: self.cost }
    }
}

/// The fields of a question before it is known to be one.
#[derive(Debug, Default)]
pub(super) struct QuestionDraft<'a> {
    one: AskedDraft<'a>,
    requests: Option<Vec<Written<Asked<'a>>>>,
}

impl<'a> Object<'a> for Question<'a> {
    type Draft = QuestionDraft<'a>;
    const CALLED: &'static str =
        "an object with `domain` and `descriptors`, or one with `requests`";
    const FIELDS: &'static [&'static str] = &["domain", "descriptors", "cost", "requests"];

    fn fill<A: MapAccess<'a>>(
        draft: &mut Self::Draft,
        field: usize,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match field {
            3 => draft.requests = Some(map.next_value()?),
            _ => Asked::fill(&mut draft.one, field, map)?,
        }
        Ok(())
    }

    fn finish<E: Error>(draft: Self::Draft) -> Result<Self, E> {
        let Some(requests) = draft.requests else {
            return Asked::finish(draft.one).map(Question::One);
        };
        let AskedDraft { domain, descriptors, cost } = draft.one;
        if domain.is_some() || descriptors.is_some() || cost.is_some() {
            return Err(E::custom(
                "`requests` stands alone: each request of a batch has its own `domain`, \
                 `descriptors` and `cost`",
            ));
        }
        if requests.is_empty() {
            return Err(E::custom("`requests` is empty"));
        }
        Ok(Question::Batch(requests.into_iter().map(|Written(asked)| asked).collect()))
    }
}

#[derive(Debug, Default)]
pub(super) struct AskedDraft<'a> {
    domain: Option<Cow<'a, str>>,
    descriptors: Option<Vec<Written<AskedDescriptor<'a>>>>,
    cost: Option<u64>,
}

impl<'a> Object<'a> for Asked<'a> {
    type Draft = AskedDraft<'a>;
    const CALLED: &'static str = "a request: an object with `domain` and `descriptors`";
    const FIELDS: &'static [&'static str] = &["domain", "descriptors", "cost"];

    fn fill<A: MapAccess<'a>>(
        draft: &mut Self::Draft,
        field: usize,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match field {
            0 => draft.domain = Some(text(map)?),
            1 => draft.descriptors = Some(map.next_value()?),
            _ => draft.cost = some_number(map)?,
        }
        Ok(())
    }

    fn finish<E: Error>(draft: Self::Draft) -> Result<Self, E> {
        let domain = required(draft.domain, "domain")?;
        let descriptors = required(draft.descriptors, "descriptors")?;
        if domain.is_empty() {
            return Err(E::custom("`domain` is empty"));
        }
        if descriptors.is_empty() {
            return Err(E::custom("`descriptors` is empty: there is nothing to limit by"));
        }
        let count = descriptors.len();
        if count > DESCRIPTORS_MAX {
            let message = format!("a request may have {DESCRIPTORS_MAX} descriptors, not {count}");
            return Err(E::custom(message));
        }
        let descriptors = descriptors.into_iter().map(|Written(descriptor)| descriptor).collect();
        Ok(Asked { domain, descriptors, cost: draft.cost.unwrap_or(1) })
    }
}

#[derive(Debug, Default)]
pub(super) struct DescriptorDraft<'a> {
    entries: Option<Vec<Written<AskedEntry<'a>>>>,
    cost: Option<u64>,
    limit: Option<Limit>,
}

impl<'a> Object<'a> for AskedDescriptor<'a> {
    type Draft = DescriptorDraft<'a>;
    const CALLED: &'static str = "a descriptor: an object with `entries`";
    const FIELDS: &'static [&'static str] = &["entries", "cost", "limit"];

    fn fill<A: MapAccess<'a>>(
        draft: &mut Self::Draft,
        field: usize,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match field {
            0 => draft.entries = Some(map.next_value()?),
            1 => draft.cost = some_number(map)?,
            _ => {
                let limit = map.next_value::<Option<Written<OwnLimit>>>()?;
                draft.limit = limit.map(|Written(limit)| limit.into_limit());
            }
        }
        Ok(())
    }

    fn finish<E: Error>(draft: Self::Draft) -> Result<Self, E> {
        let entries = required(draft.entries, "entries")?;
        if entries.is_empty() {
            return Err(E::custom("`entries` is empty: such a descriptor meets no rule"));
        }
        Ok(AskedDescriptor { entries, cost: draft.cost, limit: draft.limit })
    }
}

#[derive(Debug, Default)]
pub(super) struct EntryDraft<'a> {
    key: Option<Cow<'a, str>>,
    value: Option<Cow<'a, str>>,
}

impl<'a> Object<'a> for AskedEntry<'a> {
    type Draft = EntryDraft<'a>;
    const CALLED: &'static str = "an entry: an object with `key` and `value`";
    const FIELDS: &'static [&'static str] = &["key", "value"];

    fn fill<A: MapAccess<'a>>(
        draft: &mut Self::Draft,
        field: usize,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let text = text(map)?;
        match field {
            0 => draft.key = Some(text),
            _ => draft.value = Some(text),
        }
        Ok(())
    }

    fn finish<E: Error>(draft: Self::Draft) -> Result<Self, E> {
        let key = required(draft.key, "key")?;
        let value = required(draft.value, "value")?;
        Ok(AskedEntry { key, value })
    }
}

impl<'a> Object<'a> for AskedRelease<'a> {
    type Draft = Option<Cow<'a, str>>;
    const CALLED: &'static str = "an object with `permit`";
    const FIELDS: &'static [&'static str] = &["permit"];

    fn fill<A: MapAccess<'a>>(
        draft: &mut Self::Draft,
        _: usize,
        map: &mut A,
    ) -> Result<(), A::Error> {
        *draft = Some(text(map)?);
        Ok(())
    }

    fn finish<E: Error>(draft: Self::Draft) -> Result<Self, E> {
        let permit = required(draft, "permit")?;
        Ok(AskedRelease { permit })
    }
}

#[cfg(test)]
mod tests;
