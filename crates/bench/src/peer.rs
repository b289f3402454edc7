//! Servers to compare with, each on one thread.
//!
//! The bare ones read the whole request, decide nothing and answer yes: what
//! remains is the cost of the protocol's usual stack. Each tells the address
//! that it listens on as Tidegate does, so that whoever starts it need not know
//! which one it is.

mod bare_axum;
mod bare_tonic;
mod limitador;
pub(crate) mod messages;

pub(crate) use bare_tonic::service as bare_tonic_service;

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
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Name::BareTonic => "bare-tonic",
            Name::BareAxum => "bare-axum",
            Name::Limitador => "limitador",
        })
    }
}

/// Serves until the process is ended.
///
/// # Errors
/// When it cannot listen.
pub(crate) fn serve(name: Name) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(async {
        match name {
            Name::BareTonic => bare_tonic::serve(announce).await,
            Name::BareAxum => bare_axum::serve(announce).await,
            Name::Limitador => limitador::serve(announce).await,
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
pub(crate) use in_tests::start;

#[cfg(test)]
mod in_tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Serves on a thread of this process for as long as that lives.
    pub(crate) fn start(name: Name) -> SocketAddr {
        let (told, address) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let tell = move |_: &str, address| told.send(address).expect("the test waits for it");
            runtime.expect("a runtime starts").block_on(async {
                match name {
                    Name::BareTonic => bare_tonic::serve(tell).await,
                    Name::BareAxum => bare_axum::serve(tell).await,
                    Name::Limitador => limitador::serve(tell).await,
                }
            })
        });
        address.recv().expect("the server listens")
    }
}
