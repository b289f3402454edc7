//! Collects the body of a request, up to a maximum.
//!
//! A body whose declared length is too large is not read at all; one that turns out to be too large is read no further.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use pin_project_lite::pin_project;

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Larger than the maximum.
    TooLarge,
    /// The connection failed before the end.
    Aborted,
}

pin_project! {
    /// Collects a body. A body in one piece is not copied.
    #[derive(Debug)]
    pub struct BodyReader<B> {
        #[pin]
        body: B,
        first: Bytes,
        joined: BytesMut,
    }
}

impl<B: Body<Data = Bytes>> BodyReader<B> {
    /// A reader of this body.
    pub fn new(body: B) -> Self {
        BodyReader { body, first: Bytes::new(), joined: BytesMut::new() }
    }

    /// Ready with the whole body.
    #[inline]
    pub fn poll(
        self: Pin<&mut Self>,
        bytes_max: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<Bytes, BodyError>> {
        let mut this = self.project();
        let read = |first: &Bytes, joined: &BytesMut| first.len().max(joined.len());
        let more = usize::try_from(this.body.size_hint().lower()).unwrap_or(usize::MAX);
        if more.saturating_add(read(this.first, this.joined)) > bytes_max {
            return Poll::Ready(Err(BodyError::TooLarge));
        }
        while !this.body.is_end_stream()
            && let Some(frame) = ready!(this.body.as_mut().poll_frame(context))
        {
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
/// When it is larger than the maximum, or the connection fails before its end.
pub async fn read_body<B: Body<Data = Bytes>>(
    body: B,
    bytes_max: usize,
) -> Result<Bytes, BodyError> {
    let mut reader = pin!(BodyReader::new(body));
    poll_fn(|context| reader.as_mut().poll(bytes_max, context)).await
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body::Frame;
    use http_body_util::Full;

    use super::*;

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
        let read = read_body(Full::new(bytes.clone()), 2).await.unwrap();
        assert_eq!(read.as_ptr(), bytes.as_ptr());
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_maximum() {
        assert_eq!(read_body(pieces(["ab", "", "c", "de"]), 5).await.unwrap(), "abcde");
        assert_eq!(read_body(pieces(["ab", "c", "de"]), 4).await, Err(BodyError::TooLarge));
        assert_eq!(read_body(pieces([]), 0).await.unwrap(), "");
    }

    #[tokio::test]
    async fn what_comes_after_the_maximum_is_not_read() {
        let mut body = pieces(["abc", "d", "e", "f"]);
        assert_eq!(read_body(Pin::new(&mut body), 3).await, Err(BodyError::TooLarge));
        assert_eq!(body.0.len(), 2);
    }

    #[tokio::test]
    async fn a_body_whose_declared_length_is_too_large_is_not_read() {
        let body = Full::new(Bytes::from_static(b"abc"));
        assert_eq!(read_body(body, 2).await, Err(BodyError::TooLarge));
    }

    #[tokio::test]
    async fn trailers_are_ignored_and_errors_are_not() {
        let mut body = pieces(["ab"]);
        body.0.push_back(Ok(Frame::trailers(http::HeaderMap::new())));
        assert_eq!(read_body(Pin::new(&mut body), 9).await.unwrap(), "ab");
        let mut body = pieces(["ab"]);
        body.0.push_back(Err("gone"));
        assert_eq!(read_body(body, 9).await, Err(BodyError::Aborted));
    }
}
