//! Who is shed first when we are short, and how long a client waits.
//!
//! What a stranger says of its own importance is not heard: only trusted hops name a category,
//! and what a request claims is replaced before an upstream sees it.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, request::Parts};
use tidegate_overload::{Caller, Category};

use super::describe::{Needs, Seen, value_of};
use super::settings::{CategoryRule, CategorySettings, Problems, RouteSettings, ValueFrom};
use tidegate_answers::grpc;

/// How requests are told apart.
#[derive(Debug)]
pub(super) struct Categories {
    settings: CategorySettings,
    needs: Needs,
}

impl Categories {
    pub(super) fn compile(
        settings: &CategorySettings,
        routes: &[RouteSettings],
        problems: &mut Problems,
    ) -> Self {
        let mut needs = Needs::default();
        needs.note(&settings.caller);
        for (index, rule) in settings.rules.iter().enumerate() {
            needs.key |= !rule.plans.is_empty();
            for name in &rule.routes {
                if !routes.iter().any(|route| route.name == *name) {
                    let place = format!("categories.rules[{index}].routes");
                    problems.add(place, format_args!("there is no route `{name}`"));
                }
            }
        }
        Categories { settings: settings.clone(), needs }
    }

    /// What has to be known of the caller.
    pub(super) const fn needs(&self) -> Needs {
        self.needs
    }

    /// Whether answers name the category that was shed.
    pub(super) const fn names_shed(&self) -> bool {
        self.settings.tell
    }

    /// What a request is, and how long its client waits if it says so.
    pub(super) fn of(&self, seen: &Seen<'_>, trusted: bool) -> (Category, Option<Duration>) {
        // Most requests say nothing of either, and looking at the names that are there costs
        // less than looking for those that are not.
        let says = seen.head.headers.keys().any(|name| self.tells(name));
        let (told, timeout) = match says {
            true => (self.told(seen.head, trusted), self.timeout(seen.head)),
            false => (None, None),
        };
        let rule = || self.settings.rules.iter().find(|rule| rule.takes(seen, trusted));
        let ruled = || rule().map(|rule| rule.category);
        (told.or_else(ruled).unwrap_or_else(|| usual(seen.head)), timeout)
    }

    /// Whether a field tells of the category, or of how long the client waits.
    fn tells(&self, name: &HeaderName) -> bool {
        let is = |field: &Option<HeaderName>| field.as_ref().is_some_and(|field| field == name);
        let CategorySettings { field, timeout_field, .. } = &self.settings;
        is(field) || is(timeout_field) || grpc::timeout::is_field(name)
    }

    /// The category that a trusted hop names.
    fn told(&self, head: &Parts, trusted: bool) -> Option<Category> {
        let field = self.settings.field.as_ref().filter(|_| trusted)?;
        named(head.headers.get(field)?)
    }

    /// Who is refused together.
    pub(super) fn caller(&self, seen: &Seen<'_>) -> Caller {
        // The usual one is hashed as it is, without being written first.
        if let (ValueFrom::Address { v4_bits: 32, v6_bits: 64 }, Some(client)) =
            (&self.settings.caller, seen.client)
        {
            return match client {
                std::net::IpAddr::V4(address) => Caller::named(address.octets()),
                std::net::IpAddr::V6(address) => {
                    Caller::named(address.octets().get(..8).unwrap_or_default())
                }
            };
        }
        value_of(&self.settings.caller, seen).map(Caller::named).unwrap_or_default()
    }

    /// How long the client waits, if it says so.
    pub(super) fn timeout(&self, head: &Parts) -> Option<Duration> {
        let millis = |field: &HeaderName| {
            let text = head.headers.get(field)?.to_str().ok()?;
            text.trim().parse().ok().map(Duration::from_millis)
        };
        let grpc = || grpc::timeout::of(&head.headers);
        self.settings.timeout_field.as_ref().and_then(millis).or_else(grpc)
    }

    /// Tells the upstream, in place of what the client said.
    pub(super) fn tell(&self, headers: &mut HeaderMap, category: Category) {
        if let Some(field) = &self.settings.field {
            let _ = headers.try_insert(field, field_value(category));
        }
    }

    /// Leaves out what a stranger says, where nobody tells the upstream anything else: it may
    /// believe what it hears from here.
    pub(super) fn forget(&self, headers: &mut HeaderMap, trusted: bool) {
        if let Some(field) = self.settings.field.as_ref().filter(|_| !trusted) {
            headers.remove(field);
        }
    }
}

impl CategoryRule {
    fn takes(&self, seen: &Seen<'_>, trusted: bool) -> bool {
        let fits = |names: &[String], name: Option<&str>| {
            names.is_empty() || name.is_some_and(|name| names.iter().any(|other| other == name))
        };
        let has = |(name, value): &(HeaderName, HeaderValue)| {
            trusted && seen.head.headers.get_all(name).iter().any(|found| found == value)
        };
        (self.methods.is_empty() || self.methods.contains(&seen.head.method))
            && fits(&self.routes, Some(seen.route))
            && fits(&self.plans, seen.identity.plan())
            && self.header.as_ref().is_none_or(has)
    }
}

/// The name of a category as a field has it, looked at once and not for each request.
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

/// Reading comes before writing.
fn usual(head: &Parts) -> Category {
    match head.method {
        Method::GET | Method::HEAD | Method::OPTIONS => Category::Get,
        _ => Category::Post,
    }
}

fn named(value: &HeaderValue) -> Option<Category> {
    let name = value.to_str().ok()?;
    Category::ALL.into_iter().find(|category| category.name().eq_ignore_ascii_case(name))
}
