//! gRPC framing of a request: a prefix of five bytes, then one message.

use thiserror::Error;

/// The length of the prefix: a flag, then the message's length in four bytes.
pub(crate) const PREFIX_LEN: usize = 5;

/// Why the body of a call is not one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum FrameError {
    #[error("the call has no message")]
    Missing,
    #[error("the call has more than one message")]
    Extra,
    #[error("the message is truncated")]
    Truncated,
    #[error("the message has an invalid flag")]
    Flag,
    #[error("compressed messages are not supported")]
    Compressed,
    #[error("the message is longer than {max} bytes")]
    TooLong { max: usize },
}

/// The compression of messages that have the compression flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// None.
    Identity,
    /// Any that is not supported.
    Other,
}

/// The one message of a whole body.
#[inline]
pub(crate) fn message(
    body: &[u8],
    compression: Compression,
    max: usize,
) -> Result<&[u8], FrameError> {
    if body.is_empty() {
        return Err(FrameError::Missing);
    }
    let Some((&[flag, a, b, c, d], rest)) = body.split_first_chunk::<PREFIX_LEN>() else {
        return Err(FrameError::Truncated);
    };
    match flag {
        0 => {}
        1 if compression == Compression::Identity => {}
        1 => return Err(FrameError::Compressed),
        _ => return Err(FrameError::Flag),
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > max {
        return Err(FrameError::TooLong { max });
    }
    match rest.len() {
        have if have < length => Err(FrameError::Truncated),
        have if have > length => Err(FrameError::Extra),
        _ => Ok(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4;

    fn read(body: &[u8]) -> Result<&[u8], FrameError> {
        message(body, Compression::Other, MAX)
    }

    #[test]
    fn one_whole_message_is_read() {
        assert_eq!(read(&[0, 0, 0, 0, 2, 8, 9]), Ok(&[8, 9][..]));
        assert_eq!(read(&[0, 0, 0, 0, 0]), Ok(&[][..]));
    }

    #[test]
    fn everything_else_has_its_error() {
        assert_eq!(read(&[]), Err(FrameError::Missing));
        assert_eq!(read(&[0, 0, 0]), Err(FrameError::Truncated));
        assert_eq!(read(&[0, 0, 0, 0, 2, 8]), Err(FrameError::Truncated));
        assert_eq!(read(&[0, 0, 0, 0, 1, 8, 9]), Err(FrameError::Extra));
        assert_eq!(read(&[2, 0, 0, 0, 0]), Err(FrameError::Flag));
        assert_eq!(read(&[1, 0, 0, 0, 0]), Err(FrameError::Compressed));
        assert_eq!(read(&[0, 0, 0, 0, 5]), Err(FrameError::TooLong { max: MAX }));
        assert_eq!(read(&[0, 255, 255, 255, 255]), Err(FrameError::TooLong { max: MAX }));
    }

    #[test]
    fn a_message_flagged_as_compressed_with_identity_is_read() {
        assert_eq!(message(&[1, 0, 0, 0, 1, 8], Compression::Identity, MAX), Ok(&[8][..]));
    }
}
