//! The body of an answer, which holds what its request holds until it has ended.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

/// What the gateway answers with: its own words, or the upstream's as they come.
pub struct GatewayBody {
    source: Source,
    ending: Option<Ending>,
}

enum Source {
    Own(Bytes),
    Upstream { body: Incoming, patience: Patience },
}

/// How long an upstream may be silent.
struct Patience {
    idle: Duration,
    /// When all has to be over.
    end: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Why an answer ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum GatewayBodyError {
    /// The upstream broke off.
    #[error("the upstream broke off")]
    Upstream(#[from] hyper::Error),
    /// The upstream was silent for too long.
    #[error("the upstream sent nothing for too long")]
    Silent,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All of it was passed on.
    Whole,
    /// The upstream broke off, or was silent for too long.
    Broken,
    /// The client was gone, or a tunnel was over.
    Left,
}

/// Is told when an answer has ended.
pub(crate) trait OnEnd: Send + Sync {
    /// The answer ended so, with so many bytes of body.
    fn ended(self: Box<Self>, end: End, bytes: u64);
}

/// Whatever waits for the end of an answer. Told once, at the latest when it is dropped.
pub(crate) struct Ending {
    bytes: u64,
    on_end: Option<Box<dyn OnEnd>>,
}

impl Ending {
    pub(crate) fn new(on_end: Box<dyn OnEnd>) -> Self {
        Ending { bytes: 0, on_end: Some(on_end) }
    }

    pub(crate) fn finish(&mut self, end: End) {
        if let Some(on_end) = self.on_end.take() {
            on_end.ended(end, self.bytes);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.finish(End::Left);
    }
}

impl GatewayBody {
    /// The gateway's own words.
    pub(crate) const fn own(body: Bytes) -> Self {
        GatewayBody { source: Source::Own(body), ending: None }
    }

    /// What an upstream sends.
    pub(crate) fn of_upstream(
        body: Incoming,
        idle: Duration,
        end: Option<Instant>,
        mut ending: Ending,
    ) -> Self {
        // Nobody polls a body that says that it is empty.
        if body.is_end_stream() {
            ending.finish(End::Whole);
        }
        let patience = Patience { idle, end, timer: None };
        GatewayBody { source: Source::Upstream { body, patience }, ending: Some(ending) }
    }

    fn note(&mut self, frame: &Option<Result<Frame<Bytes>, GatewayBodyError>>, over: bool) {
        let Some(ending) = &mut self.ending else { return };
        if let Some(Ok(frame)) = frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            ending.bytes = ending.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        match frame {
            Some(Err(_)) => ending.finish(End::Broken),
            None => ending.finish(End::Whole),
            Some(Ok(_)) if over => ending.finish(End::Whole),
            Some(Ok(_)) => {}
        }
    }
}

impl Patience {
    /// Whether it has run out.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| {
            let idle = Instant::now().checked_add(self.idle);
            let far = || Instant::now() + Duration::from_secs(24 * 60 * 60);
            let until = [idle, self.end].into_iter().flatten().min().unwrap_or_else(far);
            Box::pin(sleep_until(until))
        });
        timer.as_mut().poll(cx)
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
        let (frame, over) = match &mut this.source {
            Source::Own(body) => {
                let body = std::mem::take(body);
                ((!body.is_empty()).then(|| Ok(Frame::data(body))), true)
            }
            Source::Upstream { body, patience } => match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(frame) => {
                    patience.timer = None;
                    (frame.map(|frame| frame.map_err(Into::into)), body.is_end_stream())
                }
                Poll::Pending => {
                    ready!(patience.poll(cx));
                    (Some(Err(GatewayBodyError::Silent)), true)
                }
            },
        };
        this.note(&frame, over);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(body) => body.is_empty(),
            Source::Upstream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(body) => {
                SizeHint::with_exact(u64::try_from(body.len()).unwrap_or(u64::MAX))
            }
            Source::Upstream { body, .. } => body.size_hint(),
        }
    }
}

impl fmt::Debug for GatewayBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Source::Own(_) => "GatewayBody(own)",
            Source::Upstream { .. } => "GatewayBody(upstream)",
        })
    }
}
