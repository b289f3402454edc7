//! Who asks for what: from a request's head to descriptors and costs.
//!
//! Each route has recipes, made once. A value that a request does not have leaves its
//! descriptor out, as in Envoy, unless the recipe says otherwise. Values are owned, because a
//! request may have to wait with them; short ones are kept in place.
//!
//! Tokens and keys are looked at only where a recipe needs them, once for each request.

mod api_keys;
mod base64;
mod cost;
mod identity;
mod jwt;
mod key_set;
mod presented;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use compact_str::{CompactString, ToCompactString};
use http::HeaderValue;
use http::request::Parts;
use ipnet::IpNet;

use super::forward::Hop;
use super::head::Target;
use super::route::Template;
use super::settings::{Missing, PathMatch, Problems, RouteSettings, ValueFrom};
pub(super) use api_keys::ApiKeys;
pub use api_keys::api_key_plans;
pub(super) use cost::{Cost, Deferrals};
pub(super) use identity::{Identities, Identity, Needs};
pub(super) use jwt::Tokens;
use presented::{cookie, query};
use tidegate_admission::RequestDescription;

/// The characters of the longest IPv4 address.
const IPV4_CHARS_MAX: usize = 15;

/// Describers made so far, in all gateways.
static DESCRIBERS: AtomicU64 = AtomicU64::new(0);

/// How the requests of one route are described.
#[derive(Debug)]
pub(super) struct Describer {
    /// No other has it, also after a reload.
    number: u64,
    templates: Box<[Template]>,
    recipes: Box<[Recipe]>,
    needs: Needs,
    /// Whether all that is said of a request is where it came from.
    by_origin: bool,
}

#[derive(Debug)]
struct Recipe {
    ingredients: Box<[Ingredient]>,
    cost: Cost,
}

#[derive(Debug)]
struct Ingredient {
    key: CompactString,
    value: ValueFrom,
    missing: Missing,
}

/// What is known of a request.
pub(super) struct Seen<'r> {
    pub(super) head: &'r Parts,
    pub(super) target: &'r Target,
    pub(super) client: Option<IpAddr>,
    /// Where it came from: often the client itself.
    pub(super) hop: &'r Hop,
    pub(super) route: &'r str,
    pub(super) identity: &'r Identity,
    /// The length of the body, when it is known.
    pub(super) body_bytes: Option<u64>,
}

/// A described request: what it is limited by, and what is charged when it has ended.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) described: RequestDescription,
    pub(super) deferred: Deferrals,
}

/// What is said of all requests of a connection, by the first route that describes them by
/// where they come from. Few connections ask for more than one. In a box: not all connections
/// have it.
#[derive(Clone, Debug, Default)]
pub(super) struct OfConnection(OnceLock<Box<Known>>);

#[derive(Clone, Debug)]
struct Known {
    /// Of the describer.
    number: u64,
    description: Description,
}

impl Describer {
    pub(super) fn compile(
        settings: &RouteSettings,
        place: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut templates = Vec::new();
        // What is wrong with the route's own is told where it stands.
        if let PathMatch::Template(text) = &settings.path {
            templates.extend(Template::parse(text).ok());
        }
        for (index, text) in settings.templates.iter().enumerate() {
            let place = format!("{place}.templates[{index}]");
            templates.extend(problems.take(place, Template::parse(text)));
        }
        let mut needs = Needs::default();
        let mut recipes = Vec::new();
        for (index, descriptor) in settings.descriptors.iter().enumerate() {
            let place = format!("{place}.descriptors[{index}]");
            if descriptor.entries.is_empty() {
                problems.add(place.as_str(), "a descriptor needs an entry");
            }
            let mut ingredients = Vec::new();
            for (index, entry) in descriptor.entries.iter().enumerate() {
                let place = format!("{place}.entries[{index}]");
                problems.take(place, check_value(&entry.value, &templates));
                needs.note(&entry.value);
                ingredients.push(Ingredient {
                    key: entry.key.to_compact_string(),
                    value: entry.value.clone(),
                    missing: entry.missing.clone(),
                });
            }
            let cost = Cost::of(descriptor.cost.as_ref().unwrap_or(&settings.cost));
            recipes.push(Recipe { ingredients: ingredients.into(), cost });
        }
        let number = DESCRIBERS.fetch_add(1, Ordering::Relaxed);
        let by_origin = recipes.iter().all(Recipe::is_by_origin);
        let (templates, recipes) = (templates.into(), recipes.into());
        Some(Describer { number, templates, recipes, needs, by_origin })
    }

    /// What has to be known of the caller.
    pub(super) const fn needs(&self) -> Needs {
        self.needs
    }

    /// Whether nothing limits the route.
    pub(super) const fn is_empty(&self) -> bool {
        self.recipes.is_empty()
    }

