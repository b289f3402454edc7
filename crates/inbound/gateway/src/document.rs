//! The gateway's document: YAML, with a location for every problem.
//!
//! [`GatewayDocument::read`] turns a text into [`GatewaySettings`] and reports all its problems at once. Problems that
//! only [`Gateway::new`](super::Gateway::new) can find (a route to upstreams that do not exist, an invalid template)
//! get their location by [`GatewayDocument::report`]. `table` declares every key; reader, [`gateway_schema`] and
//! [`gateway_reference`] come from it.
//!
//! Not here: files. The caller reads the text, and the gateway opens the paths in it.

mod callers;
mod kinds;
mod routes;
mod table;
mod upstreams;

use serde_json::json;
use tidegate_answers::{HeaderFormat, HeaderSet, HeadersOn, ResetAs};
use tidegate_document::{
    Fault, Location, Locations, OrOff, PlainDialect, Problems, Reader, Report, Size, Source, Text,
    definitions, did_you_mean, parse, property, reference,
};

use super::settings::{
    DelaySettings, GatewayError, GatewaySettings, HeadSettings, ProvenanceSettings, QueueSettings,
    SettingProblem,
};
use kinds::{FieldsOn, FieldsWord, NetworkRange};
use table::{DelayKeys, DocumentKeys, HeadKeys, ProvenanceKeys, QueueKeys};

/// The largest document: a thousand routes of a kilobyte.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// The JSON Schema (draft 2020-12) of a gateway's document.
pub fn gateway_schema() -> serde_json::Value {
    let root = DocumentKeys::mapping();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidegate gateway",
        "description": "Routes, upstreams and the descriptors of requests.",
        "$ref": format!("#/$defs/{}", root.name),
        "$defs": definitions(root, property),
    })
}

/// The tables of all keys, as Markdown; docs/gateway-reference.md has them.
pub fn gateway_reference() -> String {
    reference(DocumentKeys::mapping())
}

/// A document that was read.
#[derive(Debug)]
pub struct GatewayDocument {
    source: Source,
    settings: GatewaySettings,
    locations: Locations,
}

impl GatewayDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// With all problems of the text.
    pub fn read(source: Source) -> Result<Self, Report> {
        let sources = [source];
        let mut problems = Problems::new(&sources);
        let [source] = &sources;
        let read = read(source, &mut problems);
        let (settings, locations) = match read {
            Some(read) if !problems.has_errors() => read,
            _ => return Err(problems.into_report()),
        };
        let [source] = sources;
        Ok(GatewayDocument { source, settings, locations })
    }

    /// The text that was read.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// The settings in it.
    pub const fn settings(&self) -> &GatewaySettings {
        &self.settings
    }

    /// The problems that a gateway has with these settings, with their locations in the document.
    pub fn report(&self, error: &GatewayError) -> Report {
        let sources = std::slice::from_ref(&self.source);
        let mut problems = Problems::new(sources);
        for problem in &error.problems {
            let fault = Fault::new("unusable_setting", problem.problem.as_str());
            let location = self.location(&problem.setting);
            problems.error(location, fault.maybe_hint(self.hint(problem)));
        }
        problems.into_report()
    }

    /// The location of a setting; of the closest mapping around it when it is not in the document.
    fn location(&self, setting: &str) -> Location {
        let mut path = setting;
        loop {
            // A path is written as a prefix or as a template.
            let as_template = || {
                let route = path.strip_suffix(".path")?;
                self.locations.get(&format!("{route}.template"))
            };
            if let Some(location) = self.locations.get(path).or_else(as_template) {
                return *location;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return self.locations.get("").copied().unwrap_or_default(),
            }
        }
    }

    /// What an unknown name was probably meant to be.
    fn hint(&self, problem: &SettingProblem) -> Option<String> {
        let (_, rest) = problem.problem.split_once('`')?;
        let (name, _) = rest.split_once('`')?;
        let settings = &self.settings;
        match problem.setting.rsplit('.').next() {
            Some("upstreams") => {
                did_you_mean(name, settings.upstreams.iter().map(|group| group.name.as_str()))
            }
            Some("routes") => {
                did_you_mean(name, settings.routes.iter().map(|route| route.name.as_str()))
            }
            _ => None,
        }
    }
}

fn read(source: &Source, problems: &mut Problems<'_>) -> Option<(GatewaySettings, Locations)> {
    if source.text.len() > DOCUMENT_BYTES_MAX {
        let bytes = source.text.len();
        let message =
            format!("the document has {bytes} bytes; the maximum is {DOCUMENT_BYTES_MAX}");
        problems.error(Location::default(), Fault::new("too_large", message));
        return None;
    }
    let yaml = parse(0, &source.text, problems)?;
    if yaml.root().is_none_or(|root| yaml.is_null(root)) {
        let fault = Fault::new("missing_key", "the document is empty")
            .hint("it needs `routes` and `upstreams`");
        problems.error(Location::default(), fault);
        return None;
    }
    let mut reader = Reader::new(&yaml, problems, &PlainDialect).recording_locations();
    let keys: Option<DocumentKeys> = reader.root();
    let locations = reader.into_locations();
    Some((settings(keys?, problems), locations))
}

