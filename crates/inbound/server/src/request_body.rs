//! The body of a request, which notes that the service waits for the client.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connection_state::ConnectionState;

/// The body of a request to a service that [`Server::open`](crate::Server::open) serves.
pub struct RequestBody {
    incoming: Incoming,
    state: Arc<ConnectionState>,
    /// The number of the request on its connection.
    number: u64,
    /// Whether the last poll found nothing.
    waits: bool,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, state: &Arc<ConnectionState>) -> Self {
        let number = state.begin_request(!incoming.is_end_stream());
        RequestBody { incoming, state: Arc::clone(state), number, waits: false }
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
        let polled = Pin::new(&mut this.incoming).poll_frame(cx);
        this.set_waits(polled.is_pending());
        if matches!(polled, Poll::Ready(None)) || this.incoming.is_end_stream() {
            this.state.end_request_body(this.number);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.set_waits(false);
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}
