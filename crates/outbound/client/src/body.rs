//! A request body that can be sent again.
//!
//! The body streams as it comes. Its first [`REPLAY_BYTES_MAX`] bytes are kept, so that a call can be repeated if the
//! whole body was that small, or if the failed attempt did not get beyond it. Frames are shared, not copied.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

/// Bytes kept of a body. Larger ones are sent once.
pub const REPLAY_BYTES_MAX: usize = 64 * 1024;

/// The body of one attempt. The next attempt begins at the start again.
#[derive(Debug)]
pub struct ReplayBody<B> {
    shared: Arc<Mutex<SharedBody<B>>>,
    /// Kept frames that this attempt has sent.
    position: usize,
}

#[derive(Debug)]
struct SharedBody<B> {
    inner: B,
    /// What the body said of its size before its first frame.
    size: SizeHint,
    frames: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    bytes: usize,
    has_ended: bool,
    /// Frames were passed on that are not kept.
    is_beyond_replay: bool,
}

impl<B: Body<Data = Bytes>> ReplayBody<B> {
    pub(crate) fn new(inner: B) -> Self {
        let shared = SharedBody {
            size: inner.size_hint(),
            has_ended: inner.is_end_stream(),
            inner,
            frames: Vec::new(),
            trailers: None,
            bytes: 0,
            is_beyond_replay: false,
        };
        ReplayBody { shared: Arc::new(Mutex::new(shared)), position: 0 }
    }

    /// The body of another attempt, if all of it is still there. Attempts must not overlap.
    pub(crate) fn replay(&self) -> Option<Self> {
        let is_whole = !self.shared.lock().is_beyond_replay;
        is_whole.then(|| ReplayBody { shared: Arc::clone(&self.shared), position: 0 })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ReplayBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let mut shared = this.shared.lock();
        if let Some(frame) = shared.frames.get(this.position) {
            this.position += 1;
            return Poll::Ready(Some(Ok(Frame::data(frame.clone()))));
        }
        if shared.has_ended {
            let trailers = shared.trailers.clone().filter(|_| this.position == shared.frames.len());
            this.position += 1;
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let frame = match ready!(Pin::new(&mut shared.inner).poll_frame(context)) {
            None => {
                shared.has_ended = true;
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                // The source is broken: no later attempt can have all of it.
                shared.is_beyond_replay = true;
                return Poll::Ready(Some(Err(error)));
            }
            Some(Ok(frame)) => frame,
        };
        this.position += shared.keep(&frame);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        let shared = self.shared.lock();
        shared.has_ended && shared.trailers.is_none() && self.position >= shared.frames.len()
    }

    fn size_hint(&self) -> SizeHint {
        if self.position == 0 { self.shared.lock().size } else { SizeHint::default() }
    }
}

impl<B> SharedBody<B> {
    /// Keeps a frame for later attempts while there is room. Returns how many frames it kept.
    fn keep(&mut self, frame: &Frame<Bytes>) -> usize {
        if let Some(trailers) = frame.trailers_ref() {
            self.trailers = Some(trailers.clone());
            self.has_ended = true;
            return 1;
        }
        let Some(data) = frame.data_ref() else { return 0 };
        self.bytes = self.bytes.saturating_add(data.len());
        if self.bytes > REPLAY_BYTES_MAX || self.is_beyond_replay {
            self.is_beyond_replay = true;
            self.frames = Vec::new();
            return 0;
        }
        self.frames.push(data.clone());
        1
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    async fn collect<B: Body<Data = Bytes> + Unpin>(body: ReplayBody<B>) -> Bytes
    where
        B::Error: std::fmt::Debug,
    {
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_small_body_is_sent_again_from_its_start() {
        let body = ReplayBody::new(Full::new(Bytes::from_static(b"order")));
        assert_eq!(body.size_hint().exact(), Some(5));
        let again = body.replay().unwrap();
        assert_eq!(collect(body).await, "order");
        assert_eq!(again.size_hint().exact(), Some(5));
        assert_eq!(collect(again).await, "order");
    }

    #[tokio::test]
    async fn a_body_that_was_read_in_part_goes_on_after_its_kept_frames() {
        let frames =
            ["a", "b", "c"].map(|text| Ok::<_, std::io::Error>(Frame::data(Bytes::from(text))));
        let stream = StreamBody::new(futures_of(frames));
        let mut body = ReplayBody::new(stream);
        let again = body.replay().unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        drop(body);
        assert_eq!(collect(again).await, "abc");
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_sent_once() {
        for (size, is_repeatable) in [(REPLAY_BYTES_MAX, true), (REPLAY_BYTES_MAX + 1, false)] {
            let body = ReplayBody::new(Full::new(Bytes::from(vec![0; size])));
            let first = body.replay().unwrap();
            assert_eq!(collect(first).await.len(), size);
            assert_eq!(body.replay().is_some(), is_repeatable, "{size}");
        }
    }

    /// A stream of ready items, without a dependency for it.
    fn futures_of<T: Unpin, const N: usize>(
        items: [T; N],
    ) -> impl tokio_stream::Stream<Item = T> + Unpin {
        tokio_stream::iter(items)
    }
}
