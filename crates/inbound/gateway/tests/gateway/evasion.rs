//! Requests that another server reads differently: none of them evades a limit.

use http::Request;
use tidegate_gateway::{DescriptorSettings, EntrySettings, GatewaySettings, ValueFrom};

use crate::harness::{Harness, to};
use crate::upstream::{RawUpstream, Upstream};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Two requests per hour for each value.
const TWO_EACH: &str = "- key: what
  limits: [{algorithm: token_bucket, unit: hour, requests_per_unit: 2}]";

fn limited_by(mut settings: GatewaySettings, value: ValueFrom) -> GatewaySettings {
    settings.routes[0].descriptors =
        vec![DescriptorSettings::new([EntrySettings::new("what", value)])];
    settings
}

#[tokio::test]
async fn cookie_fields_reach_http_1_upstreams_as_one() {
    let upstream = RawUpstream::start(OK).await;
    let harness = Harness::open(to(&[upstream.url()]));
    let split = Request::get("/").header("cookie", "a=1").header("cookie", "b=2");
    assert_eq!(harness.two().await.send(split, "").await.status, 200);
    let got = upstream.got();
    assert!(got.contains("cookie: a=1; b=2\r\n"), "{got}");
    assert_eq!(got.matches("cookie:").count(), 1, "{got}");
}

#[tokio::test]
async fn a_field_of_split_cookies_is_one_value_for_limits() {
    let upstream = Upstream::start().await;
    let whole = ValueFrom::Header("cookie".parse().unwrap());
    let harness = Harness::limited(limited_by(to(&[upstream.url()]), whole), TWO_EACH);
    let mut client = harness.two().await;
    let split = |last| Request::get("/").header("cookie", "a=1").header("cookie", last);
    let mut statuses = Vec::new();
    for last in ["b=1", "b=2", "b=3", "b=1", "b=1"] {
        statuses.push(client.send(split(last), "").await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}
