//! How much a check allocates.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::service::Service;
use tidegate_doors::{HeaderSet, HttpApiSettings};

use crate::bench::{Bench, asking};

/// What one admitted check allocates, from the request to the answer, when its key is known.
fn allocations(settings: HttpApiSettings) -> u64 {
    let bench = Bench::with(settings);
    let body = Bytes::from(asking("user", "ada").to_string());
    let ask = || Request::post("/v1/check").body(Full::new(body.clone())).unwrap();
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
    // The future, two lists of what is asked, the answer and its header map,
    // each of which takes two; the fields take two more, and the map grows.
    let without = HttpApiSettings { headers: HeaderSet::NONE, ..HttpApiSettings::default() };
    assert_eq!(allocations(without), 7);
    assert_eq!(allocations(HttpApiSettings::default()), 10);
}
