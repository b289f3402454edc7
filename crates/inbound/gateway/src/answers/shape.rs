//! In which form somebody wants an answer.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Version};

use tidegate_answers::grpc::is_grpc_type;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Json,
    Html,
    Grpc,
}

/// What of a request has to be known to answer it.
///
/// The form is made out when it is needed: most requests are answered by an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(super) method: Method,
    pub(super) version: Version,
    /// Of a gRPC call: its answer has the same.
    pub(super) content_type: Option<HeaderValue>,
    accept: Option<HeaderValue>,
}

impl Asker {
    pub(crate) fn of(head: &Parts) -> Self {
        let content_type = head.headers.get(CONTENT_TYPE).filter(|value| is_grpc_type(value));
        Asker {
            method: head.method.clone(),
            version: head.version,
            content_type: content_type.cloned(),
            accept: head.headers.get(ACCEPT).cloned(),
        }
    }

    /// The form that is wanted. Pages are for those who name them before JSON, as browsers do.
    pub(super) fn shape(&self) -> Shape {
        if self.content_type.is_some() {
            return Shape::Grpc;
        }
        let accept = self.accept.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
        match (accept.find("text/html"), accept.find("json")) {
            (Some(_), None) => Shape::Html,
            (Some(html), Some(json)) if html < json => Shape::Html,
            _ => Shape::Json,
        }
    }
}
