//! Turns the head of a request into descriptors and costs.
//!
//! Each route has templates of descriptors, compiled once. If a value is missing, the request is not limited by that
//! descriptor, as in Envoy, unless the entry says otherwise. If there are several values, each is charged. Values are
//! owned, because the request may wait; short ones are stored inline, without an allocation.
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
use super::settings::{PathMatch, Problems, RouteSettings, ValueFrom, WhenMissing};
pub(super) use api_keys::ApiKeys;
pub use api_keys::{NewApiKey, api_key_plans};
pub(super) use cost::{Cost, DeferredCharges};
use credential::{ValueMatch, cookie_values, header_values, only, query_values};
pub(super) use identity::{Identity, IdentityNeeds, IdentitySources};
pub(super) use jwt::Tokens;
use tidegate_admission::RequestDescription;

/// The length of the longest IPv4 address.
const IPV4_CHARS_MAX: usize = 15;

/// The maximum of descriptors in place of one whose values are ambiguous. More are no mistake of a client.
const COMBINATIONS_MAX: usize = 4;

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
    when_missing: WhenMissing,
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
                    when_missing: entry.when_missing.clone().unwrap_or_default(),
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
        let extract = |entry: &EntryTemplate| extract(&entry.value, request, template, path);
        for descriptor in &self.descriptors {
            let begin = description.described.mark();
            match descriptor.add_entries(&mut description.described, &extract)? {
                EntriesResult::Complete if description.described.mark() > begin => {
                    descriptor.close(&mut description, request)?;
                }
                EntriesResult::Complete | EntriesResult::Incomplete => {
                    description.described.truncate(begin);
                }
                EntriesResult::Several => {
                    description.described.truncate(begin);
                    descriptor.add_combinations(&mut description, request, &extract)?;
                }
            }
        }
        Ok(description)
    }
}

/// The result of adding the entries of a descriptor.
enum EntriesResult {
    Complete,
    /// A value is missing, and the request does not have the descriptor.
    Incomplete,
    /// An entry has several values.
    Several,
}

impl EntryTemplate {
    /// The entry's value if the request has none; [`None`] for no entry.
    fn default_value(&self) -> Result<DefaultValue<'_>, Fault> {
        match &self.when_missing {
            WhenMissing::SkipDescriptor => Ok(DefaultValue::NoDescriptor),
            WhenMissing::SkipEntry => Ok(DefaultValue::NoEntry),
            WhenMissing::Use(text) => Ok(DefaultValue::Text(text)),
            WhenMissing::Reject => Err(match self.value {
                ValueFrom::Claim(_) | ValueFrom::Plan | ValueFrom::ApiKeyName => {
                    Fault::MissingCredential
                }
                _ => Fault::MissingValue,
            }),
        }
    }
}

/// What stands for a value that the request does not have.
enum DefaultValue<'e> {
    NoDescriptor,
    NoEntry,
    Text(&'e str),
}

impl DescriptorTemplate {
    /// Adds the entries, as long as each has one value.
    fn add_entries(
        &self,
        described: &mut RequestDescription,
        extract: &impl Fn(&EntryTemplate) -> ValueMatch<CompactString>,
    ) -> Result<EntriesResult, Fault> {
        for entry in &self.entries {
            match extract(entry) {
                ValueMatch::One(value) => described.entry(&entry.key, value),
                ValueMatch::Several => return Ok(EntriesResult::Several),
                ValueMatch::Missing => match entry.default_value()? {
                    DefaultValue::Text(text) => described.entry(&entry.key, text.into()),
                    DefaultValue::NoEntry => {}
                    DefaultValue::NoDescriptor => return Ok(EntriesResult::Incomplete),
                },
            }
        }
        Ok(EntriesResult::Complete)
    }

    /// Adds a descriptor for each combination of values, because the upstream may use any of them.
    #[cold]
    fn add_combinations(
        &self,
        description: &mut Description,
        request: &RequestView<'_>,
        extract: &impl Fn(&EntryTemplate) -> ValueMatch<CompactString>,
    ) -> Result<(), Fault> {
        let mut combinations: Vec<Vec<(&CompactString, CompactString)>> = vec![Vec::new()];
        for entry in &self.entries {
            let values = match extract(entry) {
                ValueMatch::One(value) => vec![value],
                ValueMatch::Several => all_values(&entry.value, request)?,
                ValueMatch::Missing => match entry.default_value()? {
                    DefaultValue::Text(text) => vec![text.into()],
                    DefaultValue::NoEntry => continue,
                    DefaultValue::NoDescriptor => return Ok(()),
                },
            };
            let with = |value: &CompactString| {
                let with = |combination: &Vec<_>| {
                    let mut combination = combination.clone();
                    combination.push((&entry.key, value.clone()));
                    combination
                };
                combinations.iter().map(with).collect::<Vec<_>>()
            };
            combinations = values.iter().flat_map(with).collect();
            if combinations.len() > COMBINATIONS_MAX {
                return Err(Fault::AmbiguousValue);
            }
        }
        for combination in combinations {
            for (key, value) in combination {
                description.described.entry(key, value);
            }
            self.close(description, request)?;
        }
        Ok(())
    }

