//! Whole calls of the rate limit service, without a network: the request as the
//! HTTP library hands it over, the answer until its last trailer.
//!
//! The count covers decoding, the decision and the answer. It excludes the making of
//! the request, and streams and header tables of the HTTP library.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::Body;
use http_body_util::Full;
use tidegate_engine::{Engine, MemoryConfig, MemoryStore, NearLimit, SystemClock};
use tidegate_metrics::Meter;
use tidegate_rls::{HealthHandle, Rls, RlsSettings};

use super::{KEYS, REQUESTS, in_second_pass};
use crate::peer;
use crate::questions::{Questions, Wire};
use crate::rule_text::{compiled, user_rules};

const RULES: u64 = 10_000;
const WIRE: Wire = Wire::Rls { descriptors: 1 };

/// A request whose body is in memory.
type MeasuredCall = Request<Full<Bytes>>;

/// Our door's allocations.
///
/// # Errors
/// When a call is not answered, or refused.
pub(super) fn ours() -> anyhow::Result<usize> {
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Engine::new(store, SystemClock::new()).with_rules(compiled(user_rules(RULES))?);
    let engine = Arc::new(engine.with_tallies(NearLimit::default()));
    let meter = Arc::new(Meter::new("grpc"));
    let door = Rls::new(engine, RlsSettings::default(), &HealthHandle::new(), meter);
    counted(|call| hyper::service::Service::call(&door, call))
}

/// The allocations of a service as tonic generates it, which answers OK.
///
/// # Errors
/// When a call is not answered.
pub(super) fn bare_tonic() -> anyhow::Result<usize> {
    let service = peer::bare_tonic_service();
    counted(|call| tonic::codegen::Service::call(&mut service.clone(), call))
}

fn counted<A, B, E>(answer: impl Fn(MeasuredCall) -> A) -> anyhow::Result<usize>
where
    A: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    // Made ahead, because a call consumes its request.
    let mut calls = calls(2 * REQUESTS)?.into_iter();
    let mut admitted = 0;
    let count = in_second_pass(|| {
        for call in calls.by_ref().take(REQUESTS) {
            admitted += usize::from(admits(answer(call)) == Some(true));
        }
    });
    ensure!(admitted == 2 * REQUESTS, "{admitted} of {} calls were admitted", 2 * REQUESTS);
    Ok(count)
}

fn calls(count: usize) -> anyhow::Result<Vec<MeasuredCall>> {
    let mut questions = Questions::zipf(WIRE, KEYS, REQUESTS)?;
    let calls = (0..count).map(|_| {
        Request::post(WIRE.path())
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::copy_from_slice(questions.ask())))
    });
    calls.collect::<Result<_, _>>().context("a request that cannot be made")
}

/// Reads an answer to its end; `None` if it is an error or not ready.
fn admits<B: Body<Data = Bytes>, E>(
    answer: impl Future<Output = Result<Response<B>, E>>,
) -> Option<bool> {
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(response)) = pin!(answer).poll(&mut context) else { return None };
    let mut body = pin!(response.into_body());
    let mut admitted = None;
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut context) {
        if let Ok(data) = frame.ok()?.into_data() {
            // After the prefix of the gRPC message.
            admitted = WIRE.admits(data.get(5..)?).ok();
        }
    }
    admitted
}
