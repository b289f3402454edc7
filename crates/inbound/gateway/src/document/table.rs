//! Every key of the gateway's document, once: its type, its default, its meaning.
//!
//! Reader, schema and reference page come from these declarations. Defaults are written as in the document; a test
//! compares them with those of the settings.

use std::time::Duration;

use tidegate_document::{HeaderName, LocatedValue, OrOff, ScalarOr, Size, Text, mapping};
use tidegate_engine::RefusalStatus;

use super::kinds::{
    CategoryWord, CostWord, FieldValue, FieldsOn, FieldsWord, MethodName, MissingWord,
    NetworkRange, SecretSource, ValueSource,
};
use crate::settings::{
    AddressFrom, EscapedSlashes, HostHeader, InvalidCredential, UpstreamProtocol,
};

/// Larger counts are mistakes.
const MAX: u64 = 1_000_000_000_000;

mapping! {
    /// the document
    pub(super) DocumentKeys "document" {
        /// The domain whose rules limit requests.
        domain: Option<Text> = "gateway",
        /// Where requests go. The first route that matches is used.
        routes: Vec<RouteKeys> = required,
        /// The servers behind the gateway, in named groups.
        upstreams: Vec<UpstreamKeys> = required,
        /// Networks of proxies in front of the gateway. Forwarding headers are trusted only from them.
        trusted_hops: Vec<NetworkRange>,
        /// The header in which a trusted proxy names the client; `peer` ignores both and uses the connection's address.
        address_from: Option<AddressFrom> = "x_forwarded_for",
        /// What upstreams learn about the client.
        provenance: Option<ProvenanceKeys>,
        /// Limits for request heads and bodies.
        head: Option<HeadKeys>,
        /// How tokens are verified. Without it, claims are not read.
        jwt: Option<JwtKeys>,
        /// The API keys. Without it, no caller has a plan.
        api_keys: Option<ApiKeysKeys>,
        /// The rate limit headers of answers; see docs/http-answers.md.
        rate_limit_fields: Option<Vec<FieldsWord>> = "[x_retry_after, draft_11]",
        /// Which answers have these headers.
        rate_limit_fields_on: Option<FieldsOn> = "always",
        /// How requests wait under limits with `when_over: delay`, and for their turn in leaky buckets.
        delay: Option<DelayKeys>,
        /// How requests are stored under limits with `when_over: queue`.
        queue: Option<QueueKeys>,
        /// Which requests are shed first under overload.
        categories: Option<CategoriesKeys>,
    }
}

mapping! {
    /// a route
    pub(super) RouteKeys "route" {
        /// Its name in logs and metrics.
        name: Option<Text> = required,
        /// Hosts: a name, or `*.` and a name for all its subdomains. Without it: all hosts.
        hosts: Vec<Text>,
        /// A path; matches itself and everything below it.
        path: Option<Text> = "/",
        /// Matches paths by a template instead, such as `/users/{id}/orders`.
        template: Option<Text>,
        /// Methods. Without it: all methods.
        methods: Vec<MethodName>,
        /// The name of the group of upstreams that serves it.
        upstreams: Option<Text> = required,
        /// Whether `path` is removed from the path that upstreams see.
        strip_prefix: Option<bool> = "false",
        /// What replaces `path` in the path that upstreams see.
        replace_prefix: Option<Text>,
        /// Whose host name upstreams see: the client's or their own.
        host_header: Option<HostHeader> = "client",
        /// Changes to request headers, in order.
        request_headers: Vec<HeaderEditKeys>,
        /// Changes to response headers, in order.
        response_headers: Vec<HeaderEditKeys>,
        /// More path templates for descriptors, after `template`. The first that matches is used.
        templates: Vec<Text>,
        /// The descriptors of its requests, which rules limit.
        descriptors: Vec<DescriptorKeys>,
        /// The cost of a request, unless its descriptor has one.
        cost: Option<ScalarOr<u64, CostKeys>> = "1",
        /// The bodies of refusals.
        answers: Option<AnswersKeys>,
        /// Timeouts of this route; those of its upstreams apply to what is not set.
        timeouts: Option<TimeoutsKeys>,
        /// Networks whose clients may use the route, such as `10.0.0.0/8`; others get 403. Without it: all networks.
        allow: Vec<NetworkRange>,
        /// Networks whose clients get 403, even if `allow` has them.
        deny: Vec<NetworkRange>,
        /// How paths with an escaped slash are treated. Without it: as `head` says.
        escaped_slashes: Option<EscapedSlashes>,
        /// Whether its requests are never limited, shed or counted, such as health checks.
        exempt: Option<bool> = "false",
    }
}

