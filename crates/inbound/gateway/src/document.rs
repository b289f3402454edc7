//! The gateway's settings as a document that people write: YAML, with a place for every problem.
//!
//! [`GatewayDocument::read`] turns a text into [`GatewaySettings`] and finds everything that is
//! wrong with it at once, as the compiler of rules does. What only
//! [`Gateway::new`](super::Gateway::new) can know (a route that leads nowhere, a template that is
//! none) comes back with its place by [`GatewayDocument::report`]. `vocabulary` has every key;
//! [`gateway_schema`] and [`gateway_reference`] are made from it.
//!
//! Not here: files. Whoever has the text reads it, and paths in it are opened by the gateway.

mod callers;
mod place;
mod reference;
mod routes;
mod schema;
mod tree;
mod upstreams;
mod vocabulary;

use std::net::IpAddr;

use ipnet::IpNet;
use tidegate_rules::reading::{Fault, Problems, Spot, closest, parse};
use tidegate_rules::{Report, Source};

use super::settings::{
    AddressFrom, DelaySettings, GatewayError, GatewaySettings, HeadSettings, ProvenanceSettings,
    QueueSettings, SettingProblem,
};
use place::Place;
use tidegate_answers::{HeaderFormat, HeaderSet, HeadersOn, ResetAs};
use tree::{Places, Reader, Section};

pub use reference::gateway_reference;
pub use schema::gateway_schema;

/// The largest document: a thousand routes of a kilobyte.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// A document that was read.
#[derive(Debug)]
pub struct GatewayDocument {
    source: Source,
    settings: GatewaySettings,
    places: Places,
}

impl GatewayDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// With everything that is wrong with the text.
    pub fn read(source: Source) -> Result<Self, Report> {
        let sources = [source];
        let mut problems = Problems::new(&sources);
        let [source] = &sources;
        let read = read(source, &mut problems);
        let (settings, places) = match read {
            Some(read) if !problems.has_errors() => read,
            _ => return Err(problems.into_report()),
        };
        let [source] = sources;
        Ok(GatewayDocument { source, settings, places })
    }

    /// The text that was read.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// What it says.
    pub const fn settings(&self) -> &GatewaySettings {
        &self.settings
    }

    /// The problems that a gateway has with these settings, where they stand in the document.
    pub fn report(&self, error: &GatewayError) -> Report {
        let sources = std::slice::from_ref(&self.source);
        let mut problems = Problems::new(sources);
        for problem in &error.problems {
            let fault = Fault::new("unusable_setting", problem.problem.as_str());
            problems.error(self.place(&problem.place), fault.maybe_hint(self.hint(problem)));
        }
        problems.into_report()
    }

    /// Where a setting stands; for one that does not, what it would stand in.
    fn place(&self, place: &str) -> Spot {
        let mut place = place;
        loop {
            // A path is written as a prefix or as a template.
            let otherwise = || {
                let route = place.strip_suffix(".path")?;
                self.places.get(&format!("{route}.template"))
            };
            if let Some(spot) = self.places.get(place).or_else(otherwise) {
                return *spot;
            }
            match place.rfind(['.', '[']) {
                Some(end) => place = place.get(..end).unwrap_or_default(),
                None => return self.places.get("").copied().unwrap_or_default(),
            }
        }
    }

    /// What a name that leads nowhere was probably meant to be.
    fn hint(&self, problem: &SettingProblem) -> Option<String> {
        let (_, rest) = problem.problem.split_once('`')?;
        let (written, _) = rest.split_once('`')?;
        let settings = &self.settings;
        let near = match problem.place.rsplit('.').next() {
            Some("upstreams") => {
                closest(written, settings.upstreams.iter().map(|group| group.name.as_str()))
            }
            Some("routes") => {
                closest(written, settings.routes.iter().map(|route| route.name.as_str()))
            }
            _ => None,
        };
        near.map(|near| format!("did you mean `{near}`?"))
    }
}

fn read(source: &Source, problems: &mut Problems<'_>) -> Option<(GatewaySettings, Places)> {
    if source.text.len() > DOCUMENT_BYTES_MAX {
        let bytes = source.text.len();
        let message = format!("the document has {bytes} bytes; the most is {DOCUMENT_BYTES_MAX}");
        problems.error(Spot::default(), Fault::new("too_large", message));
        return None;
    }
    let yaml = parse(0, &source.text, problems)?;
    let Some(root) = yaml.root().filter(|root| !yaml.is_null(*root)) else {
        let fault = Fault::new("missing_key", "the document is empty")
            .hint("it needs `routes` and `upstreams`");
        problems.error(Spot::default(), fault);
        return None;
    };
    let mut reader = Reader::new(&yaml, problems);
    let section = reader.section(root, Place::Root, "");
    let places = reader.places;
    Some((settings(&section, problems), places))
}

