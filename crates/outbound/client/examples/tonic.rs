//! gRPC calls through the layer: tonic's health client in front of tonic's health service.
//!
//!     cargo run -p tidegate-client --example tonic

use std::error::Error;

use http::Request;
use tidegate_client::{PacingEvent, PacingLayer, ReplayBody};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let layer = PacingLayer::default()
        .observer(|target: &str, event: PacingEvent| println!("{target}: {event:?}"));
    // tonic's channel takes its own type of body.
    let channel = ServiceBuilder::new()
        .layer(layer)
        .service(channel.map_request(|request: Request<ReplayBody<Body>>| request.map(Body::new)));
    let mut client = HealthClient::with_origin(channel, format!("http://{address}").parse()?);
    for _ in 0..3 {
        let answer = client.check(HealthCheckRequest { service: String::new() }).await?;
        println!("{:?}", answer.into_inner().status());
    }
    Ok(())
}
