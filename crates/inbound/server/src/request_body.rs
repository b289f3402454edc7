//! The body of a request, which notes that the service waits for the client.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::connection_state::ConnectionState;

/// The body of a request to a service that [`Server::open`](crate::Server::open) serves.
pub struct RequestBody {
    source: BodySource,
    state: Arc<ConnectionState>,
    /// The number of the request on its connection.
    number: u64,
    /// Whether the last poll found nothing.
    waits: bool,
}

enum BodySource {
    Direct(Incoming),
    Early(Arc<Mutex<EarlyBody>>),
}

/// When more bytes than this are read before the service asks, no more are.
const EARLY_BYTES_MAX: usize = 4 * 1024;

/// A body whose beginning is read before the service asks for it, so that a short one does not keep hyper busy.
struct EarlyBody {
    incoming: Incoming,
    /// Whether the client stated the length.
    is_sized: bool,
    frames: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    bytes: usize,
    /// Whether the service has asked.
    is_asked: bool,
    has_ended: bool,
}

impl EarlyBody {
    /// Reads what is there. Returns whether that is all of the body.
    fn read_ahead(&mut self) -> bool {
        // hyper's task reads ahead, and is polled again when there is more.
        let mut cx = Context::from_waker(Waker::noop());
        while !self.is_asked && !self.has_ended && self.bytes <= EARLY_BYTES_MAX {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(&mut cx) else {
                return false;
            };
            let Some(frame) = frame else {
                self.has_ended = true;
                break;
            };
            // Copied out of hyper's buffer, of which a frame holds all.
            let frame = frame.map(|frame| frame.map_data(|data| Bytes::copy_from_slice(&data)));
            self.has_ended = frame.is_err() || self.incoming.is_end_stream();
            self.bytes = self.bytes.saturating_add(data_bytes(&frame));
            self.frames.push_back(frame);
        }
        self.has_ended && self.frames.iter().all(Result::is_ok)
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.is_asked = true;
        if let Some(frame) = self.frames.pop_front() {
            self.bytes = self.bytes.saturating_sub(data_bytes(&frame));
            return Poll::Ready(Some(frame));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && (self.has_ended || self.incoming.is_end_stream())
    }

    /// A chunked body has no length, also when all of it is there: trailer fields may follow.
    fn size_hint(&self) -> SizeHint {
        let early = u64::try_from(self.bytes).unwrap_or(u64::MAX);
        match self.incoming.size_hint().exact().filter(|_| self.is_sized) {
            Some(rest) => SizeHint::with_exact(rest.saturating_add(early)),
            None => SizeHint::new(),
        }
    }
}

/// Reads the beginning of a body early.
pub(super) struct EarlyReader {
    body: Arc<Mutex<EarlyBody>>,
    /// The number of the request on its connection.
    number: u64,
}

impl EarlyReader {
    /// Reads what is there.
    pub(super) fn read_ahead(&self, state: &ConnectionState) {
        if self.body.lock().read_ahead() {
            state.end_request_body(self.number);
        }
    }
}

fn data_bytes(frame: &Result<Frame<Bytes>, hyper::Error>) -> usize {
    frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len)
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, state: &Arc<ConnectionState>) -> Self {
        let number = state.begin_request(!incoming.is_end_stream());
        let source = BodySource::Direct(incoming);
        RequestBody { source, state: Arc::clone(state), number, waits: false }
    }

    /// A body whose beginning may be read early.
    pub(super) fn early(incoming: Incoming, state: &Arc<ConnectionState>) -> (Self, EarlyReader) {
        let number = state.begin_request(!incoming.is_end_stream());
        let body = Arc::new(Mutex::new(EarlyBody {
            is_sized: incoming.size_hint().exact().is_some(),
            incoming,
            frames: VecDeque::new(),
            bytes: 0,
            is_asked: false,
            has_ended: false,
        }));
        let reader = EarlyReader { body: Arc::clone(&body), number };
        let source = BodySource::Early(body);
        (RequestBody { source, state: Arc::clone(state), number, waits: false }, reader)
    }

    fn set_waits(&mut self, waits: bool) {
        if self.waits != waits {
            self.waits = waits;
            self.state.record_body_wait(waits);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let (polled, has_ended) = match &mut this.source {
            BodySource::Direct(incoming) => {
                let polled = Pin::new(&mut *incoming).poll_frame(cx);
                (polled, incoming.is_end_stream())
            }
            BodySource::Early(body) => {
                let mut body = body.lock();
                let polled = body.poll_frame(cx);
                (polled, body.is_end_stream())
            }
        };
        this.set_waits(polled.is_pending());
        if matches!(polled, Poll::Ready(None)) || has_ended {
            this.state.end_request_body(this.number);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Direct(incoming) => incoming.is_end_stream(),
            BodySource::Early(body) => body.lock().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Direct(incoming) => incoming.size_hint(),
            BodySource::Early(body) => body.lock().size_hint(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.set_waits(false);
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        f.debug_struct("RequestBody").field("number", &number).finish_non_exhaustive()
    }
}
