//! Turns the head of a request into descriptors and costs.
//!
//! Each route has templates of descriptors, compiled once. If a value is missing, the request is not limited by that
//! descriptor, as in Envoy, unless the entry says otherwise. Values are owned, because the request may wait; short ones
//! are stored inline, without an allocation.
//!
//! Tokens and API keys are verified only if an entry needs them, once per request.

mod api_keys;
mod cost;
mod credential;
mod identity;
mod jwt;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use compact_str::{CompactString, ToCompactString};
use http::request::Parts;
use ipnet::IpNet;

use super::encode::Fault;
use super::forward::Hop;
use super::head::Target;
use super::route::PathTemplate;
use super::settings::{Missing, PathMatch, Problems, RouteSettings, ValueFrom};
pub(super) use api_keys::ApiKeys;
pub use api_keys::api_key_plans;
pub(super) use cost::{Cost, DeferredCharges};
use credential::{cookie, query_parameter, text};
pub(super) use identity::{Identity, IdentityNeeds, IdentitySources};
pub(super) use jwt::Tokens;
use tidegate_admission::RequestDescription;

/// The length of the longest IPv4 address.
const IPV4_CHARS_MAX: usize = 15;

/// The id of the next describer, in all gateways of the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Describes the requests of one route.
#[derive(Debug)]
pub(super) struct Describer {
    /// Unique, also across reloads.
    id: u64,
    path_templates: Box<[PathTemplate]>,
    descriptors: Box<[DescriptorTemplate]>,
    needs: IdentityNeeds,
    /// Whether all requests of one client address have the same description.
    by_address: bool,
}

#[derive(Debug)]
struct DescriptorTemplate {
    entries: Box<[EntryTemplate]>,
    cost: Cost,
}

#[derive(Debug)]
struct EntryTemplate {
    key: CompactString,
    value: ValueFrom,
    missing: Missing,
}

/// The parts of a request that describe it.
pub(super) struct RequestView<'r> {
    pub(super) head: &'r Parts,
    pub(super) target: &'r Target,
    pub(super) client: Option<IpAddr>,
    /// The other end of the connection, often the client itself.
    pub(super) hop: &'r Hop,
    pub(super) route: &'r str,
    pub(super) identity: &'r Identity,
    /// The length of the body, if it is known.
    pub(super) body_bytes: Option<u64>,
}

/// The descriptors of a request, and the charges that are due when it has ended.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) described: RequestDescription,
    pub(super) deferred: DeferredCharges,
}

/// The description of all requests of a connection, cached for the first route that describes them by address. Most
/// connections use one route. Boxed, because many connections have none.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionDescription(OnceLock<Box<CachedDescription>>);

#[derive(Clone, Debug)]
struct CachedDescription {
    describer: u64,
    description: Description,
}

impl Describer {
    pub(super) fn compile(
        settings: &RouteSettings,
        location: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut templates = Vec::new();
        // The route reports an invalid template of its own path.
        if let PathMatch::Template(text) = &settings.path {
            templates.extend(PathTemplate::parse(text).ok());
        }
        for (index, text) in settings.templates.iter().enumerate() {
            let location = format!("{location}.templates[{index}]");
            templates.extend(problems.take(location, PathTemplate::parse(text)));
        }
        let mut needs = IdentityNeeds::default();
        let mut descriptors = Vec::new();
        for (index, descriptor) in settings.descriptors.iter().enumerate() {
            let location = format!("{location}.descriptors[{index}]");
            if descriptor.entries.is_empty() {
                problems.add(location.as_str(), "a descriptor needs an entry");
            }
            let mut entries = Vec::new();
            for (index, entry) in descriptor.entries.iter().enumerate() {
                let location = format!("{location}.entries[{index}]");
                problems.take(location, check_value(&entry.value, &templates));
                needs.add(&entry.value);
                entries.push(EntryTemplate {
                    key: entry.key.to_compact_string(),
                    value: entry.value.clone(),
                    missing: entry.missing.clone(),
                });
            }
            let cost = Cost::of(descriptor.cost.as_ref().unwrap_or(&settings.cost));
            descriptors.push(DescriptorTemplate { entries: entries.into(), cost });
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let by_address = descriptors.iter().all(DescriptorTemplate::is_by_address);
        let (path_templates, descriptors) = (templates.into(), descriptors.into());
        Some(Describer { id, path_templates, descriptors, needs, by_address })
    }

    /// What must be known about the caller.
    pub(super) const fn needs(&self) -> IdentityNeeds {
        self.needs
    }

    /// Whether the route has no descriptors, hence no limits.
    pub(super) const fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Describes a request, with the description that its connection has cached if that applies.
    ///
    /// # Errors
    /// Why the request cannot be described, and is rejected.
    #[inline]
    pub(super) fn describe<'r>(
        &self,
        request: &RequestView<'r>,
    ) -> Result<Cow<'r, Description>, Fault> {
        // Behind a proxy each request may have another client.
        if !self.by_address || request.client != request.hop.address {
            return self.build(request).map(Cow::Owned);
        }
        let cache = &request.hop.description.0;
        let cached = match cache.get() {
            Some(cached) => cached,
            None => {
                let description = self.build(request)?;
                cache
                    .get_or_init(|| Box::new(CachedDescription { describer: self.id, description }))
            }
        };
        if cached.describer == self.id {
            return Ok(Cow::Borrowed(&cached.description));
        }
        self.build(request).map(Cow::Owned)
    }

    fn build(&self, request: &RequestView<'_>) -> Result<Description, Fault> {
        let path = request.target.path(request.head);
        let template = self.path_templates.iter().find(|template| template.matches(path));
        let mut description =
            Description { described: RequestDescription::new(), deferred: DeferredCharges::new() };
        for descriptor in &self.descriptors {
            let begin = description.described.mark();
            let complete = descriptor.entries.iter().all(|entry| {
                match extract(&entry.value, request, template, path) {
                    Some(value) => description.described.entry(&entry.key, value),
                    None => match &entry.missing {
                        Missing::SkipDescriptor => return false,
                        Missing::SkipEntry => {}
                        Missing::Use(text) => {
                            description.described.entry(&entry.key, text.into());
                        }
                    },
                }
                true
            });
            if !complete || description.described.mark() == begin {
                description.described.truncate(begin);
                continue;
            }
            let cost = descriptor.cost.upfront(request.head, request.body_bytes)?;
            let index = description.described.close(Some(cost));
            if let Some(deferred) = descriptor.cost.deferred(request.body_bytes, index, cost) {
                description.deferred.push(deferred);
            }
        }
        Ok(description)
    }
}

