//! The body of a request, as an upstream gets it.

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

use super::BoxError;

type Stream = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// A body on its way to an upstream.
pub(crate) struct RequestBody {
    source: Source,
    gate: Option<Gate>,
}

enum Source {
    Empty,
    Whole(Bytes),
    Stream { body: Stream, watch: Watch },
}

/// What a streaming body is held to.
struct Watch {
    progress: Arc<Progress>,
    idle: Duration,
    bytes_max: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
enum BodyCut {
    #[error("the client sent nothing for too long")]
    TooSlow,
    #[error("the body is too large")]
    TooLarge,
    #[error("the client stopped sending")]
    Broken(#[source] BoxError),
}

/// What has become of a streaming body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fate {
    Coming = 0,
    Ended = 1,
    TooSlow = 2,
    TooLarge = 3,
    Broken = 4,
}

/// How far a streaming body has come; seen by those who wait for its answer.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Instant,
    bytes: AtomicU64,
    /// Nanoseconds after the beginning at which something last came.
    last: AtomicU64,
    fate: AtomicU8,
}

impl Progress {
    fn new() -> Self {
        Progress {
            began: Instant::now(),
            bytes: AtomicU64::new(0),
            last: AtomicU64::new(0),
            fate: AtomicU8::new(Fate::Coming as u8),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn fate(&self) -> Fate {
        match self.fate.load(Ordering::Relaxed) {
            0 => Fate::Coming,
            1 => Fate::Ended,
            2 => Fate::TooSlow,
            3 => Fate::TooLarge,
            _ => Fate::Broken,
        }
    }

    /// When something last came.
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

    fn settle(&self, fate: Fate) {
        self.note(0);
        self.fate.store(fate as u8, Ordering::Relaxed);
    }
}

impl RequestBody {
    /// Watches a client's body. One that is known to be empty costs nothing.
    pub(crate) fn watched<B>(
        body: B,
        idle: Duration,
        bytes_max: Option<u64>,
    ) -> (Self, Option<Arc<Progress>>)
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return (RequestBody::empty(), None);
        }
        let progress = Arc::new(Progress::new());
        let watch = Watch {
            progress: Arc::clone(&progress),
            idle,
            bytes_max: bytes_max.unwrap_or(u64::MAX),
            timer: None,
        };
        let source = Source::Stream { body: Box::pin(Erased { body }), watch };
        (RequestBody { source, gate: None }, Some(progress))
    }

    pub(crate) fn empty() -> Self {
        RequestBody { source: Source::Empty, gate: None }
    }

    /// A body that is there already.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        let source = if bytes.is_empty() { Source::Empty } else { Source::Whole(bytes) };
        RequestBody { source, gate: None }
    }

    /// The same body, not asked for until the gate opens.
    pub(crate) fn behind(self, gate: Gate) -> Self {
        RequestBody { gate: Some(gate), ..self }
    }

    /// Whether there is a body at all.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.source, Source::Empty)
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
            Source::Empty => Poll::Ready(None),
            Source::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                this.source = Source::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Source::Stream { body, watch } => watch.poll(body.as_mut(), cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Whole(_) => false,
            Source::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Whole(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            Source::Stream { body, .. } => body.size_hint(),
        }
    }
}

impl Watch {
    fn poll(
        &mut self,
        body: Pin<&mut (dyn Body<Data = Bytes, Error = BoxError> + Send)>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let ended = match body.poll_frame(cx) {
            Poll::Pending => {
                let idle = self.idle;
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
                ready!(timer.as_mut().poll(cx));
                (Fate::TooSlow, BodyCut::TooSlow)
            }
            Poll::Ready(Some(Ok(frame))) => {
                self.timer = None;
                let bytes = self.progress.note(frame.data_ref().map_or(0, Bytes::len));
                if bytes <= self.bytes_max {
                    return Poll::Ready(Some(Ok(frame)));
                }
                (Fate::TooLarge, BodyCut::TooLarge)
            }
            Poll::Ready(None) => {
                self.progress.settle(Fate::Ended);
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => (Fate::Broken, BodyCut::Broken(error)),
        };
        self.progress.settle(ended.0);
        Poll::Ready(Some(Err(Box::new(ended.1))))
    }
}

pin_project! {
    /// A body whose errors are of one type.
    struct Erased<B> {
        #[pin]
        body: B,
    }
}

impl<B> Body for Erased<B>
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

/// Keeps a body back until the upstream says to continue, or has not said anything for a while.
#[derive(Debug)]
pub(crate) struct Gate {
    key: Arc<GateKey>,
    timer: Pin<Box<Sleep>>,
}

/// Opens a gate, from wherever the word comes.
#[derive(Debug, Default)]
pub(crate) struct GateKey {
    open: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl GateKey {
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
        if let Some(waker) = self.waiting.lock().take() {
            waker.wake();
        }
    }
}

impl Gate {
    /// A gate that opens by itself after so long.
    pub(crate) fn new(patience: Duration) -> (Self, Arc<GateKey>) {
        let key = Arc::new(GateKey::default());
        (Gate { key: Arc::clone(&key), timer: Box::pin(sleep(patience)) }, key)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        *self.key.waiting.lock() = Some(cx.waker().clone());
        // Looked at after the waker is there: whoever opens in between wakes it.
        if self.key.open.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.timer.as_mut().poll(cx)
    }
}
