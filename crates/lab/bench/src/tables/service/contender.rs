//! A server under one kind of load.

use std::fmt;
use std::time::Duration;

use anyhow::Context;

use super::super::visiting::{self, Saturated, Span, Waits, Watched};
use crate::load::{Generator, Http1, Http2};
use crate::questions::{Questions, Wire};
use crate::rounds::Visit;
use crate::server::{Door, Server};

/// Users that are asked about, in Zipf's proportions.
pub(super) const USERS: u64 = 10_000;
/// Questions drawn ahead.
const DRAWN: usize = 200_000;

/// How a proxy talks to a limit service: few connections, many calls on each.
const GRPC_CONNECTIONS: usize = 2;
const GRPC_DEPTH: usize = 64;
/// How programs talk over HTTP/1.1: many connections, one request on each.
const HTTP_CONNECTIONS: usize = 50;

/// Waits are looked at apart for each so long.
const STRETCH: Duration = Duration::from_millis(100);

/// Whom, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Tidegate,
    /// Ten descriptors in one request.
    TidegateWide,
    TidegateHttp,
    BareTonic,
    Limitador,
    Throttlecrab,
    BareAxum,
}

impl Who {
    const fn wire(self) -> Wire {
        match self {
            Who::Tidegate | Who::BareTonic | Who::Limitador => Wire::Rls { descriptors: 1 },
            Who::TidegateWide => Wire::Rls { descriptors: 10 },
            Who::Throttlecrab => Wire::Throttlecrab,
            Who::TidegateHttp | Who::BareAxum => Wire::Json,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Who::Tidegate => "1 descriptor",
            Who::TidegateWide => "10 descriptors",
            Who::TidegateHttp => "tidegate over HTTP",
            Who::BareTonic => "bare tonic",
            Who::Limitador => "limitador's library on tonic",
            Who::Throttlecrab => "throttlecrab",
            Who::BareAxum => "bare axum",
        })
    }
}

/// A server and what it is asked.
#[derive(Debug)]
pub(super) struct Contender<'a> {
    pub(super) who: Who,
    server: &'a Server,
    questions: Questions,
}

impl<'a> Contender<'a> {
    /// # Errors
    /// When the questions cannot be made, which would be a fault of theirs.
    pub(super) fn new(who: Who, server: &'a Server) -> anyhow::Result<Self> {
        Ok(Contender { who, server, questions: Questions::zipf(who.wire(), USERS, DRAWN)? })
    }

    /// Keeps the server full for a time.
    ///
    /// # Errors
    /// When a call fails or is refused.
    pub(super) fn saturate(&self, time: Duration) -> anyhow::Result<Visit<Saturated>> {
        let visit = match self.who.wire() {
            Wire::Json => visiting::saturate(&mut self.http()?, self.watched(), time),
            Wire::Rls { .. } | Wire::Throttlecrab | Wire::Page | Wire::Call(_) => {
                visiting::saturate(&mut self.grpc()?, self.watched(), time)
            }
        };
        visit.with_context(|| self.who.to_string())
    }

    /// Lets callers arrive at the gRPC door for a time.
    ///
    /// # Errors
    /// When a call fails or is refused.
    pub(super) fn arrive(&self, per_second: f64, time: Duration) -> anyhow::Result<Visit<Waits>> {
        let (mut generator, server) = (self.grpc()?, self.server.process());
        let span = Span { time, stretch: STRETCH };
        let visit = visiting::arrive(&mut generator, server, per_second, span, || Ok(()));
        visit.with_context(|| self.who.to_string())
    }

    fn watched(&self) -> Watched<'_> {
        Watched { server: self.server.process(), helpers: &[] }
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
