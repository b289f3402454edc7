//! Servers to compare with or to use as upstreams, each on one thread.
//!
//! The bare ones decode the request, decide nothing and admit it: the cost of the protocol
//! stack. Each prints its address as Tidegate does, so that one function starts them all.

mod bare_axum;
mod bare_tonic;
mod gateway;
mod limitador;
pub(crate) mod messages;
mod slow_api;
mod upstream;

pub(crate) use bare_tonic::service as bare_tonic_service;
pub(crate) use gateway::{GatewayOptions, RULES as GATEWAY_RULES};
pub(crate) use slow_api::Capacity;
pub(crate) use upstream::{PAGE_BYTES, Upstream};

use std::fmt;
use std::net::SocketAddr;

use anyhow::Context;
use clap::ValueEnum;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerName {
    /// A tonic server that answers OK.
    BareTonic,
    /// An axum server that answers a JSON object.
    BareAxum,
    /// Limitador's library, in memory, behind a tonic server.
    Limitador,
    /// Answers 1 KiB with the least CPU.
    Upstream,
    /// Answers slowly, with a bound on requests in flight.
    SlowApi,
    /// Tidegate's gateway.
    Gateway,
}

/// Options of some servers.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PeerOptions {
    #[command(flatten)]
    pub(crate) capacity: Capacity,
    #[command(flatten)]
    pub(crate) setting: GatewayOptions,
}

impl fmt::Display for PeerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            PeerName::BareTonic => "bare-tonic",
            PeerName::BareAxum => "bare-axum",
            PeerName::Limitador => "limitador",
            PeerName::Upstream => "upstream",
            PeerName::SlowApi => "slow-api",
            PeerName::Gateway => "gateway",
        })
    }
}

/// Serves until the process is ended.
///
/// # Errors
/// When it cannot listen.
pub(crate) fn serve(name: PeerName, options: PeerOptions) -> anyhow::Result<()> {
    serve_with(name, options, announce)
}

fn serve_with(
    name: PeerName,
    options: PeerOptions,
    announce: impl Fn(&str, SocketAddr),
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(async {
        match name {
            PeerName::BareTonic => bare_tonic::serve(announce).await,
            PeerName::BareAxum => bare_axum::serve(announce).await,
            PeerName::Limitador => limitador::serve(announce).await,
            PeerName::Upstream => upstream::serve(announce),
            PeerName::SlowApi => slow_api::serve(options.capacity, announce).await,
            PeerName::Gateway => gateway::serve(options.setting, announce).await,
        }
    })
}

/// Any free port of this machine, for itself only.
const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn announce(door: &str, address: SocketAddr) {
    let address = address.to_string();
    let line = serde_json::json!({"message": "listening", "door": door, "address": address});
    eprintln!("{line}");
}

#[cfg(test)]
pub(crate) use in_tests::{start, start_with};

#[cfg(test)]
mod in_tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Serves on a thread of this process for as long as that lives.
    pub(crate) fn start(name: PeerName) -> SocketAddr {
        start_with(name, Capacity { slots: 1, millis: 1 })
    }

    /// The same with a capacity.
    pub(crate) fn start_with(name: PeerName, capacity: Capacity) -> SocketAddr {
        let setting =
            GatewayOptions { upstream: None, limiters: gateway::LimiterSet::All, gate: 1 };
        let (sender, address) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let announce =
                move |_: &str, address| sender.send(address).expect("the test waits for it");
            serve_with(name, PeerOptions { capacity, setting }, announce)
        });
        address.recv().expect("the server listens")
    }
}
