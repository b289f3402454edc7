//! The kinds of mapping that a gateway's document is made of.

use Place::{
    Answers, ApiKey, ApiKeys, Caller, Categories, CategoryRule, Cost, Delay, Descriptor, Ejection,
    Entry, Head, HeaderEdit, HeaderMatch, Health, Jwt, Pool, Provenance, Queue, Root, Route,
    Timeouts, Tls, Upstream,
};

/// A kind of mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Root,
    Route,
    HeaderEdit,
    Descriptor,
    Entry,
    Cost,
    Answers,
    Timeouts,
    Upstream,
    Tls,
    Pool,
    Health,
    Ejection,
    Provenance,
    Head,
    Jwt,
    ApiKeys,
    ApiKey,
    Delay,
    Queue,
    Categories,
    CategoryRule,
    HeaderMatch,
    Caller,
}

impl Place {
    /// All of them, each after those that lead to it.
    pub(super) const ALL: [Place; 24] = [
        Root,
        Route,
        HeaderEdit,
        Descriptor,
        Entry,
        Cost,
        Answers,
        Timeouts,
        Upstream,
        Tls,
        Pool,
        Health,
        Ejection,
        Provenance,
        Head,
        Jwt,
        ApiKeys,
        ApiKey,
        Delay,
        Queue,
        Categories,
        CategoryRule,
        HeaderMatch,
        Caller,
    ];

    /// The name in the schema.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Root => "document",
            Route => "route",
            HeaderEdit => "header_edit",
            Descriptor => "descriptor",
            Entry => "entry",
            Cost => "cost",
            Answers => "answers",
            Timeouts => "timeouts",
            Upstream => "upstream",
            Tls => "tls",
            Pool => "pool",
            Health => "health",
            Ejection => "ejection",
            Provenance => "provenance",
            Head => "head",
            Jwt => "jwt",
            ApiKeys => "api_keys",
            ApiKey => "api_key",
            Delay => "delay",
            Queue => "queue",
            Categories => "categories",
            CategoryRule => "category_rule",
            HeaderMatch => "header_match",
            Caller => "caller",
        }
    }

    /// What it is, in words.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Root => "the document",
            Route => "a route",
            HeaderEdit => "a change to header fields",
            Descriptor => "a descriptor",
            Entry => "an entry of a descriptor",
            Cost => "a cost",
            Answers => "the answers of a route",
            Timeouts => "timeouts",
            Upstream => "a group of upstreams",
            Tls => "the encryption towards upstreams",
            Pool => "the kept connections",
            Health => "a health check",
            Ejection => "the ejection of failing servers",
            Provenance => "what upstreams are told of clients",
            Head => "what requests may be like",
            Jwt => "how tokens are verified",
            ApiKeys => "API keys",
            ApiKey => "an API key",
            Delay => "how requests wait",
            Queue => "how requests are kept",
            Categories => "who is shed first",
            CategoryRule => "a rule for a category",
            HeaderMatch => "a field and its value",
            Caller => "who is refused together",
        }
    }
}