impl DescriptorTemplate {
    /// Whether it is the same for all requests of one client address.
    fn is_by_address(&self) -> bool {
        let fixed = |entry: &EntryTemplate| {
            use ValueFrom::{Address, Fixed, Route};
            matches!(entry.value, Address { .. } | Fixed(_) | Route)
        };
        matches!(self.cost, Cost::Fixed(_)) && self.entries.iter().all(fixed)
    }
}

/// Extracts a value that does not depend on the templates of a route.
pub(super) fn value_of(value: &ValueFrom, request: &RequestView<'_>) -> Option<CompactString> {
    extract(value, request, None, request.target.path(request.head))
}

fn extract(
    value: &ValueFrom,
    request: &RequestView<'_>,
    template: Option<&PathTemplate>,
    path: &str,
) -> Option<CompactString> {
    let head = request.head;
    match value {
        ValueFrom::Fixed(text) => Some(text.into()),
        ValueFrom::Address { v4_bits, v6_bits } => network(request, *v4_bits, *v6_bits),
        ValueFrom::Header(name) => {
            head.headers.get(name).map(|value| CompactString::from(text(value.as_bytes())))
        }
        ValueFrom::Cookie(name) => cookie(&head.headers, name).map(CompactString::from),
        ValueFrom::PathTemplate => template.map(|template| template.text().into()),
        ValueFrom::PathParameter(name) => {
            let parameters = template?.parameters(path)?;
            let found = parameters.iter().find(|(other, _)| *other == &**name);
            found.map(|(_, value)| CompactString::from(*value))
        }
        ValueFrom::Path => Some(path.into()),
        ValueFrom::Method => Some(head.method.as_str().into()),
        ValueFrom::Host => {
            request.target.host().map(|host| CompactString::from(host).to_ascii_lowercase())
        }
        ValueFrom::Query(name) => query_parameter(head.uri.query()?, name).map(CompactString::from),
        ValueFrom::Claim(name) => request.identity.claim(name),
        ValueFrom::Plan => request.identity.plan().map(CompactString::from),
        ValueFrom::ApiKeyName => request.identity.key_name().map(CompactString::from),
        ValueFrom::Route => Some(request.route.into()),
    }
}

/// The client's address, or its network.
fn network(request: &RequestView<'_>, v4_bits: u8, v6_bits: u8) -> Option<CompactString> {
    let address = request.client?;
    let (bits, most) = if address.is_ipv4() { (v4_bits, 32) } else { (v6_bits, 128) };
    if bits < most
        && let Ok(network) = IpNet::new(address, bits)
    {
        return Some(network.trunc().to_compact_string());
    }
    Some(match address {
        _ if request.hop.address == Some(address) => request.hop.name.clone(),
        IpAddr::V4(address) => format_ipv4(address),
        IpAddr::V6(address) => address.to_compact_string(),
    })
}

/// Formats an address without `core::fmt`, which is slower: this runs for most requests behind a proxy.
fn format_ipv4(address: Ipv4Addr) -> CompactString {
    let mut text = [b'.'; IPV4_CHARS_MAX + 1];
    let mut chars_left = text.iter_mut();
    let mut chars = 0;
    for octet in address.octets() {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let first = usize::from(octet < 10) + usize::from(octet < 100);
        for (digit, char) in digits.into_iter().skip(first).zip(chars_left.by_ref()) {
            *char = b'0' + digit;
        }
        // Leaves the dot.
        chars_left.next();
        chars += digits.len() - first + 1;
    }
    let text = text.get(..chars - 1).unwrap_or_default();
    str::from_utf8(text).unwrap_or_default().into()
}

/// Checks whether a value can exist.
fn check_value(value: &ValueFrom, templates: &[PathTemplate]) -> Result<(), String> {
    match value {
        ValueFrom::Address { v4_bits, v6_bits } if *v4_bits > 32 || *v6_bits > 128 => {
            Err("an address has 32 bits in IPv4 and 128 in IPv6".to_owned())
        }
        ValueFrom::PathTemplate if templates.is_empty() => {
            Err("the route has no templates".to_owned())
        }
        ValueFrom::PathParameter(name)
            if !templates.iter().any(|template| template.names(name)) =>
        {
            Err(format!("no template of the route names `{name}`"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