mapping! {
    /// a change to header fields
    pub(super) HeaderEditKeys "header_edit" {
        /// Sets the field to this value, replacing others.
        set: Option<HeaderName>,
        /// Adds this value to the field.
        add: Option<HeaderName>,
        /// Removes the field.
        remove: Option<HeaderName>,
        /// The value, for `set` and `add`.
        value: Option<FieldValue>,
    }
}

mapping! {
    /// a descriptor
    pub(super) DescriptorKeys "descriptor" {
        /// Its entries, in the order in which rules are nested.
        entries: Vec<EntryKeys> = required,
        /// The cost of a request under this descriptor. Without it: the route's.
        cost: Option<ScalarOr<u64, CostKeys>>,
    }
}

mapping! {
    /// an entry of a descriptor
    pub(super) EntryKeys "entry" {
        /// The key, as in the rules.
        key: Option<Text> = required,
        /// Where the value comes from.
        from: Option<ValueSource> = "fixed",
        /// The value, for `from: fixed`.
        value: Option<Text>,
        /// The name of the header, cookie, parameter or claim.
        name: Option<LocatedValue<Text>>,
        /// How many bits of an IPv4 address count, for `from: address`.
        v4_bits: Option<u64> = "32" in 0..=32,
        /// How many bits of an IPv6 address count; a client can usually choose the last 64.
        v6_bits: Option<u64> = "64" in 0..=128,
        /// What happens when the request has no value. `skip` (also `skip_descriptor`) drops the descriptor, so that it
        /// does not limit the request; `skip_entry` drops only the entry; `default` uses the value of `default`;
        /// `reject` answers with 401 if the value comes from a token or an API key, otherwise with 400.
        when_missing: Option<MissingWord> = "skip",
        /// The value to use when the request has none.
        default: Option<Text>,
    }
}

mapping! {
    /// a cost
    pub(super) CostKeys "cost" {
        /// A request header, the bytes of the request body, or a response header.
        from: Option<CostWord> = required,
        /// The header, for `header` and `reported`.
        name: Option<HeaderName>,
        /// The lowest cost, for `header` and `body_bytes`. With 0, a request can state that it costs nothing and pass a
        /// limit that is spent.
        min: Option<u64> = "1" in 0..=MAX,
        /// The highest cost that is accepted, for `header` and `reported`.
        max: Option<u64> = optional in 1..=MAX,
    }
}

mapping! {
    /// the answers of a route
    pub(super) AnswersKeys "answers" {
        /// The body in JSON, with `{status}`, `{code}`, `{title}`, `{detail}` and `{quota}`.
        json: Option<Text>,
        /// The body for clients that prefer HTML.
        html: Option<Text>,
        /// The HTTP status of refusals by limits without a `refusal_status`. Without it, 429.
        refusal_status: Option<RefusalStatus>,
    }
}

mapping! {
    /// timeouts
    pub(super) TimeoutsKeys "timeouts" {
        /// For connecting, including TLS.
        connect: Option<Duration> = "2s",
        /// From the last byte of the request to the head of the answer.
        first_byte: Option<Duration> = "60s",
        /// Between two parts of an answer, and in a tunnel.
        idle: Option<Duration> = "60s",
        /// For the whole request and its answer.
        total: Option<OrOff<Duration>> = "off",
    }
}

mapping! {
    /// a group of upstreams
    pub(super) UpstreamKeys "upstream" {
        /// The name that routes use.
        name: Option<Text> = required,
        /// The servers: `http://HOST:PORT` or `https://HOST:PORT`.
        hosts: Vec<Text> = required,
        /// The protocol; `auto` is HTTP/1.1, or with `https` whatever both sides negotiate.
        protocol: Option<UpstreamProtocol> = "auto",
        /// Certificates for servers with `https`.
        tls: Option<TlsKeys>,
        /// Timeouts.
        timeouts: Option<TimeoutsKeys>,
        /// How many connections are kept open.
        pool: Option<PoolKeys>,
        /// Active health checks. Without it: none.
        health: Option<HealthKeys>,
        /// When a failing server gets no requests for a while.
        ejection: Option<EjectionKeys>,
    }
}

mapping! {
    /// the encryption towards upstreams
    pub(super) TlsKeys "tls" {
        /// A PEM file with the certificate authorities to trust. Without it: the system's.
        authority: Option<Text>,
        /// The name that the server's certificate must have. Without it: the host's.
        server_name: Option<Text>,
        /// A PEM file with a client certificate.
        cert: Option<Text>,
        /// A PEM file with its private key.
        key: Option<Text>,
    }
}

