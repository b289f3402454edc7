//! Requests, and asking both programs.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};
use tidegate_rls::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tidegate_rls::proto::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitServiceClient,
};
use tonic::transport::{Channel, Endpoint};

/// Far longer than an answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The units, by their number in the protocol.
const UNITS: [&str; 8] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];

/// A request for both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) domain: String,
    pub(crate) hits: u32,
    pub(crate) descriptors: Vec<AskDescriptor>,
}

/// One descriptor of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskDescriptor {
    pub(crate) entries: Vec<(String, String)>,
    /// The quota and the unit of an override.
    pub(crate) limit: Option<(u32, i32)>,
    pub(crate) hits: Option<u64>,
    pub(crate) negative: bool,
}

impl Ask {
    /// A request written as `key=value,key=value; key=value@5/HOUR; key=value#0; key=value#-1`.
    pub(crate) fn parse(domain: &str, text: &str) -> Self {
        let descriptors = text.split(';').map(|descriptor| {
            let (rest, hits) = split_off(descriptor.trim(), '#');
            let (entries, limit) = split_off(rest, '@');
            let entries = entries.split(',').filter_map(|entry| entry.split_once('='));
            let limit = limit.and_then(|limit| {
                let (quota, unit) = limit.split_once('/')?;
                let unit = UNITS.iter().position(|name| *name == unit)?;
                Some((quota.parse().ok()?, i32::try_from(unit).ok()?))
            });
            let hits: Option<i64> = hits.and_then(|hits| hits.parse().ok());
            AskDescriptor {
                entries: entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
                limit,
                hits: hits.map(i64::unsigned_abs),
                negative: hits.is_some_and(|hits| hits < 0),
            }
        });
        Ask { domain: domain.to_owned(), hits: 0, descriptors: descriptors.collect() }
    }

    fn message(&self) -> RateLimitRequest {
        let descriptors = self.descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter();
            let entries =
                entries.map(|(key, value)| Entry { key: key.clone(), value: value.clone() });
            let limit = descriptor
                .limit
                .map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
            RateLimitDescriptor {
                entries: entries.collect(),
                limit,
                hits_addend: descriptor.hits,
                is_negative_hits: descriptor.negative,
            }
        });
        RateLimitRequest {
            domain: self.domain.clone(),
            descriptors: descriptors.collect(),
            hits_addend: self.hits,
        }
    }

    fn json(&self) -> Value {
        let descriptors = self.descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter();
            let entries = entries.map(|(key, value)| json!({"key": key, "value": value}));
            let mut members = Map::new();
            members.insert("entries".to_owned(), entries.collect());
            if let Some((quota, unit)) = descriptor.limit {
                let limit = json!({"requests_per_unit": quota, "unit": unit});
                members.insert("limit".to_owned(), limit);
            }
            if let Some(hits) = descriptor.hits {
                members.insert("hits_addend".to_owned(), hits.into());
            }
            if descriptor.negative {
                members.insert("is_negative_hits".to_owned(), true.into());
            }
            Value::Object(members)
        });
        let descriptors: Value = descriptors.collect();
        json!({"domain": self.domain, "descriptors": descriptors, "hits_addend": self.hits})
    }
}

fn split_off(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.rsplit_once(mark) {
        Some((text, rest)) => (text, Some(rest)),
        None => (text, None),
    }
}

/// A client of one program: gRPC and HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    grpc: RateLimitServiceClient<Channel>,
    http_port: u16,
}

impl Client {
    /// Connects when it is first used.
    pub(crate) fn new(grpc_port: u16, http_port: u16) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{grpc_port}"))?;
        let channel = endpoint.timeout(PATIENCE).connect_lazy();
        Ok(Client { grpc: RateLimitServiceClient::new(channel), http_port })
    }

    /// The answer over gRPC with every field, or its error.
    pub(crate) async fn grpc(&mut self, ask: &Ask) -> Value {
        match self.grpc.should_rate_limit(ask.message()).await {
            Ok(answer) => value_of(&answer.into_inner()),
            Err(status) => json!({"error": [i32::from(status.code()), status.message()]}),
        }
    }

    /// The answer of `/json`: the status, the type and the body.
    pub(crate) fn json(&self, ask: &Ask) -> anyhow::Result<Value> {
        let answer = http(self.http_port, "POST", "/json", &ask.json().to_string())?;
        let body = serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body));
        Ok(json!({"status": answer.status, "type": answer.content_type, "body": body}))
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

/// Asks a port of this machine.
///
/// # Errors
/// When there is no complete answer.
pub(crate) fn http(port: u16, method: &str, path: &str, body: &str) -> anyhow::Result<HttpAnswer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a head")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let content_type = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-type").then(|| value.trim().to_owned())
    });
    Ok(HttpAnswer {
        status: status.ok_or_else(|| anyhow!("an answer without a status: {head}"))?,
        content_type: content_type.unwrap_or_default(),
        body: body.to_owned(),
    })
}

/// Every field of an answer that our messages have; `/json` shows the others, should there be any.
fn value_of(answer: &RateLimitResponse) -> Value {
    let statuses = answer.statuses.iter().map(|status| {
        let limit = status.current_limit.as_ref().map(|limit| {
            json!({"name": limit.name, "quota": limit.requests_per_unit, "unit": limit.unit})
        });
        json!({
            "code": status.code,
            "limit": limit,
            "remaining": status.limit_remaining,
            "durationUntilReset": status.duration_until_reset.as_ref().map(|reset| reset.seconds),
        })
    });
    let headers = |headers: &[tidegate_rls::proto::HeaderValue]| -> Value {
        headers.iter().map(|header| json!({"key": header.key, "value": header.value})).collect()
    };
    json!({
        "overall": answer.overall_code,
        "statuses": statuses.collect::<Value>(),
        "responseHeadersToAdd": headers(&answer.response_headers_to_add),
        "dynamicMetadata": answer.dynamic_metadata.as_ref().map(struct_value),
    })
}

fn struct_value(members: &prost_types::Struct) -> Value {
    let members = members.fields.iter();
    Value::Object(members.map(|(name, value)| (name.clone(), any_value(value))).collect())
}

fn any_value(value: &prost_types::Value) -> Value {
    use prost_types::value::Kind;
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::BoolValue(flag)) => (*flag).into(),
        Some(Kind::StructValue(members)) => struct_value(members),
        Some(Kind::ListValue(list)) => list.values.iter().map(any_value).collect(),
    }
}
