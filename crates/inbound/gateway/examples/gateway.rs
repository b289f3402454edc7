//! A gateway in front of an HTTP server: `gateway 127.0.0.1:8000 http://127.0.0.1:8080`.
//!
//! Each address may send ten requests per second, with twenty in flight. Try `curl -i http://127.0.0.1:8000/` a few
//! times in a row. A third argument sets another rate; 0 means no limits.

use std::error::Error;
use std::sync::Arc;
use std::thread::available_parallelism;

use tidegate_engine::{Engine, MemoryConfig, MemoryStore, Options, Source, SystemClock, compile};
use tidegate_gateway::{
    DescriptorSettings, EntrySettings, Gateway, GatewayParts, GatewaySettings, RouteSettings,
    UpstreamSettings, ValueFrom,
};
use tidegate_server::{Endpoint, Protocol, Server};

fn rules(rate: u32) -> String {
    format!(
        "domain: gateway
descriptors:
- key: address
  limits:
  - {{name: per_address, algorithm: token_bucket, unit: second, requests_per_unit: {rate}}}
  - {{name: at_once, algorithm: concurrency, requests_per_unit: {}}}
",
        rate.clamp(20, 100_000)
    )
}

fn settings(upstream: &str, limited: bool) -> GatewaySettings {
    let address = ValueFrom::Address { v4_bits: 32, v6_bits: 64 };
    let mut route = RouteSettings::new("all", "api");
    if limited {
        route.descriptors = vec![DescriptorSettings::new([EntrySettings::new("address", address)])];
    }
    GatewaySettings {
        routes: vec![route],
        upstreams: vec![UpstreamSettings::new("api", [upstream])],
        ..GatewaySettings::default()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let upstream = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let rate: u32 = arguments.next().unwrap_or_else(|| "10".to_owned()).parse()?;

    let snapshot = compile(&[Source::new("rules", rules(rate.max(1)))], &Options::default())?;
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(snapshot));
    let gateway = Gateway::new(engine, settings(&upstream, rate > 0), GatewayParts::default())?;

    let server = Server::start(available_parallelism()?)?;
    let address: std::net::SocketAddr = listen.parse()?;
    let endpoint = Endpoint::new("gateway", Protocol::Auto, address);
    let service = gateway.clone();
    let listening = server.open_for_peers(endpoint, move |peer| service.for_peer(peer))?;
    for bound in &listening {
        println!("http://{} forwards to {upstream}", bound.address());
    }
    gateway.maintain().await;
    Ok(())
}
