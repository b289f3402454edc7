//! In which format a client wants an answer.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Version};

use crate::grpc::is_grpc_type;

/// The format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFormat {
    /// A problem, or what a template makes of it.
    Json,
    /// A page for people.
    Html,
    /// A gRPC status.
    Grpc,
}

/// What of a request determines the form of its answer.
///
/// The format is computed when an answer is rendered: most requests are answered by the service.
#[derive(Clone, Debug)]
pub struct Negotiation {
    /// An answer to HEAD has no body.
    pub method: Method,
    /// The protocol of the request.
    pub version: Version,
    /// The content type of a gRPC call: its answer has the same.
    pub(crate) grpc_type: Option<HeaderValue>,
    accept: Option<HeaderValue>,
}

impl Negotiation {
    /// What the head of a request says.
    pub fn of(head: &Parts) -> Self {
        let content_type = head.headers.get(CONTENT_TYPE).filter(|value| is_grpc_type(value));
        Negotiation {
            method: head.method.clone(),
            version: head.version,
            grpc_type: content_type.cloned(),
            accept: head.headers.get(ACCEPT).cloned(),
        }
    }

    /// The format: a page for clients that name HTML before JSON, as browsers do.
    pub fn format(&self) -> AnswerFormat {
        if self.grpc_type.is_some() {
            return AnswerFormat::Grpc;
        }
        let accept = self.accept.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
        match (accept.find("text/html"), accept.find("json")) {
            (Some(_), None) => AnswerFormat::Html,
            (Some(html), Some(json)) if html < json => AnswerFormat::Html,
            _ => AnswerFormat::Json,
        }
    }
}