/// Puts what was given in place of a default.
fn put<T>(target: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *target = given;
    }
}

/// A count as large as this machine can have.
fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn settings(root: &Section, problems: &mut Problems<'_>) -> GatewaySettings {
    let mut settings = GatewaySettings::default();
    put(&mut settings.domain, root.text("domain").map(str::to_owned));
    settings.upstreams =
        root.many("upstreams").iter().map(|group| upstreams::group(group, problems)).collect();
    settings.routes = root
        .many("routes")
        .iter()
        .map(|route| routes::route(route, &settings.upstreams, problems))
        .collect();
    for (text, spot) in root.texts("trusted_hops") {
        let address = || text.parse().ok().map(|address: IpAddr| IpNet::from(address));
        match text.parse().ok().or_else(address) {
            Some(network) => settings.trusted_hops.push(network),
            None => {
                let fault = Fault::new("invalid_network", format!("`{text}` is no network"));
                problems.error(*spot, fault.hint("write `10.0.0.0/8`, `fd00::/8` or an address"));
            }
        }
    }
    put(
        &mut settings.address_from,
        root.choice("address_from").map(|word| match word {
            "peer" => AddressFrom::Peer,
            "forwarded" => AddressFrom::Forwarded,
            _ => AddressFrom::XForwardedFor,
        }),
    );
    put(&mut settings.provenance, root.one("provenance").map(provenance));
    put(&mut settings.head, root.one("head").map(head));
    settings.jwt = root.one("jwt").and_then(|jwt| callers::jwt(jwt, problems));
    settings.api_keys = root.one("api_keys").map(|keys| callers::api_keys(keys, problems));
    put(&mut settings.headers, root.choices("rate_limit_fields").map(header_set));
    put(
        &mut settings.headers_on,
        root.choice("rate_limit_fields_on").map(|word| match word {
            "refusal" => HeadersOn::Refusal,
            _ => HeadersOn::Always,
        }),
    );
    put(&mut settings.delay, root.one("delay").map(delay));
    put(&mut settings.queue, root.one("queue").map(queue));
    put(
        &mut settings.categories,
        root.one("categories").map(|categories| callers::categories(categories, problems)),
    );
    settings
}

fn provenance(section: &Section) -> ProvenanceSettings {
    let mut settings = ProvenanceSettings::default();
    put(&mut settings.via, section.text("via").map(|via| Some(via.to_owned())));
    if section.is_off("via") {
        settings.via = None;
    }
    put(&mut settings.x_forwarded, section.flag("x_forwarded"));
    put(&mut settings.forwarded, section.flag("forwarded"));
    settings
}

fn head(section: &Section) -> HeadSettings {
    let mut settings = HeadSettings::default();
    put(&mut settings.target_bytes_max, section.count("target_bytes_max").map(size));
    put(&mut settings.segments_max, section.count("segments_max").map(size));
    put(&mut settings.body_bytes_max, section.count("body_bytes_max").map(Some));
    put(&mut settings.body_idle, section.duration("body_idle"));
    settings
}

fn header_set(words: &[&'static str]) -> HeaderSet {
    words.iter().fold(HeaderSet::NONE, |set, word| {
        set.with(match *word {
            "x_retry_after" => HeaderFormat::XRetryAfter,
            "x_reset" => HeaderFormat::XReset(ResetAs::DeltaSeconds),
            "x_reset_epoch" => HeaderFormat::XReset(ResetAs::EpochSeconds),
            "legacy" => HeaderFormat::Legacy,
            _ => HeaderFormat::Draft11,
        })
    })
}

fn delay(section: &Section) -> DelaySettings {
    let mut settings = DelaySettings::default();
    put(&mut settings.waiting_max, section.count("waiting_max").map(size));
    put(&mut settings.line_max, section.count("line_max").map(size));
    put(&mut settings.wait_max, section.duration("wait_max"));
    settings
}

fn queue(section: &Section) -> QueueSettings {
    let mut settings = QueueSettings::default();
    put(&mut settings.requests_max, section.count("requests_max").map(size));
    put(&mut settings.bytes_max, section.count("bytes_max").map(size));
    put(&mut settings.body_bytes_max, section.count("body_bytes_max").map(size));
    put(&mut settings.wait_max, section.duration("wait_max"));
    put(&mut settings.remember, section.duration("remember"));
    settings
}

#[cfg(test)]
mod tests;
