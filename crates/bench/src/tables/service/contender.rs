//! A server under one kind of load.

use std::fmt;
use std::time::Duration;

use anyhow::Context;

use super::rounds::Visit;
use crate::load::{Enough, Generator, Http1, Http2, Protocol};
use crate::processor::Usage;
use crate::questions::{Questions, Wire};
use crate::server::{Door, Server};
use crate::stopwatch::Stopwatch;

/// Users that are asked about, in Zipf's proportions.
pub(super) const USERS: u64 = 10_000;
/// Questions drawn ahead.
const DRAWN: usize = 200_000;

/// How a proxy talks to a limit service: few connections, many calls on each.
const GRPC_CONNECTIONS: usize = 2;
const GRPC_DEPTH: usize = 64;
/// How programs talk over HTTP/1.1: many connections, one request on each.
const HTTP_CONNECTIONS: usize = 50;

/// Before a visit counts: long enough for connections to be made and caches to fill.
const WARM_UP: Duration = Duration::from_millis(300);

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

/// What a server does when it is kept full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturated {
    pub(super) cpu_micros: f64,
    pub(super) per_second: f64,
}

/// How long callers wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) p99_micros: f64,
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
            Wire::Json => self.saturate_over(&mut self.http()?, time),
            Wire::Rls { .. } | Wire::Throttlecrab => self.saturate_over(&mut self.grpc()?, time),
        };
        visit.with_context(|| self.who.to_string())
    }

    fn saturate_over(
        &self,
        generator: &mut Generator<impl Protocol>,
        time: Duration,
    ) -> anyhow::Result<Visit<Saturated>> {
        generator.saturate(Enough::After(WARM_UP))?;
        let (replies, spent) = self.watch(|| generator.saturate(Enough::After(time)))?;
        let replies = replies as f64;
        let saturated = Saturated {
            cpu_micros: spent.usage.server.as_secs_f64() * 1e6 / replies,
            per_second: replies / spent.time.as_secs_f64(),
        };
        Ok(Visit { figures: saturated, others: spent.others() })
    }

    /// Lets callers arrive at the gRPC door for a time.
    ///
    /// # Errors
    /// When a call fails or is refused.
    pub(super) fn arrive(&self, per_second: f64, time: Duration) -> anyhow::Result<Visit<Waits>> {
        let mut generator = self.grpc()?;
        generator.arrive(per_second, WARM_UP)?;
        let (waits, spent) = self
            .watch(|| generator.arrive(per_second, time))
            .with_context(|| self.who.to_string())?;
        let p99_micros = waits.value_at_quantile(0.99) as f64 / 1e3;
        Ok(Visit { figures: Waits { p99_micros }, others: spent.others() })
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

    /// Runs something and says what was spent meanwhile.
    fn watch<T>(&self, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Spent)> {
        let process = self.server.process();
        let before = Usage::now(process)?;
        let stopwatch = Stopwatch::start();
        let done = run()?;
        let time = stopwatch.elapsed();
        Ok((done, Spent { time, usage: Usage::now(process)?.since(&before) }))
    }
}

/// A time, and who used the processors in it.
#[derive(Clone, Copy, Debug)]
struct Spent {
    time: Duration,
    usage: Usage,
}

impl Spent {
    /// How many processors others kept busy.
    fn others(&self) -> f64 {
        self.usage.others().as_secs_f64() / self.time.as_secs_f64()
    }
}
