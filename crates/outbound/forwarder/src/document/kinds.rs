//! Kinds of scalars that only the forwarder's document has.

use http::header::HeaderValue;
use http::{Method, Uri};
use serde_json::json;
use tidegate_capacity::StoreLost;
use tidegate_delivery::{BulkEnvelope, BulkFormat, BulkResults, HostRule, HttpProtocol};
use tidegate_document::{Bounds, Fault, Share, Text, choices, kind};
use tidegate_queue::OrderMode;

choices! {
    /// Which records stay in order.
    pub(super) enum OrderWord {
        None = "none",
        Key = "key",
        Strict = "strict",
    }
}

impl OrderWord {
    pub(super) const fn mode(self) -> OrderMode {
        match self {
            OrderWord::None => OrderMode::None,
            OrderWord::Key => OrderMode::Key,
            OrderWord::Strict => OrderMode::Strict,
        }
    }
}

choices! {
    /// How classes share a queue.
    pub(super) enum PriorityRule {
        Weighted = "weighted",
        Strict = "strict",
    }
}

choices! {
    /// What members do without a lease store.
    pub(super) enum StoreLostWord {
        Stop = "stop",
        SafeShare = "safe_share",
        Floor = "floor",
    }
}

impl StoreLostWord {
    pub(super) const fn rule(self) -> StoreLost {
        match self {
            StoreLostWord::Stop => StoreLost::Stop,
            StoreLostWord::SafeShare => StoreLost::SafeShare,
            StoreLostWord::Floor => StoreLost::Floor,
        }
    }
}

choices! {
    /// The version of HTTP.
    pub(super) enum ProtocolWord {
        Auto = "auto",
        Http1 = "http1",
        Http2 = "http2",
    }
}

impl ProtocolWord {
    pub(super) const fn protocol(self) -> HttpProtocol {
        match self {
            ProtocolWord::Auto => HttpProtocol::Auto,
            ProtocolWord::Http1 => HttpProtocol::Http1,
            ProtocolWord::Http2 => HttpProtocol::Http2,
        }
    }
}

choices! {
    /// How records of one request are written.
    pub(super) enum BulkFormatWord {
        NdJson = "ndjson",
        JsonArray = "json_array",
    }
}

impl BulkFormatWord {
    pub(super) const fn format(self) -> BulkFormat {
        match self {
            BulkFormatWord::NdJson => BulkFormat::NdJson,
            BulkFormatWord::JsonArray => BulkFormat::JsonArray,
        }
    }
}

choices! {
    /// What is written of each record.
    pub(super) enum BulkEnvelopeWord {
        Wrapped = "wrapped",
        Bare = "bare",
    }
}

impl BulkEnvelopeWord {
    pub(super) const fn envelope(self) -> BulkEnvelope {
        match self {
            BulkEnvelopeWord::Wrapped => BulkEnvelope::Wrapped,
            BulkEnvelopeWord::Bare => BulkEnvelope::Bare,
        }
    }
}

choices! {
    /// What the answer to many records says.
    pub(super) enum BulkResultsWord {
        PerRecord = "per_record",
        Whole = "whole",
    }
}

impl BulkResultsWord {
    pub(super) const fn results(self) -> BulkResults {
        match self {
            BulkResultsWord::PerRecord => BulkResults::PerRecord,
            BulkResultsWord::Whole => BulkResults::Whole,
        }
    }
}

/// A part of a whole, above nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part(pub(super) u32);

kind! {
    Part: "a part such as `0.98` or `98%`",
    json!({"anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "string", "pattern": "^[0-9]{0,3}(\\.[0-9]*)?%?$"},
    ]}),
    |scalar| {
        let text = &*scalar.text;
        let share = match text.strip_suffix('%') {
            Some(percent) => Share::parse_decimal(percent, 10_000),
            None => Share::parse_decimal(text, 1_000_000),
        };
        let part = share.map(Share::millionths).filter(|part| *part > 0);
        part.map(Part).ok_or_else(|| {
            Fault::new("invalid_share", format!("`{text}` is no part of the limits"))
                .hint("write a number above 0, up to 1, such as `0.98`, or a percentage such as `98%`")
        })
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
    /// The URL of a service.
    TargetUrl(Uri), |text| {
        let invalid = |message: String| {
            Fault::new("invalid_url", message).hint("such as `https://api.example.com/v1/orders`")
        };
        let url: Uri = text.parse().map_err(|_| invalid(format!("`{text}` is not a URL")))?;
        match (url.scheme_str(), url.authority()) {
            (Some("http" | "https"), Some(authority)) if !authority.as_str().contains('@') => Ok(url),
            (Some("http" | "https"), Some(_)) => Err(Fault::new(
                "invalid_url",
                "the URL has a user name or a password",
            )
            .hint("give credentials by `headers` with `value_file`")),
            _ => Err(invalid(format!("`{text}` does not begin with `https://` or `http://` and a host"))),
        }
    }
}

text_kind! {
    /// A host that records may name.
    AllowedHost(HostRule), |text| {
        text.parse().map_err(|error: tidegate_delivery::HostRuleError| {
            Fault::new("invalid_host", error.to_string())
        })
    }
}

text_kind! {
    /// A method, in capitals.
    MethodName(Method), |text| {
        let invalid = |message: String| {
            Fault::new("invalid_method", message).hint("such as `POST` or `PUT`")
        };
        if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Err(invalid(format!("methods are case-sensitive: `{text}` has small letters")));
        }
        match Method::from_bytes(text.as_bytes()) {
            Ok(Method::CONNECT | Method::TRACE) | Err(_) => {
                Err(invalid(format!("`{text}` is not a method of a record")))
            }
            Ok(method) => Ok(method),
        }
    }
}

text_kind! {
    /// The value of a header field.
    FieldText(HeaderValue), |text| {
        HeaderValue::from_str(text).map_err(|_| {
            Fault::new("invalid_header", "this cannot be the value of a header field")
                .hint("use printable ASCII characters")
        })
    }
}

/// An HTTP status.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatusCodeNumber(pub(super) u16);

kind! {
    StatusCodeNumber: "an HTTP status",
    json!({"type": "integer", "minimum": 100, "maximum": 599}),
    |scalar| u64::parse(scalar, &Bounds::of(100..=599))
        .map(|status| StatusCodeNumber(u16::try_from(status).unwrap_or(u16::MAX)))
}
