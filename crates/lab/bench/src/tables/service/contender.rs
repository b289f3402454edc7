//! A server under one kind of load.

use std::fmt;
use std::time::Duration;

use anyhow::Context;

use super::super::server_figures::{self, SaturationFigures, Span, WaitFigures, WatchedProcesses};
use crate::load::{Generator, Http1, Http2};
use crate::questions::{Questions, Wire};
use crate::rounds::Measurement;
use crate::server::{Door, Server};

/// Users, drawn by a Zipf distribution.
pub(super) const USERS: u64 = 10_000;
/// Requests drawn before the measurement.
const DRAWN: usize = 200_000;

/// As a proxy calls a rate limit service: few connections, many calls on each.
const GRPC_CONNECTIONS: usize = 2;
const GRPC_DEPTH: usize = 64;
/// As programs use HTTP/1.1: many connections, one request on each.
const HTTP_CONNECTIONS: usize = 50;

/// The length of an interval of [`WaitFigures`].
const INTERVAL: Duration = Duration::from_millis(100);

/// A server under one kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ContenderName {
    Tidegate,
    /// Ten descriptors in one request.
    TidegateWide,
    TidegateHttp,
    /// With exact limits in a Redis.
    TidegateRedis,
    /// envoyproxy/ratelimit, which needs a Redis.
    Upstream,
    BareTonic,
    Limitador,
    Throttlecrab,
    BareAxum,
}

impl ContenderName {
    const fn wire(self) -> Wire {
        match self {
            ContenderName::Tidegate
            | ContenderName::TidegateRedis
            | ContenderName::Upstream
            | ContenderName::BareTonic
            | ContenderName::Limitador => Wire::Rls { descriptors: 1 },
            ContenderName::TidegateWide => Wire::Rls { descriptors: 10 },
            ContenderName::Throttlecrab => Wire::Throttlecrab,
            ContenderName::TidegateHttp | ContenderName::BareAxum => Wire::Json,
        }
    }
}

impl fmt::Display for ContenderName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            ContenderName::Tidegate => "1 descriptor",
            ContenderName::TidegateWide => "10 descriptors",
            ContenderName::TidegateHttp => "tidegate over HTTP",
            ContenderName::TidegateRedis => "tidegate, exact over Redis",
            ContenderName::Upstream => "envoyproxy/ratelimit with its Redis",
            ContenderName::BareTonic => "bare tonic",
            ContenderName::Limitador => "limitador's library on tonic",
            ContenderName::Throttlecrab => "throttlecrab",
            ContenderName::BareAxum => "bare axum",
        })
    }
}

/// A server and its requests.
#[derive(Debug)]
pub(super) struct Contender<'a> {
    pub(super) who: ContenderName,
    server: &'a Server,
    /// The process ids of the server and of its store.
    processes: Vec<u32>,
    questions: Questions,
}

impl<'a> Contender<'a> {
    /// # Errors
    /// When the requests cannot be encoded.
    pub(super) fn new(
        who: ContenderName,
        server: &'a Server,
        store: Option<&Server>,
    ) -> anyhow::Result<Self> {
        let questions = Questions::zipf(who.wire(), USERS, DRAWN)?;
        let store = store.map(Server::process);
        let processes = std::iter::once(server.process()).chain(store).collect();
        Ok(Contender { who, server, processes, questions })
    }

    /// Saturates the server for a time.
    ///
    /// # Errors
    /// When a call fails or is refused.
    pub(super) fn saturate(
        &self,
        time: Duration,
    ) -> anyhow::Result<Measurement<SaturationFigures>> {
        let visit = match self.who.wire() {
            Wire::Json => server_figures::saturate(&mut self.http()?, self.watched(), time),
            Wire::Rls { .. } | Wire::Throttlecrab | Wire::Page | Wire::Call(_) => {
                server_figures::saturate(&mut self.grpc()?, self.watched(), time)
            }
        };
        visit.with_context(|| self.who.to_string())
    }

    /// Lets callers arrive at the gRPC door for a time.
    ///
    /// # Errors
    /// When a call fails or is refused.
    pub(super) fn arrive(
        &self,
        per_second: f64,
        time: Duration,
    ) -> anyhow::Result<Measurement<WaitFigures>> {
        let (mut generator, server) = (self.grpc()?, self.server.process());
        let span = Span { time, interval: INTERVAL };
        let visit = server_figures::arrive(&mut generator, server, per_second, span, || Ok(()));
        visit.with_context(|| self.who.to_string())
    }

    fn watched(&self) -> WatchedProcesses<'_> {
        WatchedProcesses { servers: &self.processes, helpers: &[] }
    }

    fn grpc(&self) -> anyhow::Result<Generator<Http2>> {
        let protocol = |questions: &Questions| Http2::new(questions, GRPC_DEPTH);
        let address = self.server.door(Door::Grpc)?;
        Generator::connect(address, GRPC_CONNECTIONS, self.questions.clone(), protocol)
    }

    fn http(&self) -> anyhow::Result<Generator<Http1>> {
        let protocol = |questions: &Questions| Ok(Http1::new(questions));
        let address = self.server.door(Door::Http)?;
        Generator::connect(address, HTTP_CONNECTIONS, self.questions.clone(), protocol)
    }
}
