//! Calls a limited service with reqwest, without and with the layer, and counts the refusals.
//!
//!     cargo run -p tidegate-client --features reqwest --example reqwest -- http://127.0.0.1:8000/orders 60
//!
//! Start the service first: `make run` has a gateway with limits on port 8000.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use tidegate_client::{Outcome, PacingLayer, PacingSettings, ReqwestService};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8000/".into());
    let calls: u32 = arguments.next().map_or(Ok(60), |text| text.parse())?;

    let plain = reqwest::Client::builder().timeout(Duration::from_secs(10)).build()?;
    let mut refused = 0;
    for _ in 0..calls {
        let answer = plain.get(&url).send().await?;
        refused += u32::from(answer.status() == http::StatusCode::TOO_MANY_REQUESTS);
    }
    println!("without the layer: {refused} of {calls} calls refused");

    let client = PacingLayer::new(PacingSettings::batch()).layer(ReqwestService::from(plain));
    let started = Instant::now();
    let mut refused = 0;
    for _ in 0..calls {
        let answer =
            client.clone().oneshot(Request::get(&url).body(Empty::<Bytes>::new())?).await?;
        refused += u32::from(matches!(Outcome::of(&answer), Outcome::Refused { .. }));
    }
    println!("with the layer: {refused} of {calls} calls refused, {:?}", started.elapsed());
    Ok(())
}
