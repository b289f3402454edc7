//! In which form somebody wants an answer.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Version};

use crate::grpc::is_grpc;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Shape {
    Json,
    Html,
    Grpc,
}

/// What of a request has to be known to answer it.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Asker {
    pub(super) shape: Shape,
    pub(super) method: Method,
    pub(super) version: Version,
    /// Of a gRPC call: its answer has the same.
    pub(super) content_type: Option<HeaderValue>,
}

impl Asker {
    pub(in crate::gateway) fn of(head: &Parts) -> Self {
        let shape = shape(&head.headers);
        let content_type = head.headers.get(CONTENT_TYPE).filter(|_| shape == Shape::Grpc);
        Asker {
            shape,
            method: head.method.clone(),
            version: head.version,
            content_type: content_type.cloned(),
        }
    }
}

/// Pages are for those who name them before JSON, as browsers do.
fn shape(headers: &HeaderMap) -> Shape {
    if is_grpc(headers) {
        return Shape::Grpc;
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match (accept.find("text/html"), accept.find("json")) {
        (Some(_), None) => Shape::Html,
        (Some(html), Some(json)) if html < json => Shape::Html,
        _ => Shape::Json,
    }
}
