//! Settings of descriptors, costs, tokens and API keys.

use std::path::PathBuf;
use std::time::Duration;

use http::header::HeaderName;
use tidegate_document::choices;
use tidegate_macros::defaults;

/// One descriptor of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorSettings {
    /// Its entries, in the order in which rules are nested.
    pub entries: Vec<EntrySettings>,
    /// The cost of a request under this descriptor. Default: the route's.
    pub cost: Option<CostSettings>,
}

impl DescriptorSettings {
    /// A descriptor of these entries, with the cost of its route.
    pub fn new(entries: impl IntoIterator<Item = EntrySettings>) -> Self {
        DescriptorSettings { entries: entries.into_iter().collect(), cost: None }
    }
}

/// One entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySettings {
    /// Its key, as in the rules.
    pub key: String,
    /// Where its value comes from.
    pub value: ValueFrom,
    /// What happens if the request has no such value. [`None`]: as [`WhenMissing::SkipDescriptor`], and
    /// `tidegate config check` warns if such requests are not limited at all.
    pub when_missing: Option<WhenMissing>,
}

impl EntrySettings {
    /// An entry; requests without the value do not have the descriptor.
    pub fn new(key: impl Into<String>, value: ValueFrom) -> Self {
        EntrySettings { key: key.into(), value, when_missing: None }
    }
}

/// What happens if a request lacks the value of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WhenMissing {
    /// It does not have the descriptor, which therefore does not limit it.
    #[default]
    SkipDescriptor,
    /// The descriptor does not have the entry.
    SkipEntry,
    /// It has this value.
    Use(String),
    /// It is rejected: with 401 if the value comes from a token or an API key, otherwise with 400.
    Reject,
}

choices! {
    /// What happens to a request with a token or an API key that is not valid.
    #[derive(Default)]
    pub enum InvalidCredential {
        /// It is treated like a request without a credential.
        #[default]
        Ignore = "ignore",
        /// It is rejected with 401, on every route that is not exempt.
        Reject = "reject",
    }
}

/// Where the value of an entry comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueFrom {
    /// Always the same.
    Fixed(String),
    /// The client's address, or with fewer bits its network.
    Address {
        /// Bits of an IPv4 address, at most 32.
        v4_bits: u8,
        /// Bits of an IPv6 address, at most 128. A client can usually choose the last 64.
        v6_bits: u8,
    },
    /// A field of the request. With several values, each counts.
    Header(HeaderName),
    /// A cookie. With several values, each counts.
    Cookie(String),
    /// The template of the route that the path matches.
    PathTemplate,
    /// The segments of the path that match this name of the template.
    PathParameter(String),
    /// The whole path.
    Path,
    /// The method.
    Method,
    /// The requested host.
    Host,
    /// A parameter of the query. With several values, each counts.
    Query(String),
    /// A claim of the caller's verified token; names of nested claims are joined by dots.
    Claim(String),
    /// The plan of the caller's API key.
    Plan,
    /// The name of the caller's API key.
    ApiKeyName,
    /// The route's name.
    Route,
}

/// The cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSettings {
    /// Always the same.
    Fixed(u64),
    /// The number in a field of the request; one if there is none. A request with several values is rejected. Only
    /// for callers that may choose what they pay.
    Header {
        /// The field.
        name: HeaderName,
        /// The minimum. A request that costs nothing passes a limit that is spent.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// The bytes of the body. If the length is not known before, one unit is charged first and the rest when the body
    /// has ended.
    BodyBytes {
        /// The minimum, also for requests without a body.
        min: u64,
    },
    /// One unit first; afterwards the rest of the number in a field of the upstream's response.
    Reported {
        /// The field of the response. The client does not get it.
        name: HeaderName,
        /// The maximum.
        max: u64,
    },
}

impl Default for CostSettings {
    fn default() -> Self {
        CostSettings::Fixed(1)
    }
}

/// Where a token or an API key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresentedIn {
    /// In `Authorization`, after `Bearer`.
    Bearer,
    /// The value of this field.
    Header(HeaderName),
    /// In this cookie.
    Cookie(String),
    /// In this parameter of the query.
    Query(String),
}

/// How tokens are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Where the token is. Default: after `Bearer`.
    pub presented_in: PresentedIn,
    /// The key that verifies it.
    pub key: JwtKey,
    /// The issuer that it must have. Default: any.
    pub issuer: Option<String>,
    /// The audience that it must have. Default: any.
    pub audience: Option<String>,
    /// By how much clocks may differ, in seconds. Default: 60.
    pub leeway_secs: u64,
    /// How many verified tokens are cached. Default: 10,000.
    pub remembered_max: usize,
    /// What happens to a request whose token is not valid. Default: the token is ignored.
    pub when_invalid: InvalidCredential,
}

impl JwtSettings {
    /// Tokens after `Bearer` that this key verifies.
    pub fn new(key: JwtKey) -> Self {
        JwtSettings {
            presented_in: PresentedIn::Bearer,
            key,
            issuer: None,
            audience: None,
            leeway_secs: 60,
            remembered_max: 10_000,
            when_invalid: InvalidCredential::default(),
        }
    }
}

/// The key that verifies tokens.
#[derive(Clone, PartialEq, Eq)]
pub enum JwtKey {
    /// A shared secret, for HS256, HS384 and HS512.
    Secret(Vec<u8>),
    /// A file with a shared secret; spaces around it are ignored. It is read again when it changes.
    SecretFile(PathBuf),
    /// A file with a JSON Web Key Set (RFC 7517). It is read again when it changes.
    KeySet(PathBuf),
    /// A JSON Web Key Set at a URL.
    KeySetUrl(KeySetUrl),
}

/// A JSON Web Key Set at a URL. [`Gateway::maintain`](crate::Gateway::maintain) fetches it at the start, again after
/// `cache`, and earlier for a token with an unknown key id. If that fails, the last good set stays in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySetUrl {
    /// The URL, with `https` or `http`.
    pub url: String,
    /// How long a set is used before it is fetched again. Default: 5 min.
    pub cache: Duration,
    /// A PEM file with the certificate authorities to trust. Default: the system's.
    pub authority: Option<PathBuf>,
}

impl KeySetUrl {
    /// The set at this URL.
    pub fn new(url: impl Into<String>) -> Self {
        KeySetUrl { url: url.into(), cache: Duration::from_secs(5 * 60), authority: None }
    }
}

impl std::fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JwtKey::Secret(_) => f.write_str("Secret(***)"),
            JwtKey::SecretFile(path) => f.debug_tuple("SecretFile").field(path).finish(),
            JwtKey::KeySet(path) => f.debug_tuple("KeySet").field(path).finish(),
            JwtKey::KeySetUrl(url) => f.debug_tuple("KeySetUrl").field(url).finish(),
        }
    }
}

defaults! {
    /// The API keys, by the SHA-256 of each in hexadecimal.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ApiKeySettings {
        /// Where the key is. Default: in `X-API-Key`.
        pub presented_in: PresentedIn = PresentedIn::Header(HeaderName::from_static("x-api-key")),
        /// The keys: hash, name and plan.
        pub keys: Vec<(String, String, String)>,
        /// A file with more keys: hash, name and plan in each line, separated by spaces; `#` begins a comment. It is
        /// read again when it changes.
        pub file: Option<PathBuf>,
        /// What happens to a request whose key is unknown. Default: the key is ignored.
        pub when_unknown: InvalidCredential,
    }
}
