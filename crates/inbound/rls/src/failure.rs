//! Calls that end with an error: the gRPC status and its message.

use std::borrow::Cow;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use tidegate_engine::Undecided;
use tonic::Code;

use crate::body::RlsBody;
use crate::decode::RequestError;
use crate::decode::frame::FrameError;
use crate::decode::wire::WireError;
use tidegate_access::AccessError;
pub(super) use tidegate_answers::grpc::{CONTENT_TYPE_GRPC as GRPC, STATUS};
use tidegate_answers::grpc::{MESSAGE, percent_encoded};
use tidegate_metrics::AnswerKind;

const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A call that ends with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) message: Cow<'static, str>,
    /// How the meter counts it.
    pub(super) answer: AnswerKind,
}

impl Failure {
    pub(super) fn new(
        code: Code,
        message: impl Into<Cow<'static, str>>,
        answer: AnswerKind,
    ) -> Self {
        Failure { code, message: message.into(), answer }
    }

    /// The client's deadline has passed.
    pub(super) fn deadline_exceeded() -> Self {
        Failure::new(Code::DeadlineExceeded, "the deadline has passed", AnswerKind::Failed)
    }

    /// The connection failed before the end of the body.
    pub(super) fn body_aborted() -> Self {
        Failure::new(Code::Cancelled, "the body ended early", AnswerKind::Failed)
    }

    /// The header `grpc-timeout` is malformed.
    pub(super) fn malformed_timeout() -> Self {
        Failure::new(Code::Internal, "malformed grpc-timeout", AnswerKind::Invalid)
    }

    /// The call has no token, or one that does not allow it.
    pub(super) fn no_access(error: &AccessError) -> Self {
        let code = match error {
            AccessError::NoToken | AccessError::Expired { .. } => Code::Unauthenticated,
            AccessError::NoRole { .. } | AccessError::ChangesOff | AccessError::Browser => {
                Code::PermissionDenied
            }
        };
        Failure::new(code, error.to_string(), AnswerKind::Invalid)
    }

    /// The request is invalid. Upstream rejects only two of the cases, both with `Unknown`.
    pub(super) fn invalid_request(error: RequestError, upstream_errors: bool) -> Self {
        let code = match error {
            RequestError::NoDomain | RequestError::NoDescriptors if upstream_errors => {
                Code::Unknown
            }
            _ => Code::InvalidArgument,
        };
        Failure::new(code, error.to_string(), AnswerKind::Invalid)
    }

    /// The request could not be decided, and that is an error: an outage does not mean that the client is over its
    /// limit, and the proxy's own failure mode should apply.
    pub(super) fn undecided(undecided: &Undecided, upstream_errors: bool) -> Self {
        let code = if upstream_errors { Code::Unknown } else { Code::Unavailable };
        Failure::new(code, undecided.to_string(), AnswerKind::Undecided)
    }

    /// No rules were ever loaded, and the settings make that an error.
    pub(super) fn no_rules() -> Self {
        let message = "no rate limit configuration loaded";
        Failure::new(Code::Unknown, message, AnswerKind::Undecided)
    }

    /// The response: a status without a message.
    pub(super) fn response(&self) -> Response<RlsBody> {
        let mut response = Response::new(RlsBody::empty());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, GRPC);
        headers.insert(STATUS, HeaderValue::from(i32::from(self.code)));
        if let Ok(message) = HeaderValue::from_maybe_shared(percent_encoded(&self.message)) {
            headers.insert(MESSAGE, message);
        }
        if self.code == Code::Unimplemented {
            headers.insert(ACCEPT_ENCODING, IDENTITY);
        }
        response
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        let code = match error {
            FrameError::Missing | FrameError::Extra | FrameError::Compressed => Code::Unimplemented,
            FrameError::Truncated | FrameError::Flag => Code::Internal,
            FrameError::TooLong { .. } => Code::ResourceExhausted,
        };
        Failure::new(code, error.to_string(), AnswerKind::Invalid)
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        // As gRPC's own libraries answer.
        Failure::new(
            Code::Internal,
            format!("the message cannot be read: {error}"),
            AnswerKind::Invalid,
        )
    }
}

/// The response to a request that is not a gRPC call.
pub(super) fn reject(status: StatusCode, text: &'static str) -> Response<RlsBody> {
    let mut response = Response::new(RlsBody::text(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}
