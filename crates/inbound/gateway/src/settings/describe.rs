//! Settings of what a request is limited by: descriptors, costs, tokens and keys.

use std::path::PathBuf;

use http::header::HeaderName;

/// One descriptor of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorSettings {
    /// Its entries, in the order in which rules are nested.
    pub entries: Vec<EntrySettings>,
    /// What a request costs of the limits that it meets. Default: what the route says.
    pub cost: Option<CostSettings>,
}

impl DescriptorSettings {
    /// A descriptor of these entries that costs what its route says.
    pub fn new(entries: impl IntoIterator<Item = EntrySettings>) -> Self {
        DescriptorSettings { entries: entries.into_iter().collect(), cost: None }
    }
}

/// One entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySettings {
    /// Its key, as rules have it.
    pub key: String,
    /// Where its value is from.
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

/// What happens to a request with a token or an API key that is not valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidCredential {
    /// It is treated like a request without a credential.
    #[default]
    Ignore,
    /// It is rejected with 401, on every route that is not exempt.
    Reject,
}

/// Where the value of an entry is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueFrom {
    /// Always the same.
    Fixed(String),
    /// The client's address; with shorter prefixes, the network that it is in.
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
    /// What stands in a template for this name.
    PathParameter(String),
    /// The whole path.
    Path,
    /// The method.
    Method,
    /// The host that is asked for.
    Host,
    /// A parameter of the query. With several values, each counts.
    Query(String),
    /// A claim of the caller's verified token; names of nested claims are joined by dots.
    Claim(String),
    /// The plan of the caller's API key.
    Plan,
    /// What the caller's API key is called in its table.
    ApiKeyName,
    /// The route's name.
    Route,
}

/// What a request costs.
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

/// Where a secret is presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresentedIn {
    /// In `Authorization`, after `Bearer`.
    Bearer,
    /// In this field, alone.
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
    /// What verifies it.
    pub key: JwtKey,
    /// Who must have issued it. Default: anybody with the key.
    pub issuer: Option<String>,
    /// For whom it must be. Default: anybody.
    pub audience: Option<String>,
    /// How far clocks may differ, in seconds. Default: 60.
    pub leeway_secs: u64,
    /// How many verified tokens are remembered. Default: 10,000.
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

/// What verifies tokens.
#[derive(Clone, PartialEq, Eq)]
pub enum JwtKey {
    /// A secret that both sides know, for HS256, HS384 and HS512.
    Secret(Vec<u8>),
    /// A file with such a secret, without the blanks around it, read again when it changes.
    SecretFile(PathBuf),
    /// A file with a set of keys (RFC 7517), read again when it changes.
    KeySet(PathBuf),
}

impl std::fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JwtKey::Secret(_) => f.write_str("Secret(***)"),
            JwtKey::SecretFile(path) => f.debug_tuple("SecretFile").field(path).finish(),
            JwtKey::KeySet(path) => f.debug_tuple("KeySet").field(path).finish(),
        }
    }
}

/// Which API keys there are.
///
/// Keys are never kept: a table has the SHA-256 of each, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeySettings {
    /// Where the key is. Default: in `X-API-Key`.
    pub presented_in: PresentedIn,
    /// The keys: the hash, what the key is called, its plan.
    pub keys: Vec<(String, String, String)>,
    /// A file with more of them, read again when it changes. Each line has a hash, a name and a
    /// plan, separated by spaces; `#` begins a remark.
    pub file: Option<PathBuf>,
    /// What happens to a request whose key is unknown. Default: the key is ignored.
    pub when_unknown: InvalidCredential,
}

impl Default for ApiKeySettings {
    fn default() -> Self {
        let name = HeaderName::from_static("x-api-key");
        ApiKeySettings {
            presented_in: PresentedIn::Header(name),
            keys: Vec::new(),
            file: None,
            when_unknown: InvalidCredential::default(),
        }
    }
}