    /// Ends a descriptor with its cost.
    fn close(&self, description: &mut Description, request: &RequestView<'_>) -> Result<(), Fault> {
        let cost = self.cost.upfront(request.head, request.body_bytes)?;
        let index = description.described.close(Some(cost));
        if let Some(deferred) = self.cost.deferred(request.body_bytes, index, cost) {
            description.deferred.push(deferred);
        }
        Ok(())
    }

    /// Whether it is the same for all requests of one client address.
    fn is_by_address(&self) -> bool {
        let fixed = |entry: &EntryTemplate| {
            use ValueFrom::{Address, Fixed, Route};
            matches!(entry.value, Address { .. } | Fixed(_) | Route)
        };
        matches!(self.cost, Cost::Fixed(_)) && self.entries.iter().all(fixed)
    }
}

/// Extracts a value that does not depend on the templates of a route; the first, if there are several.
pub(super) fn value_of(value: &ValueFrom, request: &RequestView<'_>) -> Option<CompactString> {
    match extract(value, request, None, request.target.path(request.head)) {
        ValueMatch::One(value) => Some(value),
        ValueMatch::Several => all_values(value, request).ok()?.into_iter().next(),
        ValueMatch::Missing => None,
    }
}

fn extract(
    value: &ValueFrom,
    request: &RequestView<'_>,
    template: Option<&PathTemplate>,
    path: &str,
) -> ValueMatch<CompactString> {
    let head = request.head;
    match value {
        ValueFrom::Fixed(text) => ValueMatch::One(text.into()),
        ValueFrom::Address { v4_bits, v6_bits } => network(request, *v4_bits, *v6_bits).into(),
        ValueFrom::Header(name) => only(header_values(&head.headers, name)).map(Into::into),
        ValueFrom::Cookie(name) => only(cookie_values(&head.headers, name)).map(Into::into),
        ValueFrom::Query(name) => only(query_values(head.uri.query(), name)).map(Into::into),
        ValueFrom::PathTemplate => template.map(|template| template.text().into()).into(),
        ValueFrom::PathParameter(name) => path_parameter(name, template, path).into(),
        ValueFrom::Path => ValueMatch::One(path.into()),
        ValueFrom::Method => ValueMatch::One(head.method.as_str().into()),
        ValueFrom::Host => {
            let host = request.target.host();
            host.map(|host| CompactString::from(host).to_ascii_lowercase()).into()
        }
        ValueFrom::Claim(name) => request.identity.claim(name).into(),
        ValueFrom::Plan => request.identity.plan().map(CompactString::from).into(),
        ValueFrom::ApiKeyName => request.identity.key_name().map(CompactString::from).into(),
        ValueFrom::Route => ValueMatch::One(request.route.into()),
    }
}

fn path_parameter(
    name: &str,
    template: Option<&PathTemplate>,
    path: &str,
) -> Option<CompactString> {
    let parameters = template?.parameters(path)?;
    let found = parameters.iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| CompactString::from(*value))
}

/// The different values of a field, cookie or parameter, in their order.
fn all_values(value: &ValueFrom, request: &RequestView<'_>) -> Result<Vec<CompactString>, Fault> {
    let head = request.head;
    let values: Box<dyn Iterator<Item = Cow<'_, str>> + '_> = match value {
        ValueFrom::Header(name) => Box::new(header_values(&head.headers, name)),
        ValueFrom::Cookie(name) => Box::new(cookie_values(&head.headers, name)),
        ValueFrom::Query(name) => Box::new(query_values(head.uri.query(), name)),
        _ => Box::new(std::iter::empty()),
    };
    let mut distinct: Vec<CompactString> = Vec::new();
    for value in values {
        if !distinct.iter().any(|other| *other == value) {
            distinct.push(value.into());
        }
        if distinct.len() > COMBINATIONS_MAX {
            return Err(Fault::AmbiguousValue);
        }
    }
    Ok(distinct)
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
