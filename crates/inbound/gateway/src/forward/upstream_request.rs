//! The request that is sent to an upstream.

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

use super::{ProvenanceContext, has_hop_by_hop, remove_hop_by_hop};
use crate::body::{ContinueGate, ContinueSignal, RequestBody};
use crate::head::Target;
use crate::route::Route;
use crate::settings::HostHeader;
use crate::upstream::{AdaptRequest, Exchange, Host};

/// How long to wait for `100 Continue` before the body is sent anyway.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// A request to an upstream, with the adapter for its connection.
pub(crate) struct UpstreamRequest {
    pub(crate) exchange: Exchange,
    pub(crate) adapter: RequestAdapter,
    /// The client's side of a tunnel, if it asks for an upgrade.
    pub(crate) upgrade: Option<OnUpgrade>,
}

/// Adapts a request to the version of HTTP and the host of its connection.
pub(crate) struct RequestAdapter {
    target: PathAndQuery,
    authority: Option<Authority>,
    host_header: HostHeader,
    upgrade: Option<HeaderValue>,
    trailers: bool,
    /// Releases a body that waits for `100 Continue`.
    gate: Option<Arc<ContinueSignal>>,
}

impl UpstreamRequest {
    /// Prepares the upstream's request from the client's, whose head it takes.
    pub(crate) fn prepare(
        head: &mut Parts,
        body: RequestBody,
        target: &Target,
        route: &Route,
        from: ProvenanceContext<'_>,
    ) -> Self {
        let ProvenanceContext { provenance, hop, trusted } = from;
        // Both are in hop-by-hop fields, which most requests do not have.
        let hop_by_hop = has_hop_by_hop(&head.headers);
        let upgrade = if hop_by_hop { requested_upgrade(head) } else { None };
        let trailers =
            hop_by_hop && head.headers.get_all(TE).iter().any(|te| names(te, "trailers"));
        let mut adapter = RequestAdapter {
            target: route.rewrite.apply(head, target),
            authority: target.authority.clone(),
            host_header: route.host_header,
            upgrade: upgrade.clone(),
            trailers,
            gate: None,
        };
        let mut headers = std::mem::take(&mut head.headers);
        if hop_by_hop {
            remove_hop_by_hop(&mut headers);
        }
        check_content_length(&mut headers, &body);
        provenance.add_fields(&mut headers, hop, trusted, head.version, target.authority.as_ref());
        route.request_edits.apply(&mut headers);
        let expects = !body.is_empty()
            && headers.get(EXPECT).is_some_and(|expect| names(expect, "100-continue"));
        let on_upgrade = upgrade.and_then(|_| head.extensions.remove::<OnUpgrade>());
        let mut request = Request::new(body);
        *request.method_mut() = std::mem::take(&mut head.method);
        *request.headers_mut() = headers;
        if expects {
            (request, adapter.gate) = wait_to_continue(request);
        }
        UpstreamRequest { exchange: Exchange::of(request), adapter, upgrade: on_upgrade }
    }
}

/// Holds the body until the upstream sends `100 Continue`, so that the client does not send a body that is not read.
fn wait_to_continue(
    request: Request<RequestBody>,
) -> (Request<RequestBody>, Option<Arc<ContinueSignal>>) {
    let (gate, key) = ContinueGate::new(CONTINUE_TIMEOUT);
    let mut request = request.map(|body| body.behind(gate));
    let opening = Arc::clone(&key);
    hyper::ext::on_informational(&mut request, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            opening.open();
        }
    });
    (request, Some(key))
}

/// The protocol that the client asks to upgrade to. Another version of HTTP is not allowed: requests in the tunnel
/// would evade every limit.
fn requested_upgrade(head: &Parts) -> Option<HeaderValue> {
    let requested = head.headers.get(UPGRADE).filter(|_| head.version == Version::HTTP_11)?;
    let options = head.headers.get_all(CONNECTION);
    let listed = options.iter().any(|option| names(option, "upgrade"));
    let speaks_http = head.headers.get_all(UPGRADE).iter().any(names_http);
    (listed && !speaks_http).then(|| requested.clone())
}

/// Whether a list of protocols contains HTTP in any version, encrypted or not.
fn names_http(protocols: &HeaderValue) -> bool {
    let mut protocols = protocols.as_bytes().split(|byte| *byte == b',');
    protocols.any(|protocol| {
        let name = protocol.trim_ascii().split(|byte| *byte == b'/').next().unwrap_or_default();
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        ["http", "h2c", "h2", "h3", "tls"].into_iter().any(is)
    })
}

/// Whether a comma-separated list contains a member.
fn names(list: &HeaderValue, member: &str) -> bool {
    let mut members = list.as_bytes().split(|byte| *byte == b',');
    members.any(|other| other.trim_ascii().eq_ignore_ascii_case(member.as_bytes()))
}

/// Removes a `Content-Length` that does not match the body.
fn check_content_length(headers: &mut HeaderMap, body: &RequestBody) {
    let Some(length) = headers.get(CONTENT_LENGTH) else { return };
    let length: Option<u64> = length.to_str().ok().and_then(|length| length.parse().ok());
    if length.is_none() || length != body.size_hint().exact() {
        headers.remove(CONTENT_LENGTH);
    } else if let Some(value) = headers.get(CONTENT_LENGTH).cloned() {
        // Replaces all fields, which are equal: HTTP/2 allows to repeat it.
        set(headers, CONTENT_LENGTH, value);
    }
}

impl AdaptRequest for RequestAdapter {
    fn adapt(&self, request: &mut Request<RequestBody>, version: Version, host: &Host) {
        let origin = host.origin();
        let authority = match self.host_header {
            HostHeader::Client => self.authority.as_ref().unwrap_or_else(|| origin.authority()),
            HostHeader::Upstream => origin.authority(),
        };
        *request.version_mut() = version;
        if version == Version::HTTP_2 {
            self.adapt_to_http2(request, authority, host);
        } else {
            self.adapt_to_http1(request, authority, host);
        }
        if self.trailers {
            set(request.headers_mut(), TE, TRAILERS);
        }
    }
}

impl RequestAdapter {
    fn adapt_to_http1(
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
            HostHeader::Client => set_host(headers, authority),
        }
        // Without it hyper would not send the body of a GET.
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

    fn adapt_to_http2(
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
        // Cannot fail: all parts are present and valid.
        if let Ok(uri) = uri {
            *request.uri_mut() = uri;
        }
        // Present if the request was tried over HTTP/1.1 before.
        for name in [HOST, CONNECTION, UPGRADE, TRANSFER_ENCODING] {
            request.headers_mut().remove(name);
        }
        // hyper does not report informational responses over HTTP/2.
        if let Some(gate) = &self.gate {
            request.headers_mut().remove(EXPECT);
            gate.open();
        }
    }
}

/// Sets `Host`, unless the client sent the same value.
fn set_host(headers: &mut HeaderMap, authority: &Authority) {
    let named = headers.get(HOST).is_some_and(|host| host == authority.as_str());
    if !named && let Ok(field) = HeaderValue::from_str(authority.as_str()) {
        set(headers, HOST, field);
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    // Fails only at the maximum number of fields, which is in the tens of thousands.
    let _ = headers.try_insert(name, value);
}
