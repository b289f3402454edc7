//! How much memory a call takes from the allocator.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::service::Service;
use prost::Message;
use tidegate_engine::{
    Engine, ManualClock, MemoryConfig, MemoryStore, Options, Source, Timestamp, compile,
};
use tidegate_metrics::Meter;
use tidegate_rls::proto::rate_limit_descriptor::Entry;
use tidegate_rls::proto::{RateLimitDescriptor, RateLimitRequest};
use tidegate_rls::{HealthHandle, Rls, RlsSettings};

fn frame(descriptors: usize) -> Bytes {
    let entry = Entry { key: "user".to_owned(), value: "7".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let request = RateLimitRequest {
        domain: "api".to_owned(),
        descriptors: vec![descriptor; descriptors],
        hits_addend: 0,
    };
    let message = request.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    Bytes::from(frame)
}

fn call(body: Bytes) -> Request<Full<Bytes>> {
    Request::post("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .body(Full::new(body))
        .unwrap()
}

#[test]
fn a_call_allocates_its_answer_and_one_map_of_header_fields() {
    let text =
        "domain: api\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 3}}]";
    let rules = compile(&[Source::new("rules.yaml", text)], &Options::default())
        .unwrap_or_else(|report| panic!("{report}"));
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let clock = ManualClock::at(Timestamp::from_secs(1_699_920_000));
    let engine = Arc::new(Engine::new(store, clock).with_rules(rules));
    let meter = Arc::new(Meter::new("rls"));
    let rls = Rls::new(engine, RlsSettings::default(), &HealthHandle::new(), meter);
    let mut context = Context::from_waker(Waker::noop());
    // The first calls may set things up; some of the rest are over the limit.
    for round in 0..6 {
        let request = call(frame(1));
        let mut response = None;
        let counted = allocation_counter::measure(|| {
            let mut answer = pin!(rls.call(request));
            let Poll::Ready(Ok(ready)) = answer.as_mut().poll(&mut context) else {
                panic!("a store in memory answers at once")
            };
            response = Some(ready);
        });
        assert_eq!(response.unwrap().status(), 200);
        // The frame, and the two parts of an `http::HeaderMap` with one field.
        assert!(round == 0 || counted.count_total <= 3, "round {round}: {counted:?}");
    }
}
