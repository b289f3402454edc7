//! Health of the service, as `grpc.health.v1` has it.
//!
//! `ratelimit`, which is upstream's name, and the full name of the service follow [`HealthHandle::set_serving`]. The empty
//! name stands for the process, which serves until it drains.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The name that upstream uses.
const UPSTREAM_NAME: &str = "ratelimit";
pub(super) const SERVICE_NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// Sets and reports whether the service serves. Clones share one state.
#[derive(Clone)]
pub struct HealthHandle(watch::Sender<State>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Serving,
    NotServing,
    Draining,
}

impl HealthHandle {
    /// Not serving yet.
    pub fn new() -> Self {
        HealthHandle(watch::Sender::new(State::Starting))
    }

    /// Sets whether the service serves. No effect once it drains.
    pub fn set_serving(&self, serving: bool) {
        self.change(if serving { State::Serving } else { State::NotServing });
    }

    /// Starts draining: nothing serves any more, and watchers get a last update.
    pub fn drain(&self) {
        self.change(State::Draining);
    }

    /// Whether the service serves.
    pub fn is_serving(&self) -> bool {
        *self.0.borrow() == State::Serving
    }

    /// The gRPC service.
    pub(super) fn server(&self) -> HealthServer<HealthHandle> {
        HealthServer::new(self.clone())
    }

    fn change(&self, next: State) {
        self.0.send_if_modified(|state| {
            let changes = *state != State::Draining && *state != next;
            if changes {
                *state = next;
            }
            changes
        });
    }
}

impl Default for HealthHandle {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HealthHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HealthHandle").field(&*self.0.borrow()).finish()
    }
}

/// The subject of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Process,
    Service,
    Unknown,
}

impl Subject {
    fn of(name: &str) -> Self {
        match name {
            "" => Subject::Process,
            UPSTREAM_NAME | SERVICE_NAME => Subject::Service,
            _ => Subject::Unknown,
        }
    }

    fn answer(self, state: State) -> HealthCheckResponse {
        // Only for watchers; tonic-health has no name for it.
        const SERVICE_UNKNOWN: i32 = 3;
        let serves = match self {
            Subject::Process => state != State::Draining,
            Subject::Service => state == State::Serving,
            Subject::Unknown => return HealthCheckResponse { status: SERVICE_UNKNOWN },
        };
        let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
        HealthCheckResponse { status: status as i32 }
    }
}

#[tonic::async_trait]
impl Health for HealthHandle {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match Subject::of(&request.get_ref().service) {
            Subject::Unknown => Err(Status::not_found("there is no such service")),
            subject => Ok(Response::new(subject.answer(*self.0.borrow()))),
        }
    }

    type WatchStream = Watch;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Watch>, Status> {
        Ok(Response::new(Watch {
            states: WatchStream::new(self.0.subscribe()),
            subject: Subject::of(&request.get_ref().service),
            last: None,
            ended: false,
        }))
    }
}

/// A stream of changes. It ends when the process drains: an open stream would keep its connection open.
#[derive(Debug)]
pub struct Watch {
    states: WatchStream<State>,
    subject: Subject,
    last: Option<HealthCheckResponse>,
    ended: bool,
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.ended {
            let Some(state) = ready!(Pin::new(&mut self.states).poll_next(context)) else { break };
            self.ended = state == State::Draining;
            let answer = self.subject.answer(state);
            if self.last.replace(answer) != Some(answer) {
                return Poll::Ready(Some(Ok(answer)));
            }
        }
        Poll::Ready(None)
    }
}
