//! Calls that end with an error: which status, which words.

use std::borrow::Cow;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use tidegate_engine::Undecided;
use tonic::Code;

use super::asked::AskError;
use super::body::RlsBody;
use super::frame::FrameError;
use super::wire::WireError;
pub(super) use tidegate_answers::grpc::{CONTENT_TYPE_GRPC as GRPC, STATUS};
use tidegate_answers::grpc::{MESSAGE, percent_encoded};
use tidegate_metrics::Answered;

const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A call that ends with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) message: Cow<'static, str>,
    /// How it is counted.
    pub(super) answered: Answered,
}

impl Failure {
    pub(super) fn new(
        code: Code,
        message: impl Into<Cow<'static, str>>,
        answered: Answered,
    ) -> Self {
        Failure { code, message: message.into(), answered }
    }

    /// The time that the client gave is over.
    pub(super) fn late() -> Self {
        Failure::new(Code::DeadlineExceeded, "the deadline is over", Answered::Failed)
    }

    /// The body stopped before its end.
    pub(super) fn broken_off() -> Self {
        Failure::new(Code::Cancelled, "the request was broken off", Answered::Failed)
    }

    /// The field `grpc-timeout` makes no sense.
    pub(super) fn bad_timeout() -> Self {
        Failure::new(Code::Internal, "malformed grpc-timeout", Answered::Invalid)
    }

    /// The request makes no sense. Upstream has words for some cases only, and
    /// one code for those.
    pub(super) fn of_request(error: AskError, upstream_errors: bool) -> Self {
        let code = match error {
            AskError::NoDomain | AskError::NoDescriptors if upstream_errors => Code::Unknown,
            _ => Code::InvalidArgument,
        };
        Failure::new(code, error.to_string(), Answered::Invalid)
    }

    /// Nobody could decide, where that is an error.
    pub(super) fn of_undecided(undecided: &Undecided) -> Self {
        Failure::new(Code::Unknown, undecided.to_string(), Answered::Undecided)
    }

    /// No rules were ever loaded, where that is an error.
    pub(super) fn no_rules() -> Self {
        let message = "no rate limit configuration loaded";
        Failure::new(Code::Unknown, message, Answered::Undecided)
    }

    /// The answer to a call, without a message.
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
        Failure::new(code, error.to_string(), Answered::Invalid)
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        // What gRPC's own libraries answer.
        Failure::new(
            Code::Internal,
            format!("the message cannot be read: {error}"),
            Answered::Invalid,
        )
    }
}

/// An answer to what is no call of gRPC at all.
pub(super) fn refuse(status: StatusCode, text: &'static str) -> Response<RlsBody> {
    let mut response = Response::new(RlsBody::text(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}
