//! The body of a request on its way to an upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use super::{BoxError, clean_trailers};

type BodyStream = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// The body of a request on its way to an upstream.
pub(crate) struct RequestBody {
    source: RequestSource,
    gate: Option<ContinueGate>,
}

enum RequestSource {
    Empty,
    Whole(Bytes),
    Stream { body: BodyStream, watch: StreamWatch },
}

/// The limits of a streaming body.
struct StreamWatch {
    progress: Arc<BodyProgress>,
    idle: Duration,
    bytes_max: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
enum BodyCut {
    #[error("the client sent nothing for too long")]
    TooSlow,
    #[error("the body is too large")]
    TooLarge,
    #[error("the client stopped sending")]
    Broken(#[source] BoxError),
}

/// The state of a streaming body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BodyState {
    Incomplete = 0,
    Complete = 1,
    TooSlow = 2,
    TooLarge = 3,
    Broken = 4,
}

/// How far a streaming body has come; read while its response is awaited.
#[derive(Debug)]
pub(crate) struct BodyProgress {
    began: Instant,
    bytes: AtomicU64,
    /// When data last arrived, in nanoseconds after the start.
    last: AtomicU64,
    state: AtomicU8,
}

impl BodyState {
    /// Whether the client failed to send its body.
    pub(crate) const fn is_failure(self) -> bool {
        matches!(self, BodyState::TooSlow | BodyState::TooLarge | BodyState::Broken)
    }
}

impl BodyProgress {
    fn new() -> Self {
        BodyProgress {
            began: Instant::now(),
            bytes: AtomicU64::new(0),
            last: AtomicU64::new(0),
            state: AtomicU8::new(BodyState::Incomplete as u8),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> BodyState {
        match self.state.load(Ordering::Relaxed) {
            0 => BodyState::Incomplete,
            1 => BodyState::Complete,
            2 => BodyState::TooSlow,
            3 => BodyState::TooLarge,
            _ => BodyState::Broken,
        }
    }

    /// When data last arrived.
    pub(crate) fn last(&self) -> Instant {
        let after = Duration::from_nanos(self.last.load(Ordering::Relaxed));
        self.began.checked_add(after).unwrap_or(self.began)
    }

    fn note(&self, bytes: usize) -> u64 {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(nanos, Ordering::Relaxed);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes)
    }

    fn end(&self, state: BodyState) {
        self.note(0);
        self.state.store(state as u8, Ordering::Relaxed);
    }
}

impl RequestBody {
    /// Watches a client's body. A body that is known to be empty costs nothing.
    pub(crate) fn watched<B>(
        body: B,
        idle: Duration,
        bytes_max: Option<u64>,
    ) -> (Self, Option<Arc<BodyProgress>>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return (RequestBody::empty(), None);
        }
        let progress = Arc::new(BodyProgress::new());
        let watch = StreamWatch {
            progress: Arc::clone(&progress),
            idle,
            bytes_max: bytes_max.unwrap_or(u64::MAX),
            timer: None,
        };
        let source = RequestSource::Stream { body: Box::pin(ErasedBody { body }), watch };
        (RequestBody { source, gate: None }, Some(progress))
    }

    pub(crate) fn empty() -> Self {
        RequestBody { source: RequestSource::Empty, gate: None }
    }

    /// A body that is complete already.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        let source =
            if bytes.is_empty() { RequestSource::Empty } else { RequestSource::Whole(bytes) };
        RequestBody { source, gate: None }
    }

    /// The same body, not polled until the gate opens.
    pub(crate) fn behind(self, gate: ContinueGate) -> Self {
        RequestBody { gate: Some(gate), ..self }
    }

    /// How far a streaming body has come.
    pub(crate) fn progress(&self) -> Option<Arc<BodyProgress>> {
        match &self.source {
            RequestSource::Stream { watch, .. } => Some(Arc::clone(&watch.progress)),
            RequestSource::Empty | RequestSource::Whole(_) => None,
        }
    }

    /// Whether there is a body at all.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.source, RequestSource::Empty)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(gate) = &mut this.gate {
            ready!(gate.poll(cx));
            this.gate = None;
        }
        match &mut this.source {
            RequestSource::Empty => Poll::Ready(None),
            RequestSource::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                this.source = RequestSource::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            RequestSource::Stream { body, watch } => watch.poll(body.as_mut(), cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            RequestSource::Empty => true,
            RequestSource::Whole(_) => false,
            RequestSource::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            RequestSource::Empty => SizeHint::with_exact(0),
            RequestSource::Whole(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            RequestSource::Stream { body, .. } => body.size_hint(),
        }
    }
}

impl StreamWatch {
    fn poll(
        &mut self,
        mut body: Pin<&mut (dyn Body<Data = Bytes, Error = BoxError> + Send)>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let ended = match body.as_mut().poll_frame(cx) {
            Poll::Pending => {
                let idle = self.idle;
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
                ready!(timer.as_mut().poll(cx));
                (BodyState::TooSlow, BodyCut::TooSlow)
            }
            Poll::Ready(Some(Ok(mut frame))) => {
                self.timer = None;
                if let Some(trailers) = frame.trailers_mut() {
                    clean_trailers(trailers);
                }
                let bytes = self.progress.note(frame.data_ref().map_or(0, Bytes::len));
                if bytes <= self.bytes_max {
                    // A body with a length is not polled after its last byte.
                    if body.is_end_stream() || body.size_hint().exact() == Some(0) {
                        self.progress.end(BodyState::Complete);
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                (BodyState::TooLarge, BodyCut::TooLarge)
            }
            Poll::Ready(None) => {
                self.progress.end(BodyState::Complete);
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => (BodyState::Broken, BodyCut::Broken(error)),
        };
        self.progress.end(ended.0);
        Poll::Ready(Some(Err(Box::new(ended.1))))
    }
}

pin_project! {
    /// A body with boxed errors.
    struct ErasedBody<B> {
        #[pin]
        body: B,
    }
}

impl<B> Body for ErasedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().body.poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Holds a body back until the upstream answers `100 Continue`, or has not answered for a while.
#[derive(Debug)]
pub(crate) struct ContinueGate {
    signal: Arc<ContinueSignal>,
    timer: Pin<Box<Sleep>>,
}

/// Opens a [`ContinueGate`].
#[derive(Debug, Default)]
pub(crate) struct ContinueSignal {
    open: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl ContinueSignal {
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
        if let Some(waker) = self.waiting.lock().take() {
            waker.wake();
        }
    }
}

impl ContinueGate {
    /// A gate that opens by itself after this time.
    pub(crate) fn new(patience: Duration) -> (Self, Arc<ContinueSignal>) {
        let signal = Arc::new(ContinueSignal::default());
        let timer = Box::pin(sleep(patience));
        (ContinueGate { signal: Arc::clone(&signal), timer }, signal)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        *self.signal.waiting.lock() = Some(cx.waker().clone());
        // Read after the waker is stored, so that an opening in between wakes the task.
        if self.signal.open.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.timer.as_mut().poll(cx)
    }
}
