//! The body of an answer, which holds what its request holds.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate_engine::{Clock, CounterStore, Permit};

/// How an answer's body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// To its last byte.
    Whole,
    /// With an error.
    Broken,
    /// Nobody wanted the rest.
    Dropped,
}

/// What a request holds until its answer has ended.
pub(super) trait Holding: Send + Sync {
    /// Gives it back.
    fn end(self: Box<Self>, end: End);
}

impl<S, C> Holding for Permit<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Slots come back however it ended.
    fn end(self: Box<Self>, _end: End) {}
}

/// What a request holds, if anything, whatever it is. Dropping gives it back.
pub(super) struct Held(Option<Box<dyn Holding>>);

impl Held {
    /// Nothing is boxed for requests that hold nothing, which are most.
    pub(super) fn new<S, C>(permit: Permit<S, C>) -> Self
    where
        S: CounterStore,
        C: Clock,
    {
        if permit.is_empty() { Held::nothing() } else { Held::holding(permit) }
    }

    pub(super) fn holding(holding: impl Holding + 'static) -> Self {
        Held(Some(Box::new(holding)))
    }

    pub(super) const fn nothing() -> Self {
        Held(None)
    }

    fn give_back(&mut self, end: End) {
        if let Some(held) = self.0.take() {
            held.end(end);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(End::Dropped);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Held(slots)" } else { "Held(nothing)" })
    }
}

pin_project! {
    /// The service's body or that of a refusal. What the request holds is given
    /// back when it has ended or is dropped.
    #[derive(Debug)]
    pub struct LimitedBody<B> {
        #[pin]
        source: Source<B>,
        held: Held,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = SourceProjection]
    enum Source<B> {
        Service { #[pin] body: B },
        Refusal { body: Bytes },
    }
}

impl<B: Body> LimitedBody<B> {
    /// The service's body.
    pub(super) fn of_service(body: B, mut held: Held) -> Self {
        // Nobody polls a body that says that it is empty.
        if body.is_end_stream() {
            held.give_back(End::Whole);
        }
        LimitedBody { source: Source::Service { body }, held }
    }
}

impl<B> LimitedBody<B> {
    /// A refusal's body.
    pub(super) fn of_refusal(body: Bytes) -> Self {
        LimitedBody { source: Source::Refusal { body }, held: Held::nothing() }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let mut body = match this.source.project() {
            SourceProjection::Service { body } => body,
            SourceProjection::Refusal { body } => {
                let body = std::mem::take(body);
                let frame = (!body.is_empty()).then(|| Ok(Frame::data(body.into())));
                return Poll::Ready(frame);
            }
        };
        let frame = ready!(body.as_mut().poll_frame(context));
        match &frame {
            Some(Err(_)) => this.held.give_back(End::Broken),
            None => this.held.give_back(End::Whole),
            Some(Ok(_)) if body.is_end_stream() => this.held.give_back(End::Whole),
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Service { body } => body.is_end_stream(),
            Source::Refusal { body } => body.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Service { body } => body.size_hint(),
            Source::Refusal { body } => {
                SizeHint::with_exact(u64::try_from(body.len()).unwrap_or(u64::MAX))
            }
        }
    }
}
