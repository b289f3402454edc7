//! Start-up time and memory of our server.

use anyhow::ensure;

use super::programs::Programs;
use crate::load::{Enough, Generator, Http2};
use crate::processor::{Pins, resident_bytes};
use crate::questions::{Questions, Wire};
use crate::server::{Door, Server};
use crate::spread::Spread;
use crate::stopwatch::Stopwatch;

const WIRE: Wire = Wire::Rls { descriptors: 1 };
const CONNECTIONS: usize = 2;
const DEPTH: usize = 64;
/// Bytes of a megabyte.
const MEGABYTE: f64 = 1e6;

/// The resident memory of a fresh server with this many users.
///
/// # Errors
/// When a call fails or is refused.
pub(super) fn megabytes(programs: &Programs, pins: &Pins, users: u64) -> anyhow::Result<f64> {
    let server = pins.on_server(|| Server::start(programs.tidegate(), &[Door::Grpc]))?;
    let questions = Questions::each(WIRE, users)?;
    let replies = pins.on_generator(|| {
        let address = server.door(Door::Grpc)?;
        let protocol = |questions: &Questions| Http2::new(questions, DEPTH);
        let mut generator = Generator::connect(address, CONNECTIONS, questions, protocol)?;
        generator.saturate(Enough::Replies(users))
    })?;
    ensure!(replies >= users, "the server was not asked about all users");
    Ok(resident_bytes(server.process())? as f64 / MEGABYTE)
}

/// Milliseconds from starting a server until it has answered one call, on all processors.
///
/// # Errors
/// When it does not start or does not answer.
pub(super) fn start_millis(programs: &Programs, times: usize) -> anyhow::Result<Spread> {
    let questions = Questions::each(WIRE, 1)?;
    let mut millis = Vec::with_capacity(times);
    for _ in 0..times {
        let stopwatch = Stopwatch::start();
        let server = Server::start(programs.tidegate(), &[Door::Grpc])?;
        let protocol = |questions: &Questions| Http2::new(questions, 1);
        let address = server.door(Door::Grpc)?;
        let mut generator = Generator::connect(address, 1, questions.clone(), protocol)?;
        generator.saturate(Enough::Replies(1))?;
        millis.push(stopwatch.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Spread::of(millis))
}
