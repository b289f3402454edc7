//! A panic of limiter code at any stage leaves the request to the service. One test: injected panics reach the whole
//! process.

mod support;

use support::{check, get, hello, layer, send, user_limits};
use tidegate_engine::fault_injection::panic_in;
use tidegate_engine::{Descriptor, Entry, LimiterStage, Tenure, Verb};
use tower::Layer;

#[tokio::test]
async fn a_panic_at_any_stage_admits_the_request() {
    for stage in LimiterStage::ALL {
        let engine = user_limits("{name: flight, algorithm: concurrency, requests_per_unit: 1}");
        let limited = layer(&engine).layer(hello());
        // Spends the limit, so that a request is refused unless limiter code fails.
        let entries = [Entry { key: "user", value: "7" }];
        let descriptors = [Descriptor::new(&entries)];
        let request = tidegate_engine::Request::new("api", &descriptors);
        let permit = engine.admit_now(&request, Tenure::default());
        assert_eq!(send(&limited, get("/")).await.status, 429, "{stage:?}");
        panic_in(Some(stage));
        let refused_or_admitted = send(&limited, get("/")).await.status;
        panic_in(None);
        match stage {
            // A refusal has nothing to record.
            LimiterStage::Record => assert_eq!(refused_or_admitted, 429),
            _ => assert_eq!(refused_or_admitted, 200, "{stage:?}"),
        }
        drop(permit);
        panic_in(Some(stage));
        let answer = send(&limited, get("/")).await;
        panic_in(None);
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"), "{stage:?}");
        // Whatever panicked, no slot stays held.
        let left = engine.apply_now(Verb::Peek, &request.with_cost(0));
        assert_eq!(left.rulings()[0].decision.remaining, 1, "{stage:?}");
        assert!(check(&engine, 1).is_admitted());
    }
}