mapping! {
    /// the kept connections
    pub(super) PoolKeys "pool" {
        /// Idle connections to a server, per worker.
        idle_max: Option<u64> = "128" in 0..=MAX,
        /// How long an idle connection is kept; choose less than the upstream does.
        idle_timeout: Option<Duration> = "30s",
        /// Concurrent requests on one HTTP/2 connection.
        streams_max: Option<u64> = "100" in 1..=MAX,
        /// HTTP/2 connections to a server, per worker.
        shared_max: Option<u64> = "4" in 1..=MAX,
    }
}

mapping! {
    /// a health check
    pub(super) HealthKeys "health" {
        /// The path to request. A status below 400 is healthy.
        path: Option<Text> = "/",
        /// The time between two checks.
        interval: Option<Duration> = "5s",
        /// How long an answer may take.
        timeout: Option<Duration> = "1s",
        /// After how many failures in a row a server gets no requests.
        unhealthy_after: Option<u64> = "3" in 1..=MAX,
        /// After how many successes in a row it gets requests again.
        healthy_after: Option<u64> = "2" in 1..=MAX,
    }
}

mapping! {
    /// the ejection of failing servers
    pub(super) EjectionKeys "ejection" {
        /// After how many failures in a row; 0 never ejects.
        failures: Option<u64> = "5" in 0..=MAX,
        /// How long the first ejection lasts; each further one in a row lasts that much longer.
        base: Option<Duration> = "10s",
        /// The longest ejection.
        max: Option<Duration> = "5m",
    }
}

mapping! {
    /// what upstreams learn about the client
    pub(super) ProvenanceKeys "provenance" {
        /// The name of the gateway in `Via`.
        via: Option<OrOff<Text>> = "tidegate",
        /// Whether to send `X-Forwarded-For`, `-Proto` and `-Host`.
        x_forwarded: Option<bool> = "true",
        /// Whether to send `Forwarded`.
        forwarded: Option<bool> = "true",
    }
}

mapping! {
    /// limits for request heads and bodies
    pub(super) HeadKeys "head" {
        /// The longest path with its query.
        target_bytes_max: Option<Size> = "8KiB",
        /// The maximum of path segments.
        segments_max: Option<u64> = "256" in 1..=MAX,
        /// The largest body.
        body_bytes_max: Option<OrOff<Size>> = "off",
        /// How long a client may take between two parts of a body.
        body_idle: Option<Duration> = "30s",
        /// How paths with an escaped slash (`%2F`) are treated: rejected with 400, taken as a slash, or kept for
        /// upstreams that do not decode it before they route.
        escaped_slashes: Option<EscapedSlashes> = "reject",
    }
}

mapping! {
    /// how tokens are verified
    pub(super) JwtKeys "jwt" {
        /// Where the token is.
        from: Option<LocatedValue<SecretSource>> = "bearer",
        /// The name of the header, cookie or parameter.
        name: Option<LocatedValue<Text>>,
        /// A file with a JSON Web Key Set. It is read again when it changes.
        key_set: Option<Text>,
        /// A URL with a JSON Web Key Set instead. If it cannot be fetched, the last good set stays in use.
        key_set_url: Option<Text>,
        /// How long a set from a URL is used before it is fetched again. A token with an unknown key id fetches it earlier.
        key_set_cache: Option<Duration> = "5m",
        /// A PEM file with the certificate authorities to trust for the URL. Without it: the system's.
        key_set_authority: Option<Text>,
        /// A file with a shared secret instead, for HS256, HS384 and HS512.
        secret_file: Option<Text>,
        /// The issuer that tokens must have.
        issuer: Option<Text>,
        /// The audience that tokens must have.
        audience: Option<Text>,
        /// By how much clocks may differ, in whole seconds.
        leeway: Option<Duration> = "60s",
        /// How many verified tokens are cached.
        remembered_max: Option<u64> = "10000" in 0..=MAX,
        /// What happens to a request whose token is not valid: the token is ignored, or the answer is 401 on every route
        /// that is not exempt.
        when_invalid: Option<InvalidCredential> = "ignore",
    }
}

mapping! {
    /// API keys
    pub(super) ApiKeysKeys "api_keys" {
        /// Where the key is.
        from: Option<LocatedValue<SecretSource>> = "header",
        /// The name of the header, cookie or parameter.
        name: Option<LocatedValue<Text>> = "X-API-Key",
        /// The keys.
        keys_list as "keys": Vec<ApiKeyKeys>,
        /// A file with more keys: hash, name and plan in each line. It is read again when it changes.
        file: Option<Text>,
        /// What happens to a request whose key is unknown: the key is ignored, or the answer is 401 on every route that is
        /// not exempt.
        when_unknown: Option<InvalidCredential> = "ignore",
    }
}