    /// Describes a request, in words that its connection has already if it can.
    #[inline]
    pub(super) fn describe<'r>(&self, seen: &Seen<'r>) -> Cow<'r, Description> {
        // A client behind the hop is another for each request.
        if self.by_origin && seen.client == seen.hop.address {
            let known = seen.hop.described.0.get_or_init(|| {
                Box::new(Known { number: self.number, description: self.described(seen) })
            });
            if known.number == self.number {
                return Cow::Borrowed(&known.description);
            }
        }
        Cow::Owned(self.described(seen))
    }

    fn described(&self, seen: &Seen<'_>) -> Description {
        let path = seen.target.path(seen.head);
        let template = self.templates.iter().find(|template| template.matches(path));
        let mut description =
            Description { described: RequestDescription::new(), deferred: Deferrals::new() };
        for recipe in &self.recipes {
            let begin = description.described.mark();
            let complete = recipe.ingredients.iter().all(|ingredient| {
                match find(&ingredient.value, seen, template, path) {
                    Some(value) => description.described.entry(&ingredient.key, value),
                    None => match &ingredient.missing {
                        Missing::SkipDescriptor => return false,
                        Missing::SkipEntry => {}
                        Missing::Use(text) => {
                            description.described.entry(&ingredient.key, text.into());
                        }
                    },
                }
                true
            });
            if !complete || description.described.mark() == begin {
                description.described.truncate(begin);
                continue;
            }
            let cost = recipe.cost.before(seen.head, seen.body_bytes);
            let place = description.described.close(Some(cost));
            if let Some(deferred) = recipe.cost.deferred(seen.body_bytes, place, cost) {
                description.deferred.push(deferred);
            }
        }
        description
    }
}

impl Recipe {
    /// Whether it says the same of all requests that come from one place.
    fn is_by_origin(&self) -> bool {
        let fixed = |ingredient: &Ingredient| {
            use ValueFrom::{Address, Fixed, Route};
            matches!(ingredient.value, Address { .. } | Fixed(_) | Route)
        };
        matches!(self.cost, Cost::Fixed(_)) && self.ingredients.iter().all(fixed)
    }
}

/// A value that no template of a route is needed for.
pub(super) fn value_of(value: &ValueFrom, seen: &Seen<'_>) -> Option<CompactString> {
    find(value, seen, None, seen.target.path(seen.head))
}

fn find(
    value: &ValueFrom,
    seen: &Seen<'_>,
    template: Option<&Template>,
    path: &str,
) -> Option<CompactString> {
    let head = seen.head;
    match value {
        ValueFrom::Fixed(text) => Some(text.into()),
        ValueFrom::Address { v4_bits, v6_bits } => network(seen, *v4_bits, *v6_bits),
        ValueFrom::Header(name) => head.headers.get(name).and_then(text).map(CompactString::from),
        ValueFrom::Cookie(name) => cookie(&head.headers, name).map(CompactString::from),
        ValueFrom::PathTemplate => template.map(|template| template.text().into()),
        ValueFrom::PathParameter(name) => {
            let parameters = template?.read(path)?;
            let found = parameters.iter().find(|(other, _)| *other == &**name);
            found.map(|(_, value)| CompactString::from(*value))
        }
        ValueFrom::Path => Some(path.into()),
        ValueFrom::Method => Some(head.method.as_str().into()),
        ValueFrom::Host => {
            seen.target.host().map(|host| CompactString::from(host).to_ascii_lowercase())
        }
        ValueFrom::Query(name) => query(head.uri.query()?, name).map(CompactString::from),
        ValueFrom::Claim(name) => seen.identity.claim(name),
        ValueFrom::Plan => seen.identity.plan().map(CompactString::from),
        ValueFrom::ApiKeyName => seen.identity.key_name().map(CompactString::from),
        ValueFrom::Route => Some(seen.route.into()),
    }
}

fn text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// The client's address, or the network around it.
fn network(seen: &Seen<'_>, v4_bits: u8, v6_bits: u8) -> Option<CompactString> {
    let address = seen.client?;
    let (bits, most) = if address.is_ipv4() { (v4_bits, 32) } else { (v6_bits, 128) };
    if bits < most
        && let Ok(network) = IpNet::new(address, bits)
    {
        return Some(network.trunc().to_compact_string());
    }
    Some(match address {
        _ if seen.hop.address == Some(address) => seen.hop.name.clone(),
        IpAddr::V4(address) => dotted(address),
        IpAddr::V6(address) => address.to_compact_string(),
    })
}

/// An address as it is usually written, without the detour over formatting: this is done for
/// most requests.
fn dotted(address: Ipv4Addr) -> CompactString {
    let mut text = [b'.'; IPV4_CHARS_MAX + 1];
    let mut places = text.iter_mut();
    let mut chars = 0;
    for octet in address.octets() {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let first = usize::from(octet < 10) + usize::from(octet < 100);
        for (digit, place) in digits.into_iter().skip(first).zip(places.by_ref()) {
            *place = b'0' + digit;
        }
        // Stays a dot.
        places.next();
        chars += digits.len() - first + 1;
    }
    let text = text.get(..chars - 1).unwrap_or_default();
    str::from_utf8(text).unwrap_or_default().into()
}

/// Why a value can never be had.
fn check_value(value: &ValueFrom, templates: &[Template]) -> Result<(), String> {
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
