//! Tidegate's gateway in front of one upstream, as the application has it.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use tidegate_answers::HeadersOn;
use tidegate_engine::{Clock, Engine, MemoryConfig, MemoryStore, SystemClock};
use tidegate_gateway::{
    DescriptorSettings, EntrySettings, Gateway, GatewayParts, GatewaySettings, RouteSettings,
    UpstreamSettings, ValueFrom,
};
use tidegate_overload::{Protection, ProtectionSettings, SteadyClock};
use tidegate_server::{Address, Endpoint, Protocol, Server};

use super::ANYWHERE;
use crate::rule_text::compiled;

/// What stands in front of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Limiters {
    /// Rate and requests in flight of each client, fleet, worker and gate.
    All,
    /// The same, and answers tell of limits only when they refuse, as those of others do.
    Silent,
    /// Nothing: a reverse proxy.
    None,
}

/// How the gateway is set up.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Setting {
    /// Where requests go.
    #[arg(long)]
    pub(crate) upstream: Option<SocketAddr>,
    #[arg(long, value_enum, default_value = "all")]
    pub(crate) limiters: Limiters,
    /// Requests that the gate lets through at once.
    #[arg(long, default_value_t = 4096)]
    pub(crate) gate: u64,
}

/// Limits of each client that no run reaches.
pub(crate) const RULES: &str = "\
domain: gateway
descriptors:
- key: client
  limits:
  - {name: rate, algorithm: token_bucket, unit: second, requests_per_unit: 1000000, burst: 1000000}
  - {name: in_flight, algorithm: concurrency, requests_per_unit: 100000, time_to_live: 60s}
";

pub(super) async fn serve(
    setting: Setting,
    announce: impl Fn(&str, SocketAddr),
) -> anyhow::Result<()> {
    let upstream = setting.upstream.context("a gateway needs an upstream")?;
    let mut settings = GatewaySettings {
        routes: vec![RouteSettings::new("all", "api")],
        upstreams: vec![UpstreamSettings::new("api", [format!("http://{upstream}")])],
        ..GatewaySettings::default()
    };
    // The generator names the category of a request, as a proxy before us would.
    settings.trusted_hops = vec!["127.0.0.1/32".parse()?];
    let clock = SystemClock::new();
    let mut parts = GatewayParts::default();
    if setting.limiters == Limiters::Silent {
        settings.headers_on = HeadersOn::Refusal;
    }
    if setting.limiters != Limiters::None {
        let address = ValueFrom::Address { v4_bits: 32, v6_bits: 64 };
        let client = DescriptorSettings::new([EntrySettings::new("client", address)]);
        settings.routes.iter_mut().for_each(|route| route.descriptors = vec![client.clone()]);
        let now = SteadyClock::starting_at(clock.now());
        let protection = Arc::new(Protection::new(ProtectionSettings::new(setting.gate), now));
        parts.protection = Some(Arc::clone(&protection));
        tokio::spawn(tidegate_overload::run(protection));
    }
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Engine::new(store, clock).with_rules(compiled(RULES.to_owned())?);
    let gateway = Gateway::new(Arc::new(engine), settings, parts)?;
    let server = Server::start(NonZeroUsize::MIN)?;
    let endpoint = Endpoint::new("gateway", Protocol::Auto, ANYWHERE);
    let service = gateway.clone();
    let listening = server.open_for_peers(endpoint, move |peer| service.for_peer(peer))?;
    match listening.first().map(|listening| listening.address()) {
        Some(Address::Tcp(address)) => announce("http", *address),
        other => bail!("the gateway listens at {other:?}"),
    }
    gateway.maintain().await;
    Err(anyhow!("the gateway has ended"))
}
