//! Kinds of scalars that only the gateway's document has.

use http::Method;
use http::header::HeaderValue;
use ipnet::IpNet;
use tidegate_document::{Bounds, Fault, Network, Text, choices, kind};

choices! {
    /// Where the value of an entry comes from.
    pub(super) enum ValueSource {
        Fixed = "fixed",
        Address = "address",
        Header = "header",
        Cookie = "cookie",
        PathTemplate = "path_template",
        PathParameter = "path_parameter",
        Path = "path",
        Method = "method",
        Host = "host",
        Query = "query",
        Claim = "claim",
        Plan = "plan",
        ApiKeyName = "api_key_name",
        Route = "route",
    }
}

choices! {
    /// Where a cost comes from.
    pub(super) enum CostWord {
        Header = "header",
        BodyBytes = "body_bytes",
        Reported = "reported",
    }
}

choices! {
    /// Where a token or an API key is.
    pub(super) enum SecretSource {
        Bearer = "bearer",
        Header = "header",
        Cookie = "cookie",
        Query = "query",
    }
}

choices! {
    /// What happens when a request has no value for an entry.
    pub(super) enum MissingWord {
        Skip = "skip",
        SkipDescriptor = "skip_descriptor",
        SkipEntry = "skip_entry",
        Default = "default",
        Reject = "reject",
    }
}

choices! {
    /// A category; the first is shed last.
    pub(super) enum CategoryWord {
        Critical = "critical",
        Post = "post",
        Get = "get",
        Test = "test",
    }
}

choices! {
    /// A set of rate limit fields.
    pub(super) enum FieldsWord {
        XRetryAfter = "x_retry_after",
        XReset = "x_reset",
        XResetEpoch = "x_reset_epoch",
        Legacy = "legacy",
        Draft11 = "draft_11",
    }
}

/// Declares a kind that is written as text.
macro_rules! text_kind {
    ($(#[$about:meta])+ $name:ident($value:ty), $parse:expr) => {
        $(#[$about])+
        #[derive(Clone, Debug)]
        pub(super) struct $name(pub(super) $value);

        kind! {
            $name: Text::words(), Text::schema(&Bounds::NONE), |scalar| {
                let parse: fn(&str) -> Result<$value, Fault> = $parse;
                parse(&Text::parse(scalar, &Bounds::NONE)?.0).map($name)
            }
        }
    };
}

text_kind! {
    /// A range of addresses.
    NetworkRange(IpNet), |text| Network::from_text(text).map(Network::get)
}

text_kind! {
    /// A method, in capitals.
    MethodName(Method), |text| {
        let invalid = |message: String| Fault::new("invalid_method", message);
        if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let upper = text.to_ascii_uppercase();
            let message = format!("methods are case-sensitive: `{text}` is not `{upper}`");
            return Err(invalid(message).hint(format!("write `{upper}`")));
        }
        Method::from_bytes(text.as_bytes())
            .map_err(|_| invalid(format!("`{text}` is not a method")).hint("such as `GET` or `POST`"))
    }
}

text_kind! {
    /// The value of a header field.
    FieldValue(HeaderValue), |text| {
        HeaderValue::from_str(text).map_err(|_| {
            Fault::new("invalid_header", "this cannot be the value of a header field")
                .hint("use printable ASCII characters")
        })
    }
}
