//! Wire → request: JSON bodies, and the head of a request.
//!
//! A body is an object with known fields. Strings are borrowed from it unless they have escapes. Unknown fields are
//! rejected and never skipped, so nothing is nested deeper than the fields are.
//!
//! `plain` parses the body that nearly all clients send, serde any other. A rejected body is parsed again, more slowly, to
//! find the path to the error.

mod error;
pub(crate) mod head;
pub(crate) mod object;
mod plain;

use std::borrow::Cow;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};
use smallvec::SmallVec;
use tidegate_engine::{
    DESCRIPTORS_MAX, Descriptor, Entry, FixedWindow, Limit, Period, Request, Unit, Window,
};

use crate::problem::RequestProblem;
use object::{JsonObject, List, ListItem, Object};

/// The body of a check: one request, or several.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "CheckFields<'a>")]
pub(crate) enum CheckBody<'a> {
    One(#[serde(borrow)] CheckRequest<'a>),
    Batch(#[serde(borrow)] List<CheckRequest<'a>>),
}

/// One request.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest<'a> {
    #[serde(borrow, deserialize_with = "domain")]
    pub(crate) domain: Cow<'a, str>,
    #[serde(borrow)]
    descriptors: List<RequestDescriptor<'a>>,
    #[serde(default = "one", deserialize_with = "cost")]
    pub(crate) cost: u64,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestDescriptor<'a> {
    #[serde(borrow)]
    entries: List<RequestEntry<'a>>,
    cost: Option<u64>,
    limit: Option<Object<OwnLimit>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestEntry<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

/// A limit that a descriptor carries: so many requests in each window.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "OwnLimitFields")]
pub(crate) struct OwnLimit(Limit);

/// The body of a release.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBody<'a> {
    #[serde(borrow)]
    pub(crate) permit: Cow<'a, str>,
}

/// The body of an exchange of slices: units to take, and a slice to give back.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SliceBody<'a> {
    #[serde(borrow, deserialize_with = "domain")]
    pub(crate) domain: Cow<'a, str>,
    #[serde(borrow)]
    descriptors: List<RequestDescriptor<'a>>,
    /// The units to take; zero takes none.
    pub(crate) units: u64,
    /// How long the units may be spent, in milliseconds.
    pub(crate) life_ms: Option<u64>,
    /// The slice to give back.
    #[serde(borrow, default)]
    pub(crate) slice: Option<Cow<'a, str>>,
    /// The units of it that were not spent.
    #[serde(default)]
    pub(crate) unused: u64,
}

impl<'a> SliceBody<'a> {
    /// The request whose limits the units are taken from.
    pub(crate) fn request(&mut self) -> Result<CheckRequest<'a>, RequestProblem> {
        if self.descriptors.0.iter().any(|Object(descriptor)| descriptor.cost.is_some()) {
            let problem = RequestProblem::bad_request("a descriptor of a slice has no `cost`");
            return Err(problem.hint("`units` says how much to take".to_owned()));
        }
        let descriptors = List(std::mem::take(&mut self.descriptors.0));
        Ok(CheckRequest { domain: std::mem::take(&mut self.domain), descriptors, cost: self.units })
    }
}

impl JsonObject for SliceBody<'_> {
    const DESCRIPTION: &'static str = "an object with `domain`, `descriptors` and `units`";
}

impl JsonObject for CheckBody<'_> {
    const DESCRIPTION: &'static str =
        "an object with `domain` and `descriptors`, or one with `requests`";
}

impl JsonObject for CheckRequest<'_> {
    const DESCRIPTION: &'static str = "a request: an object with `domain` and `descriptors`";
}

impl ListItem for CheckRequest<'_> {
    const EMPTY: &'static str = "`requests` is empty";
}

impl JsonObject for RequestDescriptor<'_> {
    const DESCRIPTION: &'static str = "a descriptor: an object with `entries`";
}

