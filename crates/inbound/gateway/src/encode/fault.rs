//! Requests that cannot be served as they are, and upstreams that do not answer.

use http::StatusCode;

use tidegate_answers::CauseText;

macro_rules! faults {
    ($($name:ident $status:ident $code:literal $detail:literal;)+) => {
        /// Why a request is not served.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault { $($name,)+ }

        impl Fault {
            /// All faults, in their order.
            pub(crate) const ALL: &[Fault] = &[$(Fault::$name,)+];

            pub(crate) const fn status(self) -> StatusCode {
                match self { $(Fault::$name => StatusCode::$status,)+ }
            }

            pub(crate) const fn code(self) -> &'static str {
                match self { $(Fault::$name => $code,)+ }
            }

            pub(crate) const fn detail(self) -> &'static str {
                match self { $(Fault::$name => $detail,)+ }
            }
        }
    };
}

faults! {
    BadTarget BAD_REQUEST "bad_target"
        "The path of the request is malformed or can be read in more than one way.";
    EscapedSlash BAD_REQUEST "escaped_slash"
        "The path has an escaped slash (%2F), which `escaped_slashes` of the gateway's `head` or route rejects.";
    TargetTooLong URI_TOO_LONG "target_too_long"
        "The path of the request is too long.";
    BadHost BAD_REQUEST "bad_host"
        "The request has to name exactly one host.";
    BadFraming BAD_REQUEST "bad_framing"
        "The end of the request's body can be read in more than one way.";
    UnknownCoding NOT_IMPLEMENTED "unknown_coding"
        "The request's body has a transfer coding that is not served.";
    BadHeader BAD_REQUEST "bad_header"
        "A header field of the request is malformed.";
    AmbiguousValue BAD_REQUEST "ambiguous_value"
        "The request has several values of a field or parameter that may have only one.";
    MissingValue BAD_REQUEST "missing_value"
        "The request lacks a value that is required here.";
    MissingCredential UNAUTHORIZED "missing_credential"
        "The request needs a valid token or API key.";
    InvalidToken UNAUTHORIZED "invalid_token"
        "The token of the request is not valid.";
    UnknownApiKey UNAUTHORIZED "unknown_api_key"
        "The API key of the request is not known.";
    NetworkDenied FORBIDDEN "network_denied"
        "Requests from this network are not served here.";
    MethodNotAllowed METHOD_NOT_ALLOWED "method_not_allowed"
        "The method is not served.";
    NoRoute NOT_FOUND "no_route"
        "Nothing is served here.";
    BodyTooSlow REQUEST_TIMEOUT "body_too_slow"
        "The request's body did not come in time.";
    BodyTooLarge PAYLOAD_TOO_LARGE "body_too_large"
        "The request's body is too large.";
    BodyBroken BAD_REQUEST "body_broken"
        "The request's body broke off.";
    OutOfResources SERVICE_UNAVAILABLE "out_of_resources"
        "The gateway has no file descriptor, port or memory left for the request. It was not processed.";
    UpstreamUnreachable BAD_GATEWAY "upstream_unreachable"
        "The server behind the gateway cannot be reached. The request was not processed.";
    UpstreamBroken BAD_GATEWAY "upstream_broken"
        "The server behind the gateway broke off. The request may have been processed.";
    UpstreamTimeout GATEWAY_TIMEOUT "upstream_timeout"
        "The server behind the gateway did not answer in time. The request may have been processed.";
}

impl Fault {
    pub(super) fn wording(self) -> CauseText<'static> {
        let status = self.status();
        CauseText {
            status,
            code: self.code(),
            problem_type: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            detail: self.detail().into(),
            quota: "",
        }
    }

    /// Whether the start of the connection's next request is unknown.
    pub(super) const fn ends_connection(self) -> bool {
        matches!(
            self,
            Fault::BadFraming
                | Fault::UnknownCoding
                | Fault::BadHost
                | Fault::BodyTooSlow
                | Fault::BodyTooLarge
                | Fault::BodyBroken
        )
    }
}
