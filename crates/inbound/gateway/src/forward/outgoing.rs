//! A request as its upstream gets it.

use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Request, StatusCode, Uri, Version};
use http_body::Body;
use hyper::upgrade::OnUpgrade;

use super::{Hop, Provenance, has_hop_by_hop, remove_hop_by_hop};
use crate::body::{ContinueGate, ContinueSignal, RequestBody};
use crate::head::Target;
use crate::route::Route;
use crate::settings::HostHeader;
use crate::upstream::{Dress, Exchange, Host};

/// A server that does not say whether it wants a body gets it after so long.
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// A request on its way, and what it takes to fit it to a connection.
pub(crate) struct Outgoing {
    pub(crate) exchange: Exchange,
    pub(crate) fitting: Fitting,
    /// The client's side of a tunnel, if it wants one.
    pub(crate) upgrade: Option<OnUpgrade>,
}

/// What depends on the connection.
pub(crate) struct Fitting {
    target: PathAndQuery,
    authority: Option<Authority>,
    host_header: HostHeader,
    upgrade: Option<HeaderValue>,
    trailers: bool,
    /// Lets the body go that waits for the upstream's word.
    gate: Option<Arc<ContinueSignal>>,
}

/// Makes the upstream's request of the client's, whose head is used up.
pub(crate) fn outgoing(
    head: &mut Parts,
    body: RequestBody,
    target: &Target,
    route: &Route,
    (hop, trusted, provenance): (&Hop, bool, &Provenance),
) -> Outgoing {
    // Both are between neighbours, of which most requests have nothing.
    let between = has_hop_by_hop(&head.headers);
    let upgrade = if between { wanted_upgrade(head) } else { None };
    let trailers = between && head.headers.get_all(TE).iter().any(|te| names(te, "trailers"));
    let mut fitting = Fitting {
        target: route.rewrite.apply(head, target),
        authority: target.authority.clone(),
        host_header: route.host_header,
        upgrade: upgrade.clone(),
        trailers,
        gate: None,
    };
    let mut headers = std::mem::take(&mut head.headers);
    if between {
        remove_hop_by_hop(&mut headers);
    }
    frame(&mut headers, &body);
    provenance.tell(&mut headers, (hop, trusted), head.version, target.authority.as_ref());
    route.request_edits.apply(&mut headers);
    let expects =
        !body.is_empty() && headers.get(EXPECT).is_some_and(|expect| names(expect, "100-continue"));
    let on_upgrade = upgrade.and_then(|_| head.extensions.remove::<OnUpgrade>());
    let mut request = Request::new(body);
    *request.method_mut() = std::mem::take(&mut head.method);
    *request.headers_mut() = headers;
    if expects {
        (request, fitting.gate) = wait_to_continue(request);
    }
    Outgoing { exchange: Exchange::of(request), fitting, upgrade: on_upgrade }
}

/// Keeps the body back until the upstream wants it, so that the client is not told to send
/// what nobody reads.
fn wait_to_continue(
    request: Request<RequestBody>,
) -> (Request<RequestBody>, Option<Arc<ContinueSignal>>) {
    let (gate, key) = ContinueGate::new(CONTINUE_PATIENCE);
    let mut request = request.map(|body| body.behind(gate));
    let opening = Arc::clone(&key);
    hyper::ext::on_informational(&mut request, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            opening.open();
        }
    });
    (request, Some(key))
}

/// What the client wants to speak instead, if that can be had. HTTP in another version cannot:
/// requests in a tunnel would pass every limit.
fn wanted_upgrade(head: &Parts) -> Option<HeaderValue> {
    let wanted = head.headers.get(UPGRADE).filter(|_| head.version == Version::HTTP_11)?;
    let options = head.headers.get_all(CONNECTION);
    let meant = options.iter().any(|option| names(option, "upgrade"));
    let speaks_http = head.headers.get_all(UPGRADE).iter().any(names_http);
    (meant && !speaks_http).then(|| wanted.clone())
}

