//! Ids for requests that have none, so that the log of the gateway and that of its upstreams can be joined.

use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use http::header::HeaderValue;

use super::access_log::X_REQUEST_ID;

/// Makes ids of the form of a random UUID. Two keyed hashes of a counter are as good as random here, and need no system
/// call and no lock.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    keys: [RandomState; 2],
    count: AtomicU64,
}

impl RequestIds {
    /// Adds an id, unless the request has one.
    #[inline]
    pub(super) fn add_missing(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(X_REQUEST_ID) {
            // Fails only at the maximum number of fields.
            let _ = headers.try_insert(X_REQUEST_ID, self.next());
        }
    }

    fn next(&self) -> HeaderValue {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(count));
        // The version 4 and the variant of RFC 9562.
        let high = high & 0xffff_ffff_ffff_0fff | 0x4000;
        let low = low & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000;
        let mut text = String::with_capacity(36);
        let _ = write!(
            text,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff,
        );
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_form_of_a_uuid_and_differ() {
        let ids = RequestIds::default();
        let (first, second) = (ids.next(), ids.next());
        assert_ne!(first, second);
        let text = first.to_str().unwrap();
        let parts: Vec<usize> = text.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{text}");
        assert_eq!(text.as_bytes()[14], b'4', "{text}");
        assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
    }

    #[test]
    fn an_id_of_the_client_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_static("mine"));
        RequestIds::default().add_missing(&mut headers);
        assert_eq!(headers[X_REQUEST_ID], "mine");
        headers.clear();
        RequestIds::default().add_missing(&mut headers);
        assert_eq!(headers[X_REQUEST_ID].len(), 36);
    }
}
