//! The body of a response, which releases what its request holds when it has ended.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate_admission::{BodyEnd, EndGuard, HeldSlots};
use tokio::time::{Instant, Sleep, sleep_until};

use super::clean_trailers;
use super::held_bytes::HeldFrame;
use crate::upstream::UpstreamBody;

/// The body of a response: the gateway's own, or the upstream's as it streams.
pub struct GatewayBody {
    source: ResponseSource,
    /// Releases the gate when the upstream has finished.
    guard: EndGuard,
    held: HeldFrame,
    /// The caller's own slots, until the client has taken the response.
    _slots: Option<HeldSlots>,
}

enum ResponseSource {
    Own(Bytes),
    Upstream { body: UpstreamBody, timer: IdleTimer },
}

/// How long an upstream may be silent.
struct IdleTimer {
    idle: Duration,
    /// The deadline of the whole request.
    end: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// Why a response broke off.
#[derive(Debug, thiserror::Error)]
pub enum GatewayBodyError {
    /// The upstream broke off.
    #[error("the upstream broke off")]
    Upstream(#[from] hyper::Error),
    /// The connection failed, or ended before the response.
    #[error("the upstream broke off")]
    Read(#[source] io::Error),
    /// The upstream was silent for too long.
    #[error("the upstream sent nothing for too long")]
    Silent,
}

impl GatewayBody {
    /// A body of the gateway's own.
    pub(crate) const fn own(body: Bytes) -> Self {
        let guard = EndGuard::of_slots(None);
        GatewayBody {
            source: ResponseSource::Own(body),
            guard,
            held: HeldFrame::new(),
            _slots: None,
        }
    }

    /// The body of an upstream.
    pub(crate) fn of_upstream(
        body: UpstreamBody,
        idle: Duration,
        end: Option<Instant>,
        mut guard: EndGuard,
        slots: Option<HeldSlots>,
    ) -> Self {
        // A body that says that it is empty is never polled.
        if body.is_end_stream() {
            guard.finish(BodyEnd::Complete);
        }
        let timer = IdleTimer { idle, end, sleep: None };
        let source = ResponseSource::Upstream { body, timer };
        GatewayBody { source, guard, held: HeldFrame::new(), _slots: slots }
    }
}

impl IdleTimer {
    /// Ready when the time is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| {
            let idle = Instant::now().checked_add(self.idle);
            let far = || Instant::now() + Duration::from_secs(24 * 60 * 60);
            let until = [idle, self.end].into_iter().flatten().min().unwrap_or_else(far);
            Box::pin(sleep_until(until))
        });
        sleep.as_mut().poll(cx)
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = GatewayBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GatewayBodyError>>> {
        let this = &mut *self;
        let (frame, is_last) = match &mut this.source {
            ResponseSource::Own(body) => {
                let body = std::mem::take(body);
                ((!body.is_empty()).then(|| Ok(Frame::data(body))), true)
            }
            ResponseSource::Upstream { body, timer } => match body.poll_frame(cx) {
                Poll::Ready(mut frame) => {
                    timer.sleep = None;
                    let trailers = frame.as_mut().and_then(|frame| frame.as_mut().ok());
                    if let Some(trailers) = trailers.and_then(Frame::trailers_mut) {
                        clean_trailers(trailers);
                    }
                    // Nothing follows trailer fields, and hyper does not ask.
                    let ends = matches!(&frame, Some(Ok(frame)) if frame.is_trailers());
                    (frame, ends || body.is_end_stream())
                }
                Poll::Pending => {
                    this.held.replace(0);
                    ready!(timer.poll(cx));
                    (Some(Err(GatewayBodyError::Silent)), true)
                }
            },
        };
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        this.held.replace(data.map_or(0, Bytes::len));
        this.guard.note(frame.as_ref(), is_last);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            ResponseSource::Own(body) => body.is_empty(),
            ResponseSource::Upstream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            ResponseSource::Own(body) => {
                SizeHint::with_exact(u64::try_from(body.len()).unwrap_or(u64::MAX))
            }
            ResponseSource::Upstream { body, .. } => body.size_hint(),
        }
    }
}

impl fmt::Debug for GatewayBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            ResponseSource::Own(_) => "GatewayBody(own)",
            ResponseSource::Upstream { .. } => "GatewayBody(upstream)",
        })
    }
}
