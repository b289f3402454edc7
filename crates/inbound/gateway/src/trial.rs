//! What the gateway makes of a request, without serving it: route, category, descriptors. Charges nothing.

use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri, header};
use tidegate_engine::{Clock, CounterStore};
use tidegate_overload::Category;
use tidegate_server::Peer;

use super::active_document::ActiveDocument;
use super::decode::DecodedHead;
use super::encode::Fault;
use super::forward::Hop;
use super::head::{HeadCheck, examine};
use super::route::find_route;
use super::service::Gateway;

/// A descriptor of a trial: keys and values, and its cost if it has one.
pub type TrialDescriptor = (Vec<(String, String)>, Option<u64>);

/// A request as the gateway sees it.
#[derive(Clone, Debug, Default)]
pub struct RequestTrial {
    /// The route, if one serves it.
    pub route: Option<String>,
    /// The group of upstreams that it would go to.
    pub upstream: Option<String>,
    /// Its category.
    pub category: Option<Category>,
    /// The domain of its rules.
    pub domain: String,
    /// Its descriptors: keys and values, and the cost of each if it has one.
    pub descriptors: Vec<TrialDescriptor>,
    /// Why it would be rejected before its limits: status, code and text.
    pub fault: Option<(u16, &'static str, &'static str)>,
    /// Whether the route is exempt from limits and protection.
    pub exempt: bool,
}

impl<S: CounterStore, C: Clock> Gateway<S, C> {
    /// What the gateway makes of a request from this address.
    pub fn try_request(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        client: Option<IpAddr>,
    ) -> RequestTrial {
        let peer = Peer { address: client.map(|client| (client, 0).into()), ..Peer::default() };
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (method, uri, headers);
        if !head.headers.contains_key(header::HOST) && head.uri.authority().is_none() {
            head.headers.insert(header::HOST, header::HeaderValue::from_static("localhost"));
        }
        self.document().try_head(&Hop::of(&peer), &mut head)
    }
}

impl<S: CounterStore, C: Clock> ActiveDocument<S, C> {
    fn try_head(&self, hop: &Hop, head: &mut Parts) -> RequestTrial {
        let mut trial =
            RequestTrial { domain: self.settings.domain.clone(), ..RequestTrial::default() };
        if let Err(fault) = self.fill_trial(hop, head, &mut trial) {
            trial.fault = Some((fault.status().as_u16(), fault.code(), fault.detail()));
        }
        trial
    }

    fn fill_trial(
        &self,
        hop: &Hop,
        head: &mut Parts,
        trial: &mut RequestTrial,
    ) -> Result<(), Fault> {
        let client = self.hops.client(hop.address, &head.headers);
        let HeadCheck::Sound(mut target) = examine(head, &self.settings.head, hop.host())? else {
            return Ok(());
        };
        let (_, route) = find_route(&self.routes, head, &mut target)?;
        trial.route = Some(route.name.to_string());
        trial.exempt = route.exempt;
        let group = self.settings.upstreams.get(route.upstream_group);
        trial.upstream = group.map(|group| group.name.clone());
        if !route.admits(client) {
            return Err(Fault::NetworkDenied);
        }
        let now = self.state.engine.clock().now();
        let needs = route.describer.needs() | self.identities.needs() | self.categories.needs();
        let identity = self.identities.identify(needs, head, now)?;
        let decoded = DecodedHead { head, target: &target, client, hop, body_bytes: None };
        let seen = decoded.with(route, &identity);
        let trusted = self.hops.trusts(hop.address);
        trial.category = Some(self.categories.categorize(&seen, trusted).0);
        let description = route.describer.describe(&seen)?;
        let described = &description.described;
        let entries = described.entries();
        for descriptor in described.descriptors(&entries) {
            let pair =
                |entry: &tidegate_engine::Entry<'_>| (entry.key.to_owned(), entry.value.to_owned());
            let pairs = descriptor.entries.iter().map(pair).collect();
            trial.descriptors.push((pairs, descriptor.cost));
        }
        Ok(())
    }
}