mapping! {
    /// an API key
    pub(super) ApiKeyKeys "api_key" {
        /// The SHA-256 of the key, in hexadecimal.
        hash: Option<Text> = required,
        /// The name of the key's owner.
        name: Option<Text> = required,
        /// The owner's plan.
        plan: Option<Text> = required,
    }
}

mapping! {
    /// how requests wait
    pub(super) DelayKeys "delay" {
        /// The maximum of waiting requests, of all callers.
        waiting_max: Option<u64> = "10000" in 0..=MAX,
        /// The maximum of requests that wait in one line, for the same limit and key.
        line_max: Option<u64> = "100" in 0..=MAX,
        /// The longest wait.
        wait_max: Option<Duration> = "10s",
    }
}

mapping! {
    /// how requests are stored
    pub(super) QueueKeys "queue" {
        /// The maximum of stored requests, including finished ones that can still be looked up.
        requests_max: Option<u64> = "1000" in 0..=MAX,
        /// The maximum of bytes of waiting heads and bodies.
        bytes_max: Option<Size> = "64MiB",
        /// The largest body that is stored.
        body_bytes_max: Option<Size> = "1MiB",
        /// The maximum of stored requests of one caller, which `categories.caller` identifies. Its finished requests make
        /// room for new ones.
        caller_requests_max: Option<u64> = "100" in 0..=MAX,
        /// The maximum of bytes of one caller's waiting heads and bodies.
        caller_bytes_max: Option<Size> = "8MiB",
        /// How long a request may wait before it expires.
        wait_max: Option<Duration> = "5m",
        /// How long a finished request can still be looked up.
        remember: Option<Duration> = "10m",
    }
}

mapping! {
    /// which requests are shed first
    pub(super) CategoriesKeys "categories" {
        /// The header in which a trusted proxy names the category. Upstreams get it too.
        field: Option<OrOff<HeaderName>> = "X-Tidegate-Category",
        /// Rules; the first that matches is used. Without a match, `GET`, `HEAD` and `OPTIONS` are `get`, others `post`.
        rules: Vec<CategoryRuleKeys>,
        /// What identifies a caller. Callers are shed in fixed groups, the same ones for an hour. Without it: the
        /// client's address.
        caller: Option<CallerKeys>,
        /// The header in which a client sends how many milliseconds it waits. `grpc-timeout` is always read.
        timeout_field: Option<OrOff<HeaderName>> = "off",
        /// Whether answers name the shed category in `X-Tidegate-Shed`.
        tell: Option<bool> = "true",
    }
}

mapping! {
    /// a rule for a category
    pub(super) CategoryRuleKeys "category_rule" {
        /// The category.
        category: Option<CategoryWord> = required,
        /// Names of routes. Without it: all routes.
        routes: Vec<Text>,
        /// Methods. Without it: all methods.
        methods: Vec<MethodName>,
        /// A header and its value, as a trusted proxy sends it.
        header: Option<HeaderMatchKeys>,
        /// Plans of API keys. Without it: all callers.
        plans: Vec<Text>,
    }
}

mapping! {
    /// a header field and its value
    pub(super) HeaderMatchKeys "header_match" {
        /// The header.
        name: Option<HeaderName> = required,
        /// Its value.
        value: Option<FieldValue> = required,
    }
}

mapping! {
    /// what identifies a caller
    pub(super) CallerKeys "caller" {
        /// Where the value comes from.
        from: Option<ValueSource> = required,
        /// The value, for `from: fixed`.
        value: Option<Text>,
        /// The name of the header, cookie, parameter or claim.
        name: Option<LocatedValue<Text>>,
        /// How many bits of an IPv4 address count.
        v4_bits: Option<u64> = "32" in 0..=32,
        /// How many bits of an IPv6 address count.
        v6_bits: Option<u64> = "64" in 0..=128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_has_a_name_of_its_own_and_keys_that_differ() {
        let mappings = DocumentKeys::mapping().reachable();
        for (index, mapping) in mappings.iter().enumerate() {
            assert!(!mappings.iter().take(index).any(|other| other.name == mapping.name));
            let mut names: Vec<&str> = mapping.names().collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), mapping.keys.len(), "{}", mapping.name);
        }
        assert_eq!(mappings.len(), 24);
    }
}
