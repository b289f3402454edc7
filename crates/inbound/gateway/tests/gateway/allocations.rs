//! What a decision without waiting allocates.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::service::Service;

use crate::harness::{Harness, by_user, to};

const NONE: &str = "- key: user\n  limits: [{name: hourly, algorithm: token_bucket, \
                    unit: hour, requests_per_unit: 1}]";

fn request() -> Request<Empty<Bytes>> {
    let request =
        Request::get("http://localhost/").header("x-user", "7").header("host", "localhost");
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn a_request_over_its_limit_allocates_its_fields_and_its_body() {
    let harness = Harness::limited(by_user(to(&["http://127.0.0.1:9".to_owned()])), NONE);
    let refuse = || {
        let answer = harness.gateway.call(request());
        match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(answer)) => answer,
            Poll::Ready(Err(_)) | Poll::Pending => panic!("it is refused at once"),
        }
    };
    // The first is admitted and not polled; the next fill the caches.
    drop(harness.gateway.call(request()));
    for _ in 0..3 {
        assert_eq!(refuse().status(), 429);
    }
    let mut requests = vec![request()];
    let counted = allocation_counter::measure(|| {
        let answer = harness.gateway.call(requests.remove(0));
        drop(answer);
    });
    assert!(counted.count_total <= 13, "{counted:?}");
}