impl ListItem for RequestDescriptor<'_> {
    const EMPTY: &'static str = "`descriptors` is empty: there is nothing to limit by";
    const MAX: (usize, &'static str) = (DESCRIPTORS_MAX, "descriptors");
}

impl JsonObject for RequestEntry<'_> {
    const DESCRIPTION: &'static str = "an entry: an object with `key` and `value`";
}

impl ListItem for RequestEntry<'_> {
    const EMPTY: &'static str = "`entries` is empty: such a descriptor matches no rule";
}

impl JsonObject for OwnLimit {
    const DESCRIPTION: &'static str =
        "a limit: an object with `requests_per_unit`, and `unit` or `per_ms`";
}

impl JsonObject for ReleaseBody<'_> {
    const DESCRIPTION: &'static str = "an object with `permit`";
}

/// The fields of both kinds of [`CheckBody`].
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckFields<'a> {
    #[serde(borrow, default, deserialize_with = "some_domain")]
    domain: Option<Cow<'a, str>>,
    #[serde(borrow)]
    descriptors: Option<List<RequestDescriptor<'a>>>,
    cost: Option<u64>,
    #[serde(borrow)]
    requests: Option<List<CheckRequest<'a>>>,
}

impl<'a> TryFrom<CheckFields<'a>> for CheckBody<'a> {
    type Error = &'static str;

    fn try_from(fields: CheckFields<'a>) -> Result<Self, &'static str> {
        let CheckFields { domain, descriptors, cost, requests } = fields;
        match (requests, domain, descriptors) {
            (Some(requests), None, None) if cost.is_none() => Ok(CheckBody::Batch(requests)),
            (Some(_), ..) => Err("`requests` stands alone: each request of a batch has its own \
                                  `domain`, `descriptors` and `cost`"),
            (None, Some(domain), Some(descriptors)) => {
                let cost = cost.unwrap_or_else(one);
                Ok(CheckBody::One(CheckRequest { domain, descriptors, cost }))
            }
            (None, None, _) => Err("missing field `domain`"),
            (None, Some(_), None) => Err("missing field `descriptors`"),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnLimitFields {
    requests_per_unit: u64,
    unit: Option<String>,
    per_ms: Option<u64>,
}

impl TryFrom<OwnLimitFields> for OwnLimit {
    type Error = String;

    fn try_from(fields: OwnLimitFields) -> Result<Self, String> {
        let OwnLimitFields { requests_per_unit, unit, per_ms } = fields;
        let period = match (unit, per_ms) {
            (Some(unit), None) => Unit::from_word(&unit).map(Unit::period).ok_or_else(|| {
                let words = Unit::WORDS.join(", ");
                format!("there is no unit `{unit}`; there are: {words}")
            })?,
            (None, Some(per)) => {
                Period::new(Duration::from_millis(per)).map_err(|error| error.to_string())?
            }
            _ => return Err("a limit has either `unit` or `per_ms`".to_owned()),
        };
        Ok(OwnLimit(Limit::new(FixedWindow::new(requests_per_unit, Window::Every(period)))))
    }
}

const fn one() -> u64 {
    1
}

/// A cost; `null` stands for one.
fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(one))
}

/// A string, borrowed unless it has escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn domain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    let Text(domain) = Text::deserialize(deserializer)?;
    if domain.is_empty() { Err(Error::custom("`domain` is empty")) } else { Ok(domain) }
}

fn some_domain<'de, D>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error>
where
    D: Deserializer<'de>,
{
    domain(deserializer).map(Some)
}

