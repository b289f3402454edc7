//! The dashboard: files for a browser, part of the program.
//!
//! They hold no data. Nothing is loaded from elsewhere, so that they work offline and under a strict policy. Each is
//! compressed once, when the first browser asks for it.

use std::io::Write;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, HeaderMap,
    HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use http::{Response, StatusCode};

use super::answer::{self, Answer, Problem};
use super::body::DebugBody;

/// The file of the address `/ui/`.
const INDEX: &str = "index.html";
/// Only own scripts and styles, no inline ones, no text as HTML, no frames, no forms.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// A file of the dashboard.
#[derive(Debug)]
struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

impl Asset {
    /// Its bytes with gzip.
    fn compress(&self) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let _ = encoder.write_all(self.bytes);
        encoder.finish().unwrap_or_default().into()
    }
}

macro_rules! assets {
    ($($name:literal $content_type:ident;)+) => {
        const ASSETS: &[Asset] = &[$(Asset {
            name: $name,
            content_type: $content_type,
            bytes: include_bytes!(concat!("../ui/", $name)),
        }),+];
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

assets! {
    "index.html" HTML;
    "style.css" CSS;
    "uplot-1.6.32.min.css" CSS;
    "uplot-1.6.32.min.js" JS;
    "icon.svg" SVG;
    "app.js" JS;
    "dom.js" JS;
    "api.js" JS;
    "chart.js" JS;
    "now.js" JS;
    "limits.js" JS;
    "callers.js" JS;
    "findings.js" JS;
    "gateway.js" JS;
    "switches.js" JS;
    "changes.js" JS;
    "tail.js" JS;
    "try.js" JS;
}

/// The bytes of all files with gzip, in their order.
fn compressed() -> &'static [Bytes] {
    static COMPRESSED: OnceLock<Vec<Bytes>> = OnceLock::new();
    COMPRESSED.get_or_init(|| ASSETS.iter().map(Asset::compress).collect())
}

/// The bytes of all files, as browsers get them.
pub(super) fn files() -> impl Iterator<Item = Bytes> {
    compressed().iter().cloned()
}

/// Whether a client takes gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let is_gzip = |coding: &str| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && !matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    };
    accepted.is_some_and(|accepted| accepted.split(',').any(is_gzip))
}

/// The index.
pub(super) fn index(headers: &HeaderMap) -> Result<Answer, Problem> {
    file(INDEX, headers)
}

/// A file by its name.
pub(super) fn file(name: &str, headers: &HeaderMap) -> Result<Answer, Problem> {
    let found = ASSETS.iter().zip(compressed()).find(|(asset, _)| asset.name == name);
    let none = || Problem::new(StatusCode::NOT_FOUND, "the dashboard has no such file");
    let (asset, compressed) = found.ok_or_else(none)?;
    let tag = format!("\"{:016x}\"", fingerprint(asset.bytes));
    let known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let zipped = takes_gzip(headers);
    let body = match (known, zipped) {
        (true, _) => Bytes::new(),
        (false, true) => compressed.clone(),
        (false, false) => Bytes::from_static(asset.bytes),
    };
    let mut answer = answer::typed(HeaderValue::from_static(asset.content_type), body);
    if known {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let fields = answer.headers_mut();
    if zipped && !known {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
    fields.insert(CACHE_CONTROL, REVALIDATE);
    fields.insert(CONTENT_SECURITY_POLICY, POLICY);
    fields.insert(OPENER_POLICY, SAME_ORIGIN);
    fields.insert(RESOURCE_POLICY, SAME_ORIGIN);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        fields.insert(ETAG, tag);
    }
    Ok(answer)
}

/// Sends a browser to the dashboard.
pub(super) fn redirect() -> Answer {
    let mut answer = Response::new(DebugBody::from(""));
    *answer.status_mut() = StatusCode::SEE_OTHER;
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui/"));
    answer
}

/// FNV-1a: equal for equal bytes in every build.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const UPLOT_JS: u64 = 0xe36e_4ba6_4a14_0428;
    const UPLOT_CSS: u64 = 0xf22a_dd10_2039_a00b;

    #[test]
    fn the_chart_library_is_the_released_one() {
        // SHA-256 needs a crate that this one does not use; a change of any byte changes this too.
        let print = |name: &str| {
            ASSETS.iter().find(|asset| asset.name == name).map(|asset| fingerprint(asset.bytes))
        };
        assert_eq!(print("uplot-1.6.32.min.js"), Some(UPLOT_JS));
        assert_eq!(print("uplot-1.6.32.min.css"), Some(UPLOT_CSS));
    }

    #[test]
    fn every_file_in_the_folder_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ui");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let listed = ASSETS.iter().any(|asset| asset.name == name);
            assert!(listed || name == "uplot-LICENSE", "{name} is in no answer");
        }
    }

    #[test]
    fn compressed_files_are_small_and_the_same() {
        const PAGE_BYTES_MAX: usize = 50_000;
        let mut bytes = 0;
        for (asset, compressed) in ASSETS.iter().zip(files()) {
            let mut read = Vec::new();
            flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut read).unwrap();
            assert_eq!(read, asset.bytes, "{}", asset.name);
            bytes += compressed.len();
        }
        assert!(bytes <= PAGE_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn files_are_compressed_for_clients_that_take_it() {
        let taken = |accepted: &'static str| {
            let headers = [(ACCEPT_ENCODING, HeaderValue::from_static(accepted))];
            takes_gzip(&headers.into_iter().collect())
        };
        assert!(taken("gzip") && taken("deflate, gzip;q=0.5, br"));
        assert!(!taken("br") && !taken("gzip;q=0, br") && !takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn no_file_loads_anything_from_elsewhere() {
        for asset in ASSETS.iter().filter(|asset| !asset.name.starts_with("uplot")) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            for part in ["https://", "innerHTML", "eval(", "style=\"", "onclick="] {
                assert!(!text.contains(part), "{} has {part}", asset.name);
            }
            let links = text.matches("http://").count();
            assert_eq!(links, text.matches("http://www.w3.org/2000/svg").count(), "{}", asset.name);
        }
    }
}
