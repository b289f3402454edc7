//! The category of a request, which decides whether it is shed first under overload, and the client's timeout.
//!
//! Only trusted hops may name a category in a field. The field of any other request is ignored, and replaced before the
//! upstream sees it.

use std::time::Duration;

use compact_str::CompactString;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, request::Parts};
use tidegate_overload::{Caller, Category};

use super::describe::{IdentityNeeds, RequestView, value_of};
use super::settings::{CategoryRule, CategorySettings, Problems, RouteSettings, ValueFrom};
use tidegate_answers::grpc;

/// Assigns categories to requests.
#[derive(Debug)]
pub(super) struct Categories {
    settings: CategorySettings,
    needs: IdentityNeeds,
}

impl Categories {
    pub(super) fn compile(
        settings: &CategorySettings,
        routes: &[RouteSettings],
        problems: &mut Problems,
    ) -> Self {
        let mut needs = IdentityNeeds::default();
        needs.add(&settings.caller);
        for (index, rule) in settings.rules.iter().enumerate() {
            needs.key |= !rule.plans.is_empty();
            for name in &rule.routes {
                if !routes.iter().any(|route| route.name == *name) {
                    let location = format!("categories.rules[{index}].routes");
                    problems.add(location, format_args!("there is no route `{name}`"));
                }
            }
        }
        Categories { settings: settings.clone(), needs }
    }

    /// What must be known about the caller.
    pub(super) const fn needs(&self) -> IdentityNeeds {
        self.needs
    }

    /// Whether refusals name the category that was shed.
    pub(super) const fn names_shed(&self) -> bool {
        self.settings.tell
    }

    /// The category of a request, and its client's timeout if a field states one.
    pub(super) fn categorize(
        &self,
        request: &RequestView<'_>,
        trusted: bool,
    ) -> (Category, Option<Duration>) {
        // Most requests have none of the fields. One pass over the names that are present costs less than a lookup of
        // each of the others.
        let has_fields = request.head.headers.keys().any(|name| self.is_own_field(name));
        let (named, timeout) = match has_fields {
            true => (self.named_by_hop(request.head, trusted), self.timeout(request.head)),
            false => (None, None),
        };
        let rule = || self.settings.rules.iter().find(|rule| rule.matches(request, trusted));
        let by_rule = || rule().map(|rule| rule.category);
        (named.or_else(by_rule).unwrap_or_else(|| by_method(request.head)), timeout)
    }

    /// Whether a field states the category or the client's timeout.
    fn is_own_field(&self, name: &HeaderName) -> bool {
        let is = |field: &Option<HeaderName>| field.as_ref().is_some_and(|field| field == name);
        let CategorySettings { field, timeout_field, .. } = &self.settings;
        is(field) || is(timeout_field) || grpc::timeout::is_field(name)
    }

    /// The category that a trusted hop names.
    fn named_by_hop(&self, head: &Parts, trusted: bool) -> Option<Category> {
        let field = self.settings.field.as_ref().filter(|_| trusted)?;
        parse(head.headers.get(field)?)
    }

    /// The caller, whose requests are shed together.
    pub(super) fn caller(&self, request: &RequestView<'_>) -> Caller {
        // The default setting: hashes the octets, without formatting the address first.
        if let (ValueFrom::Address { v4_bits: 32, v6_bits: 64 }, Some(client)) =
            (&self.settings.caller, request.client)
        {
            return match client {
                std::net::IpAddr::V4(address) => Caller::named(address.octets()),
                std::net::IpAddr::V6(address) => {
                    Caller::named(address.octets().get(..8).unwrap_or_default())
                }
            };
        }
        value_of(&self.settings.caller, request).map(Caller::named).unwrap_or_default()
    }

    /// The caller's name, for the access log.
    pub(super) fn caller_name(&self, request: &RequestView<'_>) -> Option<CompactString> {
        value_of(&self.settings.caller, request)
    }

    /// The client's timeout, if a field states it.
    pub(super) fn timeout(&self, head: &Parts) -> Option<Duration> {
        let millis = |field: &HeaderName| {
            let text = head.headers.get(field)?.to_str().ok()?;
            text.trim().parse().ok().map(Duration::from_millis)
        };
        let grpc = || grpc::timeout::of(&head.headers);
        self.settings.timeout_field.as_ref().and_then(millis).or_else(grpc)
    }

    /// Sets the field for the upstream, replacing the client's.
    pub(super) fn set_field(&self, headers: &mut HeaderMap, category: Category) {
        if let Some(field) = &self.settings.field {
            let _ = headers.try_insert(field, field_value(category));
        }
    }

    /// Removes the field of an untrusted client from a request without a category: the upstream trusts the gateway.
    pub(super) fn remove_untrusted_field(&self, headers: &mut HeaderMap, trusted: bool) {
        if let Some(field) = self.settings.field.as_ref().filter(|_| !trusted) {
            headers.remove(field);
        }
    }
}

impl CategoryRule {
    fn matches(&self, request: &RequestView<'_>, trusted: bool) -> bool {
        let fits = |names: &[String], name: Option<&str>| {
            names.is_empty() || name.is_some_and(|name| names.iter().any(|other| other == name))
        };
        let has = |(name, value): &(HeaderName, HeaderValue)| {
            trusted && request.head.headers.get_all(name).iter().any(|found| found == value)
        };
        (self.methods.is_empty() || self.methods.contains(&request.head.method))
            && fits(&self.routes, Some(request.route))
            && fits(&self.plans, request.identity.plan())
            && self.header.as_ref().is_none_or(has)
    }
}

/// The name of a category as a field value, validated at compile time.
pub(super) const fn field_value(category: Category) -> HeaderValue {
    const TEST: HeaderValue = HeaderValue::from_static(Category::Test.name());
    const GET: HeaderValue = HeaderValue::from_static(Category::Get.name());
    const POST: HeaderValue = HeaderValue::from_static(Category::Post.name());
    const CRITICAL: HeaderValue = HeaderValue::from_static(Category::Critical.name());
    match category {
        Category::Test => TEST,
        Category::Get => GET,
        Category::Post => POST,
        Category::Critical => CRITICAL,
    }
}

/// The default: `get` for requests that only read, `post` for others.
fn by_method(head: &Parts) -> Category {
    match head.method {
        Method::GET | Method::HEAD | Method::OPTIONS => Category::Get,
        _ => Category::Post,
    }
}

fn parse(value: &HeaderValue) -> Option<Category> {
    let name = value.to_str().ok()?;
    Category::ALL.into_iter().find(|category| category.name().eq_ignore_ascii_case(name))
}
