//! `RetryInfo` of gRPC: a delay inside `grpc-status-details-bin`.
//!
//! The field is Base64 of a `google.rpc.Status` message whose details may hold a `google.rpc.RetryInfo`. Four nested
//! messages are walked by hand, because the generated types of all error details would be the larger dependency.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::HeaderMap;
use tidegate_algorithms::Nanos;

use crate::text;

/// Bytes of the field that are read; servers limit all header fields to 8 or 16 KiB.
const FIELD_BYTES_MAX: usize = 8_192;
const RETRY_INFO_TYPE: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";

/// The delay that the details of a gRPC status ask for.
pub(crate) fn read_delay(headers: &HeaderMap) -> Option<Nanos> {
    let field = text(headers, "grpc-status-details-bin")?;
    if field.len() > FIELD_BYTES_MAX {
        return None;
    }
    let status = STANDARD_NO_PAD.decode(field.trim_end_matches('=')).ok()?;
    // Status.details is field 3, of type Any: the name of a type (1) and its message (2).
    Fields(&status).messages(3).find_map(|any| {
        let is_retry_info = Fields(any).messages(1).next() == Some(RETRY_INFO_TYPE);
        let info = Fields(any).messages(2).next().filter(|_| is_retry_info)?;
        // RetryInfo.retry_delay is field 1, a Duration: seconds (1) and nanoseconds (2).
        let delay = Fields(info).messages(1).next()?;
        let seconds = Fields(delay).numbers(1).next().unwrap_or(0);
        let nanos = Fields(delay).numbers(2).next().unwrap_or(0);
        // A negative number has its highest bit set.
        let valid = i64::try_from(seconds).is_ok() && nanos < 1_000_000_000;
        valid.then(|| Nanos::new(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)))
    })
}

/// The fields of a protobuf message, up to its end or its first malformed byte.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

enum FieldValue<'a> {
    Number(u64),
    Message(&'a [u8]),
    Fixed,
}

impl<'a> Fields<'a> {
    fn messages(self, wanted: u64) -> impl Iterator<Item = &'a [u8]> {
        self.filter_map(move |(number, value)| match value {
            FieldValue::Message(bytes) if number == wanted => Some(bytes),
            _ => None,
        })
    }

    fn numbers(self, wanted: u64) -> impl Iterator<Item = u64> {
        self.filter_map(move |(number, value)| match value {
            FieldValue::Number(value) if number == wanted => Some(value),
            _ => None,
        })
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.0.split_off_first()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, FieldValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => FieldValue::Number(self.varint()?),
            1 => self.0.split_off(..8).map(|_| FieldValue::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                FieldValue::Message(self.0.split_off(..length)?)
            }
            5 => self.0.split_off(..4).map(|_| FieldValue::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn status(kind: &[u8], delay: &[u8]) -> HeaderMap {
        let any = [message(1, kind), message(2, &message(1, delay))].concat();
        let status = [&[8, 8][..], &message(2, b"no"), &message(3, &any)].concat();
        with_details(&STANDARD_NO_PAD.encode(status))
    }

    fn with_details(value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).unwrap();
        HeaderMap::from_iter([("grpc-status-details-bin".parse().unwrap(), value)])
    }

    #[test]
    fn the_delay_of_a_retry_info_is_read() {
        let headers = status(RETRY_INFO_TYPE, &[8, 2, 16, 0x80, 0xca, 0xb5, 0xee, 0x01]);
        assert_eq!(read_delay(&headers), Some(Nanos::from_millis(2_500)));
    }

    #[test]
    fn other_details_and_negative_delays_are_ignored() {
        assert_eq!(read_delay(&status(b"type.googleapis.com/other", &[8, 2])), None);
        let negative = [8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read_delay(&status(RETRY_INFO_TYPE, &negative)), None);
        assert_eq!(read_delay(&with_details("!")), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read_delay(&with_details(&STANDARD_NO_PAD.encode(bytes)));
        }
    }
}