/// Whether a list of protocols has HTTP in any version, encrypted or not.
fn names_http(protocols: &HeaderValue) -> bool {
    let mut protocols = protocols.as_bytes().split(|byte| *byte == b',');
    protocols.any(|protocol| {
        let name = protocol.trim_ascii().split(|byte| *byte == b'/').next().unwrap_or_default();
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        ["http", "h2c", "h2", "h3", "tls"].into_iter().any(is)
    })
}

/// Whether a list has a member.
fn names(list: &HeaderValue, member: &str) -> bool {
    let mut members = list.as_bytes().split(|byte| *byte == b',');
    members.any(|other| other.trim_ascii().eq_ignore_ascii_case(member.as_bytes()))
}

/// A length that was told and holds is told again; no other is.
fn frame(headers: &mut HeaderMap, body: &RequestBody) {
    let Some(told) = headers.get(CONTENT_LENGTH) else { return };
    let told: Option<u64> = told.to_str().ok().and_then(|told| told.parse().ok());
    if told.is_none() || told != body.size_hint().exact() {
        headers.remove(CONTENT_LENGTH);
    }
}

impl Dress for Fitting {
    fn dress(&self, request: &mut Request<RequestBody>, version: Version, host: &Host) {
        let origin = host.origin();
        let authority = match self.host_header {
            HostHeader::Client => self.authority.as_ref().unwrap_or_else(|| origin.authority()),
            HostHeader::Upstream => origin.authority(),
        };
        *request.version_mut() = version;
        if version == Version::HTTP_2 {
            self.dress_for_two(request, authority, host);
        } else {
            self.dress_for_one(request, authority, host);
        }
        if self.trailers {
            set(request.headers_mut(), TE, TRAILERS);
        }
    }
}

impl Fitting {
    fn dress_for_one(
        &self,
        request: &mut Request<RequestBody>,
        authority: &Authority,
        host: &Host,
    ) {
        *request.uri_mut() = Uri::from(self.target.clone());
        let unknown_length = request.body().size_hint().exact().is_none();
        let headers = request.headers_mut();
        match self.host_header {
            HostHeader::Upstream => set(headers, HOST, host.origin().field().clone()),
            HostHeader::Client => name_host(headers, authority),
        }
        // hyper would leave the body of a GET out unless it is told of it.
        if unknown_length {
            set(headers, TRANSFER_ENCODING, CHUNKED);
        }
        let options = match (&self.upgrade, self.trailers) {
            (Some(_), true) => "upgrade, te",
            (Some(_), false) => "upgrade",
            (None, true) => "te",
            (None, false) => return,
        };
        set(headers, CONNECTION, HeaderValue::from_static(options));
        if let Some(upgrade) = &self.upgrade {
            set(headers, UPGRADE, upgrade.clone());
        }
    }

    fn dress_for_two(
        &self,
        request: &mut Request<RequestBody>,
        authority: &Authority,
        host: &Host,
    ) {
        let uri = Uri::builder()
            .scheme(host.origin().scheme())
            .authority(authority.clone())
            .path_and_query(self.target.clone())
            .build();
        // Its parts are sound, so that it is whole.
        if let Ok(uri) = uri {
            *request.uri_mut() = uri;
        }
        // Tried before over HTTP/1.1, it may have these.
        for name in [HOST, CONNECTION, UPGRADE, TRANSFER_ENCODING] {
            request.headers_mut().remove(name);
        }
        // hyper does not tell what an upstream says in between over HTTP/2.
        if let Some(gate) = &self.gate {
            request.headers_mut().remove(EXPECT);
            gate.open();
        }
    }
}

/// Names the host, unless the client has in the same words.
fn name_host(headers: &mut HeaderMap, authority: &Authority) {
    let named = headers.get(HOST).is_some_and(|host| host == authority.as_str());
    if !named && let Ok(field) = HeaderValue::from_str(authority.as_str()) {
        set(headers, HOST, field);
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    // A request with tens of thousands of fields has no room for more.
    let _ = headers.try_insert(name, value);
}
