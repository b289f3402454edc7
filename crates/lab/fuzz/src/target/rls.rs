//! The rate limit service: a message that prost rejects is rejected, and one that prost decodes is
//! answered like its re-encoded form.
//!
//! Two equal doors get the input, one as it is, the other decoded and encoded again by prost. Equal
//! answers mean that both decoders agree. An input is tried as a message and as a body with its
//! frame.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use prost::Message;
use tidegate_engine::{MemoryStore, Nanos};
use tidegate_rls::proto::{RateLimitRequest, RateLimitResponse};
use tidegate_rls::{Rls, RlsSettings};

use super::doors::{self, Clock, at_once};
use super::{Target, Trail, shape};

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Statuses of gRPC.
const OK: &str = "0";
const INVALID_ARGUMENT: &str = "3";
const RESOURCE_EXHAUSTED: &str = "8";
const INTERNAL: &str = "13";

pub(super) struct RlsTarget {
    asked: Door,
    twin: Door,
    message_bytes_max: usize,
}

struct Door {
    rls: Rls<MemoryStore, Clock>,
    clock: Clock,
}

#[derive(Debug, PartialEq, Eq)]
struct RlsAnswer {
    status: String,
    words: String,
    body: Bytes,
}

impl RlsTarget {
    pub(super) fn new() -> Self {
        let message_bytes_max = RlsSettings::default().message_bytes_max;
        RlsTarget { asked: Door::new(), twin: Door::new(), message_bytes_max }
    }

    /// Sends a message and compares the answer with prost's.
    fn hold(&self, message: &[u8], answer: &RlsAnswer) -> Result<Trail, String> {
        if message.len() > self.message_bytes_max {
            return expect(RESOURCE_EXHAUSTED, answer, "it is too long");
        }
        let Ok(read) = RateLimitRequest::decode(message) else {
            return expect(INTERNAL, answer, "prost cannot read it");
        };
        let twin = self.twin.ask(frame(&read.encode_to_vec()))?;
        if *answer != twin {
            return Err(format!("prost reads {read:?}; we say {answer:?}, and of that {twin:?}"));
        }
        if answer.status == INVALID_ARGUMENT {
            return Ok(Trail::of(shape(&answer.words)));
        }
        expect(OK, answer, "prost can read it")?;
        let message = answer.body.get(5..).unwrap_or_default();
        let told = RateLimitResponse::decode(message)
            .map_err(|error| format!("prost cannot read the answer: {error}: {answer:?}"))?;
        if told.statuses.len() != read.descriptors.len() {
            return Err(format!("not one status for each descriptor of {read:?}: {told:?}"));
        }
        let codes: Vec<_> = told.statuses.iter().map(|status| status.code).take(4).collect();
        let hits = read.descriptors.iter().any(|part| part.hits_addend.is_some());
        let limit = read.descriptors.iter().any(|part| part.limit.is_some());
        Ok(Trail::of((told.overall_code, codes, hits, limit, read.hits_addend > 0)))
    }
}

impl Target for RlsTarget {
    fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
        for door in [&self.asked, &self.twin] {
            door.clock.advance(Nanos::from_millis(500));
        }
        let trail = self.hold(input, &self.asked.ask(frame(input))?)?;
        let answer = self.asked.ask(Bytes::copy_from_slice(input))?;
        match framed(input) {
            Some(message) => drop(self.hold(message, &answer)?),
            None if answer.status == OK => {
                return Err(format!("no frame, and yet it is answered: {answer:?}"));
            }
            None => {}
        }
        Ok(trail)
    }
}

impl Door {
    fn new() -> Self {
        let (engine, clock) = doors::engine();
        Door { rls: doors::rls(Arc::clone(&engine)), clock }
    }

    fn ask(&self, body: Bytes) -> Result<RlsAnswer, String> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(METHOD);
        *request.version_mut() = Version::HTTP_2;
        let grpc = HeaderValue::from_static("application/grpc");
        request.headers_mut().insert(CONTENT_TYPE, grpc);
        let Ok(response) = at_once(self.rls.call(request))?;
        if response.status() != 200 {
            return Err(format!("the call is answered with {}", response.status()));
        }
        let (parts, body) = response.into_parts();
        let body = at_once(body.collect())?.map_err(|status| format!("a broken body: {status}"))?;
        let fields = body.trailers().unwrap_or(&parts.headers);
        let (status, words) = (text(fields, "grpc-status"), text(fields, "grpc-message"));
        Ok(RlsAnswer { status, words, body: body.to_bytes() })
    }
}

fn text(fields: &HeaderMap, name: &str) -> String {
    let value = fields.get(name).map(|value| value.as_bytes());
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

fn expect(status: &str, answer: &RlsAnswer, why: &str) -> Result<Trail, String> {
    if answer.status == status {
        Ok(Trail::of((status, shape(&answer.words))))
    } else {
        Err(format!("{why}, so the status must be {status}: {answer:?}"))
    }
}

/// A message in its frame.
fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    Bytes::from([&[0], &length.to_be_bytes()[..], message].concat())
}

/// The message of a body that is one frame and nothing else.
fn framed(body: &[u8]) -> Option<&[u8]> {
    let (head, message) = body.split_at_checked(5)?;
    let length = u32::try_from(message.len()).ok()?;
    (head == [&[0], &length.to_be_bytes()[..]].concat()).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_opened_again_and_nothing_else_is() {
        let body = frame(b"abc");
        assert_eq!(framed(&body), Some(&b"abc"[..]));
        assert_eq!(framed(&body[..7]), None);
        assert_eq!(framed(&[&body[..], b"x"].concat()), None);
        assert_eq!(framed(b"\x01\0\0\0\0"), None);
    }
}