/// Replaces a default by what is given.
fn put<T>(target: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *target = given;
    }
}

/// A count as large as this machine can have.
fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn bytes(bytes: Size) -> usize {
    size(bytes.bytes())
}

fn strings(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(String::from).collect()
}

fn networks(ranges: Vec<NetworkRange>) -> Vec<ipnet::IpNet> {
    ranges.into_iter().map(|NetworkRange(network)| network).collect()
}

fn header_name(name: &tidegate_document::HeaderName) -> Option<http::header::HeaderName> {
    http::header::HeaderName::from_bytes(name.as_str().as_bytes()).ok()
}

fn settings(keys: DocumentKeys, problems: &mut Problems<'_>) -> GatewaySettings {
    let mut settings = GatewaySettings::default();
    put(&mut settings.domain, keys.domain.map(String::from));
    settings.upstreams =
        keys.upstreams.into_iter().map(|group| upstreams::group(group, problems)).collect();
    let groups = &settings.upstreams;
    settings.routes =
        keys.routes.into_iter().map(|route| routes::route(route, groups, problems)).collect();
    settings.trusted_hops = networks(keys.trusted_hops);
    put(&mut settings.address_from, keys.address_from);
    put(&mut settings.provenance, keys.provenance.map(provenance));
    put(&mut settings.head, keys.head.map(head));
    settings.jwt = keys.jwt.and_then(|jwt| callers::jwt(jwt, problems));
    settings.api_keys = keys.api_keys.map(|keys| callers::api_keys(keys, problems));
    put(&mut settings.headers, keys.rate_limit_fields.map(|words| header_set(&words)));
    let headers_on = |word| match word {
        FieldsOn::Always => HeadersOn::Always,
        FieldsOn::Refusal => HeadersOn::Refusal,
    };
    put(&mut settings.headers_on, keys.rate_limit_fields_on.map(headers_on));
    put(&mut settings.delay, keys.delay.as_ref().map(delay));
    put(&mut settings.queue, keys.queue.as_ref().map(queue));
    let categories = keys.categories.map(|keys| callers::categories(keys, problems));
    put(&mut settings.categories, categories);
    settings
}

fn provenance(keys: ProvenanceKeys) -> ProvenanceSettings {
    let mut settings = ProvenanceSettings::default();
    put(&mut settings.via, keys.via.map(|via| via.into_option().map(String::from)));
    put(&mut settings.x_forwarded, keys.x_forwarded);
    put(&mut settings.forwarded, keys.forwarded);
    settings
}

fn head(keys: HeadKeys) -> HeadSettings {
    let mut settings = HeadSettings::default();
    put(&mut settings.target_bytes_max, keys.target_bytes_max.map(bytes));
    put(&mut settings.segments_max, keys.segments_max.map(size));
    let body_bytes_max = keys.body_bytes_max.map(OrOff::into_option);
    put(&mut settings.body_bytes_max, body_bytes_max.map(|max| max.map(Size::bytes)));
    put(&mut settings.body_idle, keys.body_idle);
    put(&mut settings.escaped_slashes, keys.escaped_slashes);
    settings
}

fn header_set(words: &[FieldsWord]) -> HeaderSet {
    words.iter().fold(HeaderSet::NONE, |set, word| {
        set.with(match word {
            FieldsWord::XRetryAfter => HeaderFormat::XRetryAfter,
            FieldsWord::XReset => HeaderFormat::XReset(ResetAs::DeltaSeconds),
            FieldsWord::XResetEpoch => HeaderFormat::XReset(ResetAs::EpochSeconds),
            FieldsWord::Legacy => HeaderFormat::Legacy,
            FieldsWord::Draft11 => HeaderFormat::Draft11,
        })
    })
}

fn delay(keys: &DelayKeys) -> DelaySettings {
    let mut settings = DelaySettings::default();
    put(&mut settings.waiting_max, keys.waiting_max.map(size));
    put(&mut settings.line_max, keys.line_max.map(size));
    put(&mut settings.wait_max, keys.wait_max);
    settings
}

fn queue(keys: &QueueKeys) -> QueueSettings {
    let mut settings = QueueSettings::default();
    put(&mut settings.requests_max, keys.requests_max.map(size));
    put(&mut settings.bytes_max, keys.bytes_max.map(bytes));
    put(&mut settings.body_bytes_max, keys.body_bytes_max.map(bytes));
    put(&mut settings.caller_requests_max, keys.caller_requests_max.map(size));
    put(&mut settings.caller_bytes_max, keys.caller_bytes_max.map(bytes));
    put(&mut settings.wait_max, keys.wait_max);
    put(&mut settings.remember, keys.remember);
    settings
}

#[cfg(test)]
mod tests;
