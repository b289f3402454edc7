//! Several processes on one limit: units are taken ahead from a Tidegate, so that none of the calls is refused.
//!
//!     cargo run -p tidegate-client --features reqwest,slices --example slices -- http://127.0.0.1:8080 shop 60
//!
//! Start the decision service first, with a rule for the entry `target` in the domain `shop`; then run several of these.

use std::error::Error;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use tidegate_client::{DecisionService, Outcome, PacingLayer, PacingSettings, ReqwestService};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let decisions = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080".into());
    let domain = arguments.next().unwrap_or_else(|| "shop".into());
    let calls: u32 = arguments.next().map_or(Ok(60), |text| text.parse())?;

    let http = ReqwestService::default();
    let source = DecisionService::new(http.clone(), &decisions, domain)?
        .entries(|_| vec![("target".to_owned(), "billing".to_owned())]);
    let layer = PacingLayer::new(PacingSettings::batch()).slices(source);
    let client = layer.layer(http);
    // The service that is limited; any will do to see the pace.
    let url = format!("{decisions}/livez");
    let started = Instant::now();
    let mut refused = 0;
    for _ in 0..calls {
        let call = Request::get(&url).body(Empty::<Bytes>::new())?;
        let answer = client.clone().oneshot(call).await?;
        refused += u32::from(matches!(Outcome::of(&answer), Outcome::Refused { .. }));
    }
    layer.give_back().await;
    println!("{calls} calls, {refused} refused, {:?}", started.elapsed());
    Ok(())
}
