//! The body of a response, which releases what its request holds when it has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate_admission::{BodyEnd, EndGuard};

pin_project! {
    /// The service's body or that of a refusal. When it has ended or is dropped, the request's slots are free again.
    #[derive(Debug)]
    pub struct LimitedBody<B> {
        #[pin]
        source: BodySource<B>,
        guard: EndGuard,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = BodySourceProjection]
    enum BodySource<B> {
        Service { #[pin] body: B },
        Refusal { body: Bytes },
    }
}

impl<B: Body> LimitedBody<B> {
    /// The service's body.
    pub(super) fn of_service(body: B, mut guard: EndGuard) -> Self {
        // A body that says that it is empty is never polled.
        if body.is_end_stream() {
            guard.finish(BodyEnd::Complete);
        }
        LimitedBody { source: BodySource::Service { body }, guard }
    }
}

impl<B> LimitedBody<B> {
    /// The body of a refusal.
    pub(super) fn of_refusal(body: Bytes) -> Self {
        LimitedBody { source: BodySource::Refusal { body }, guard: EndGuard::default() }
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
            BodySourceProjection::Service { body } => body,
            BodySourceProjection::Refusal { body } => {
                let body = std::mem::take(body);
                let frame = (!body.is_empty()).then(|| Ok(Frame::data(body.into())));
                return Poll::Ready(frame);
            }
        };
        let frame = ready!(body.as_mut().poll_frame(context));
        this.guard.note(frame.as_ref(), body.is_end_stream());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Service { body } => body.is_end_stream(),
            BodySource::Refusal { body } => body.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Service { body } => body.size_hint(),
            BodySource::Refusal { body } => {
                SizeHint::with_exact(u64::try_from(body.len()).unwrap_or(u64::MAX))
            }
        }
    }
}
