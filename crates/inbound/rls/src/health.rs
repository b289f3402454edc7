//! Health of the service, as `grpc.health.v1` has it.
//!
//! The name `ratelimit` is upstream's, and follows what the process says of
//! itself; so does the service's full name. The empty name stands for the
//! process: it serves until it is draining.

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

/// What upstream calls itself.
const UPSTREAM_NAME: &str = "ratelimit";
pub(super) const SERVICE_NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// Says whether the service serves; all clones are one.
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

    /// Says whether the service serves. Says nothing more once it is draining.
    pub fn set_serving(&self, serving: bool) {
        self.change(if serving { State::Serving } else { State::NotServing });
    }

    /// The process is about to end: nothing serves any more, and those who
    /// watch are told so for the last time.
    pub fn drain(&self) {
        self.change(State::Draining);
    }

    /// Whether the service serves.
    pub fn is_serving(&self) -> bool {
        *self.0.borrow() == State::Serving
    }

    /// The service that tells of it.
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

/// Whose health is asked for.
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

    const fn serves(self, state: State) -> bool {
        match self {
            Subject::Process => !matches!(state, State::Draining),
            Subject::Service => matches!(state, State::Serving),
            Subject::Unknown => false,
        }
    }
}

fn answer(subject: Subject, state: State) -> HealthCheckResponse {
    // Number three, which only those who watch are told, has no name here.
    const SERVICE_UNKNOWN: i32 = 3;
    let status = match subject {
        Subject::Unknown => SERVICE_UNKNOWN,
        _ if subject.serves(state) => ServingStatus::Serving as i32,
        _ => ServingStatus::NotServing as i32,
    };
    HealthCheckResponse { status }
}

#[tonic::async_trait]
impl Health for HealthHandle {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match Subject::of(&request.get_ref().service) {
            Subject::Unknown => Err(Status::not_found("there is no such service")),
            subject => Ok(Response::new(answer(subject, *self.0.borrow()))),
        }
    }

    type WatchStream = Watch;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Watch>, Status> {
        Ok(Response::new(Watch {
            states: WatchStream::new(self.0.subscribe()),
            subject: Subject::of(&request.get_ref().service),
            told: None,
            over: false,
        }))
    }
}

/// Tells of every change, and ends when the process drains: a stream that
/// stayed open would keep its connection from ending.
#[derive(Debug)]
pub struct Watch {
    states: WatchStream<State>,
    subject: Subject,
    told: Option<HealthCheckResponse>,
    over: bool,
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.over {
            let Some(state) = ready!(Pin::new(&mut self.states).poll_next(context)) else { break };
            self.over = state == State::Draining;
            let answer = answer(self.subject, state);
            if self.told.replace(answer) != Some(answer) {
                return Poll::Ready(Some(Ok(answer)));
            }
        }
        Poll::Ready(None)
    }
}