/// The objects of bodies and their fields, by the names of the OpenAPI document.
#[cfg(test)]
pub(crate) fn schemas() -> [(&'static str, Vec<String>); 7] {
    [
        ("Question", error::fields_of::<CheckBody<'_>>()),
        ("Request", error::fields_of::<CheckRequest<'_>>()),
        ("Descriptor", error::fields_of::<RequestDescriptor<'_>>()),
        ("Entry", error::fields_of::<RequestEntry<'_>>()),
        ("OwnLimit", error::fields_of::<OwnLimit>()),
        ("Release", error::fields_of::<ReleaseBody<'_>>()),
        ("SliceExchange", error::fields_of::<SliceBody<'_>>()),
    ]
}

/// Decodes the body of a check.
pub(crate) fn check_body(body: &[u8], batch_max: usize) -> Result<CheckBody<'_>, RequestProblem> {
    if let Some(request) = str::from_utf8(body).ok().and_then(plain::parse) {
        return Ok(CheckBody::One(request));
    }
    let check: CheckBody<'_> = parse(body)?;
    match &check {
        CheckBody::Batch(List(requests)) if requests.len() > batch_max => {
            let count = requests.len();
            let detail = format!("`requests` has {count} requests; the maximum is {batch_max}");
            Err(RequestProblem::bad_request(detail).hint("send several batches".to_owned()))
        }
        _ => Ok(check),
    }
}

/// Decodes the body of a route that takes one request.
pub(crate) fn one_request(body: &[u8]) -> Result<CheckRequest<'_>, RequestProblem> {
    match parse(body)? {
        CheckBody::One(request) => Ok(request),
        CheckBody::Batch(_) => {
            let problem =
                RequestProblem::bad_request("this route takes one request, not `requests`");
            Err(problem.hint("send one request at a time".to_owned()))
        }
    }
}

/// Decodes the body of a release.
pub(crate) fn release_body(body: &[u8]) -> Result<ReleaseBody<'_>, RequestProblem> {
    parse(body)
}

/// Decodes the body of an exchange of slices.
pub(crate) fn slice_body(body: &[u8]) -> Result<SliceBody<'_>, RequestProblem> {
    parse(body)
}

fn parse<'a, T: Deserialize<'a> + JsonObject>(body: &'a [u8]) -> Result<T, RequestProblem> {
    // Validating the encoding once is cheaper than for each string of the body.
    let parsed = match str::from_utf8(body) {
        Ok(text) => serde_json::from_str::<Object<T>>(text),
        // Fails, with the location.
        Err(_) => serde_json::from_slice(body),
    };
    match parsed {
        Ok(Object(value)) => Ok(value),
        Err(error) => Err(error::problem::<T>(body, &error)),
    }
}

impl CheckRequest<'_> {
    /// The entries of all descriptors, one after the other.
    pub(crate) fn entries(&self) -> SmallVec<[Entry<'_>; 8]> {
        let entries =
            self.descriptors.0.iter().flat_map(|Object(descriptor)| &descriptor.entries.0);
        entries.map(|Object(entry)| Entry { key: &entry.key, value: &entry.value }).collect()
    }

    /// The descriptors as the engine takes them, given [`CheckRequest::entries`].
    pub(crate) fn engine_descriptors<'r>(
        &'r self,
        entries: &'r [Entry<'r>],
    ) -> SmallVec<[Descriptor<'r>; 4]> {
        let mut rest = entries;
        let descriptors = self.descriptors.0.iter().map(|Object(descriptor)| {
            let own = rest.split_at_checked(descriptor.entries.0.len());
            let (entries, others) = own.unwrap_or_default();
            rest = others;
            let limit = descriptor.limit.as_ref().map(|Object(OwnLimit(limit))| limit);
            Descriptor { cost: descriptor.cost, limit, ..Descriptor::new(entries) }
        });
        descriptors.collect()
    }

    /// The request as the engine takes it, given [`CheckRequest::engine_descriptors`].
    pub(crate) fn engine_request<'r>(&'r self, descriptors: &'r [Descriptor<'r>]) -> Request<'r> {
        Request { domain: &self.domain, descriptors, cost: self.cost }
    }
}

#[cfg(test)]
mod tests;
