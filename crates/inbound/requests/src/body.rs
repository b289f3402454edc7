//! Collects the body of a request, up to a maximum and within a time.
//!
//! A body whose declared length is too large is not read at all; one that turns out to be too large is read no further.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Larger than the maximum.
    TooLarge,
    /// It did not arrive in time.
    TooSlow,
    /// The connection failed before the end.
    Aborted,
}

/// The limits of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Its largest size.
    pub bytes_max: usize,
    /// How long it may take to arrive.
    pub timeout: Duration,
}

pin_project! {
    /// Collects a body. A body in one piece is not copied.
    #[derive(Debug)]
    pub struct BodyReader<B> {
        #[pin]
        body: B,
        first: Bytes,
        joined: BytesMut,
        // Made only if the body has to be waited for.
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<B: Body<Data = Bytes>> BodyReader<B> {
    /// A reader of this body.
    pub fn new(body: B) -> Self {
        BodyReader { body, first: Bytes::new(), joined: BytesMut::new(), timer: None }
    }

    /// Ready with the whole body.
    #[inline]
    pub fn poll(
        self: Pin<&mut Self>,
        BodyLimits { bytes_max, timeout }: BodyLimits,
        context: &mut Context<'_>,
    ) -> Poll<Result<Bytes, BodyError>> {
        let mut this = self.project();
        let read = |first: &Bytes, joined: &BytesMut| first.len().max(joined.len());
        let more = usize::try_from(this.body.size_hint().lower()).unwrap_or(usize::MAX);
        if more.saturating_add(read(this.first, this.joined)) > bytes_max {
            return Poll::Ready(Err(BodyError::TooLarge));
        }
        while !this.body.is_end_stream() {
            let Poll::Ready(frame) = this.body.as_mut().poll_frame(context) else {
                let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
                return timer.as_mut().poll(context).map(|()| Err(BodyError::TooSlow));
            };
            let Some(frame) = frame else { break };
            let Ok(frame) = frame else { return Poll::Ready(Err(BodyError::Aborted)) };
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            let read = read(this.first, this.joined);
            if data.len() > bytes_max.saturating_sub(read) {
                return Poll::Ready(Err(BodyError::TooLarge));
            }
            if read == 0 {
                *this.first = data;
            } else {
                if this.joined.is_empty() {
                    this.joined.extend_from_slice(this.first);
                }
                this.joined.extend_from_slice(&data);
            }
        }
        let (first, joined) = (std::mem::take(this.first), std::mem::take(this.joined));
        Poll::Ready(Ok(if joined.is_empty() { first } else { joined.freeze() }))
    }
}

/// Reads a whole body.
///
/// # Errors
/// When it is larger than the maximum, does not arrive in time, or the connection fails before its end.
pub async fn read_body<B: Body<Data = Bytes>>(
    body: B,
    limits: BodyLimits,
) -> Result<Bytes, BodyError> {
    let mut reader = pin!(BodyReader::new(body));
    poll_fn(|context| reader.as_mut().poll(limits, context)).await
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body::Frame;
    use http_body_util::Full;

    use super::*;

    const fn up_to(bytes_max: usize) -> BodyLimits {
        BodyLimits { bytes_max, timeout: Duration::from_secs(1) }
    }

    /// A body of several pieces without a length.
    struct Pieces(VecDeque<Result<Frame<Bytes>, &'static str>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn pieces<const N: usize>(texts: [&'static str; N]) -> Pieces {
        Pieces(texts.into_iter().map(|text| Ok(Frame::data(text.into()))).collect())
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let bytes = Bytes::from_static(b"{}");
        let read = read_body(Full::new(bytes.clone()), up_to(2)).await.unwrap();
        assert_eq!(read.as_ptr(), bytes.as_ptr());
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_maximum() {
        assert_eq!(read_body(pieces(["ab", "", "c", "de"]), up_to(5)).await.unwrap(), "abcde");
        assert_eq!(read_body(pieces(["ab", "c", "de"]), up_to(4)).await, Err(BodyError::TooLarge));
        assert_eq!(read_body(pieces([]), up_to(0)).await.unwrap(), "");
    }

    #[tokio::test]
    async fn what_comes_after_the_maximum_is_not_read() {
        let mut body = pieces(["abc", "d", "e", "f"]);
        assert_eq!(read_body(Pin::new(&mut body), up_to(3)).await, Err(BodyError::TooLarge));
        assert_eq!(body.0.len(), 2);
    }

    #[tokio::test]
    async fn a_body_whose_declared_length_is_too_large_is_not_read() {
        let body = Full::new(Bytes::from_static(b"abc"));
        assert_eq!(read_body(body, up_to(2)).await, Err(BodyError::TooLarge));
    }

    #[tokio::test]
    async fn trailers_are_ignored_and_errors_are_not() {
        let mut body = pieces(["ab"]);
        body.0.push_back(Ok(Frame::trailers(http::HeaderMap::new())));
        assert_eq!(read_body(Pin::new(&mut body), up_to(9)).await.unwrap(), "ab");
        let mut body = pieces(["ab"]);
        body.0.push_back(Err("gone"));
        assert_eq!(read_body(body, up_to(9)).await, Err(BodyError::Aborted));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_given_up() {
        let silent =
            http_body_util::StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, &str>>());
        assert_eq!(read_body(silent, up_to(9)).await, Err(BodyError::TooSlow));
    }
}
