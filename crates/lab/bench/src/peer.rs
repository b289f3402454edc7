//! Servers to compare with, or to stand behind others, each on one thread.
//!
//! The bare ones read the whole request, decide nothing and answer yes: what
//! remains is the cost of the protocol's usual stack. Each tells the address
//! that it listens on as Tidegate does, so that whoever starts it need not know
//! which one it is.

mod bare_axum;
mod bare_tonic;
mod gateway;
mod limitador;
pub(crate) mod messages;
mod slow_api;
mod upstream;

pub(crate) use bare_tonic::service as bare_tonic_service;
pub(crate) use gateway::{RULES as GATEWAY_RULES, Setting};
pub(crate) use slow_api::Capacity;
pub(crate) use upstream::Upstream;

use std::fmt;
use std::net::SocketAddr;

use anyhow::Context;
use clap::ValueEnum;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// A tonic server that answers OK.
    BareTonic,
    /// An axum server that answers a JSON object.
    BareAxum,
    /// Limitador's library, in memory, behind a tonic server.
    Limitador,
    /// Answers a kibibyte, as fast as it can.
    Upstream,
    /// Takes its time, for so many requests at once.
    SlowApi,
    /// Tidegate's gateway.
    Gateway,
}

/// What some servers are told.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Told {
    #[command(flatten)]
    pub(crate) capacity: Capacity,
    #[command(flatten)]
    pub(crate) setting: Setting,
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Name::BareTonic => "bare-tonic",
            Name::BareAxum => "bare-axum",
            Name::Limitador => "limitador",
            Name::Upstream => "upstream",
            Name::SlowApi => "slow-api",
            Name::Gateway => "gateway",
        })
    }
}

/// Serves until the process is ended.
///
/// # Errors
/// When it cannot listen.
pub(crate) fn serve(name: Name, told: Told) -> anyhow::Result<()> {
    serve_with(name, told, announce)
}

fn serve_with(name: Name, told: Told, announce: impl Fn(&str, SocketAddr)) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(async {
        match name {
            Name::BareTonic => bare_tonic::serve(announce).await,
            Name::BareAxum => bare_axum::serve(announce).await,
            Name::Limitador => limitador::serve(announce).await,
            Name::Upstream => upstream::serve(announce),
            Name::SlowApi => slow_api::serve(told.capacity, announce).await,
            Name::Gateway => gateway::serve(told.setting, announce).await,
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
    pub(crate) fn start(name: Name) -> SocketAddr {
        start_with(name, Capacity { slots: 1, millis: 1 })
    }

    /// The same, with what it can do.
    pub(crate) fn start_with(name: Name, capacity: Capacity) -> SocketAddr {
        let setting = Setting { upstream: None, limiters: gateway::Limiters::All, gate: 1 };
        let (tell, address) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let tell = move |_: &str, address| tell.send(address).expect("the test waits for it");
            serve_with(name, Told { capacity, setting }, tell)
        });
        address.recv().expect("the server listens")
    }
}
