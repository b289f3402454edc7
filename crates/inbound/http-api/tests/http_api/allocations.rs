//! How much a check allocates.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::service::Service;
use tidegate_answers::HeaderSet;
use tidegate_http_api::HttpApiSettings;

use crate::bench::{Bench, asking, settings};

/// What one admitted check allocates, from the request to the answer, when its key is known.
fn allocations(settings: HttpApiSettings) -> u64 {
    let bench = Bench::with(settings);
    let body = Bytes::from(asking("user", "ada").to_string());
    // The fields that clients send take the room that those of the answer get.
    let ask = || {
        let request = Request::post("/v1/check").header("host", "limits");
        let request = request.header("user-agent", "test").header("accept", "*/*");
        let request = request.header("content-type", "application/json");
        let request = request.header("content-length", body.len().to_string());
        request.body(Full::new(body.clone())).unwrap()
    };
    let run = |request| {
        let answer = pin!(bench.api.call(request));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(answer)) = Future::poll(answer, &mut context) else {
            panic!("the embedded store answers at once")
        };
        answer.status()
    };
    assert_eq!(run(ask()), 200);
    let (request, mut status) = (ask(), None);
    let allocated = allocation_counter::measure(|| status = Some(run(request)));
    assert_eq!(status, Some(http::StatusCode::OK));
    allocated.count_total
}

#[test]
fn a_check_allocates_little() {
    // Two lists of what is asked; the answer, which takes two. The fields of the
    // answer take two more.
    let without = HttpApiSettings { headers: HeaderSet::NONE, ..settings() };
    assert_eq!(allocations(without), 4);
    assert_eq!(allocations(settings()), 6);
}
