//! Every key of a gateway's document, once.
//!
//! The reader, the schema and the reference are made from this table, so that they cannot
//! disagree about what there is. Defaults are written as in the document; a test compares them
//! with those of the settings.

use tidegate_engine::RefusalStatus;

use super::place::Place;
use Shape::{
    Choice, Choices, Count, CountOr, Duration, Flag, HeaderName, Many, One, Size, Text, Texts,
};

/// What can stand after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Texts,
    Flag,
    Count {
        least: u64,
        most: u64,
    },
    Duration,
    Size,
    HeaderName,
    Choice(&'static [&'static str]),
    Choices(&'static [&'static str]),
    One(Place),
    Many(Place),
    /// A number, or a mapping.
    CountOr(Place),
}

/// Whether a key has to be there, and what holds without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// It has to be there.
    Wrong,
    /// Nothing of the kind.
    Nothing,
    /// This value, as it would be written.
    Default(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) without: Without,
    /// Whether `off` can stand there.
    pub(super) off: bool,
    pub(super) about: &'static str,
}

/// The keys of a place.
pub(super) fn keys_of(place: Place) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.place == place)
}

/// A key that has to be there.
const fn needed(place: Place, name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { place, name, shape, without: Without::Wrong, off: false, about }
}

/// A key that may be left out: then there is no such thing.
const fn maybe(place: Place, name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { place, name, shape, without: Without::Nothing, off: false, about }
}

/// A key with a default.
const fn usual(
    place: Place,
    name: &'static str,
    shape: Shape,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key { place, name, shape, without: Without::Default(default), off: false, about }
}

/// A key with a default that can be `off`.
const fn or_off(
    place: Place,
    name: &'static str,
    shape: Shape,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key { place, name, shape, without: Without::Default(default), off: true, about }
}

/// Any whole number that a machine can hold that many of.
const ANY: Shape = Count { least: 0, most: 1_000_000_000_000 };
const SOME: Shape = Count { least: 1, most: 1_000_000_000_000 };
const BITS_V4: Shape = Count { least: 0, most: 32 };
const BITS_V6: Shape = Count { least: 0, most: 128 };

/// Where a value can be from.
pub(super) const VALUES: &[&str] = &[
    "fixed",
    "address",
    "header",
    "cookie",
    "path_template",
    "path_parameter",
    "path",
    "method",
    "host",
    "query",
    "claim",
    "plan",
    "api_key_name",
    "route",
];
/// Where a cost can be from.
pub(super) const COSTS: &[&str] = &["header", "body_bytes", "reported"];
/// Where a secret can be presented.
pub(super) const PRESENTED: &[&str] = &["bearer", "header", "cookie", "query"];
/// Where a client's address can be from.
const ADDRESSES: &[&str] = &["peer", "x_forwarded_for", "forwarded"];
/// The categories, the first to be shed last.
pub(super) const CATEGORIES: &[&str] = &["critical", "post", "get", "test"];
/// The sets of rate limit fields.
pub(super) const FIELDS: &[&str] =
    &["x_retry_after", "x_reset", "x_reset_epoch", "legacy", "draft_11"];

const NAME_OF: &str = "The name of the header, cookie, parameter or claim.";

/// Declares the keys: place, name, what it takes, what holds without it, what it is for.
macro_rules! keys {
    (
        $($place:ident $name:literal ($shape:expr) $how:ident$(($default:literal))?: $about:tt;)+
    ) => {
        /// Every key, in the order of the reference.
        pub(super) const KEYS: &[Key] =
            &[$($how(Place::$place, $name, $shape, $($default,)? $about)),+];
    };
}

keys! {
    Root "domain" (Text) usual("gateway"): "The domain whose rules limit requests.";
    Root "routes" (Many(Place::Route)) needed:
        "Where requests go. The first route that fits is taken.";
    Root "upstreams" (Many(Place::Upstream)) needed:
        "The servers behind the gateway, in named groups.";
    Root "trusted_hops" (Texts) maybe: "Networks whose word on the client's address is taken.";
    Root "address_from" (Choice(ADDRESSES)) usual("x_forwarded_for"):
        "Which field a trusted hop names the client in; `peer` reads none.";
    Root "provenance" (One(Place::Provenance)) maybe:
        "What upstreams are told of where requests come from.";
    Root "head" (One(Place::Head)) maybe: "What heads and bodies of requests may be like.";
    Root "jwt" (One(Place::Jwt)) maybe: "How tokens are verified. Without it no claim is read.";
    Root "api_keys" (One(Place::ApiKeys)) maybe:
        "Which API keys there are. Without it no plan is known.";
    Root "rate_limit_fields" (Choices(FIELDS)) usual("[x_retry_after, draft_11]"):
        "The header fields that tell of limits; see docs/http-answers.md.";
    Root "rate_limit_fields_on" (Choice(&["always", "refusal"])) usual("always"):
        "Which answers have them.";
    Root "delay" (One(Place::Delay)) maybe: "How requests wait: for limits with `when_over: delay`, and for their turn in leaky buckets.";
    Root "queue" (One(Place::Queue)) maybe:
        "How requests are kept for limits with `when_over: queue`.";
    Root "categories" (One(Place::Categories)) maybe: "Who is shed first when there is too much.";

    Route "name" (Text) needed: "What logs and metrics call it.";
    Route "hosts" (Texts) maybe:
        "Hosts: a name, or `*.` and a name for all below it. Without: all.";
    Route "path" (Text) usual("/"): "Paths: this one and everything below it.";
    Route "template" (Text) maybe: "Paths by a template instead, as `/users/{id}/orders`.";
    Route "methods" (Texts) maybe: "Methods. Without: all.";
    Route "upstreams" (Text) needed: "The group of upstreams that it leads to.";
    Route "strip_prefix" (Flag) usual("false"): "Whether upstreams see only what is below `path`.";
    Route "replace_prefix" (Text) maybe: "What upstreams see in place of `path`.";
    Route "host_header" (Choice(&["client", "upstream"])) usual("client"):
        "Whose host the upstream is asked for.";
    Route "request_headers" (Many(Place::HeaderEdit)) maybe:
        "Changes to the fields of requests, in order.";
    Route "response_headers" (Many(Place::HeaderEdit)) maybe:
        "Changes to the fields of answers, in order.";
    Route "templates" (Texts) maybe:
        "More path templates that descriptors can name, after `template`. The first that fits is taken.";
    Route "descriptors" (Many(Place::Descriptor)) maybe: "What its requests are limited by.";
    Route "cost" (CountOr(Place::Cost)) usual("1"):
        "What a request costs, where its descriptor does not say.";
    Route "answers" (One(Place::Answers)) maybe: "How refusals are told.";
    Route "timeouts" (One(Place::Timeouts)) maybe:
        "How long things may take here; what is not said is as its upstreams say.";
    Route "exempt" (Flag) usual("false"):
        "Whether its requests are never limited, shed or counted: health checks, metrics.";

    HeaderEdit "set" (HeaderName) maybe: "The field has this value and no other.";
    HeaderEdit "add" (HeaderName) maybe: "The field has this value beside those that it has.";
    HeaderEdit "remove" (HeaderName) maybe: "The field is left out.";
    HeaderEdit "value" (Text) maybe: "The value, for `set` and `add`.";

    Descriptor "entries" (Many(Place::Entry)) needed:
        "Its entries, in the order in which rules are nested.";
    Descriptor "cost" (CountOr(Place::Cost)) maybe:
        "What a request costs here. Without: what the route says.";

    Entry "key" (Text) needed: "Its key, as rules have it.";
    Entry "from" (Choice(VALUES)) usual("fixed"): "Where its value is from.";
    Entry "value" (Text) maybe: "The value, for `from: fixed`.";
    Entry "name" (Text) maybe: NAME_OF;
    Entry "v4_bits" (BITS_V4) usual("32"):
        "Bits of an IPv4 address that count, for `from: address`.";
    Entry "v6_bits" (BITS_V6) usual("64"):
        "Bits of an IPv6 address that count; a client can usually choose the last 64.";
    Entry "when_missing" (Choice(&["skip_descriptor", "skip_entry"])) usual("skip_descriptor"):
        "What becomes of a request without the value.";
    Entry "default" (Text) maybe: "The value of a request that has none.";

    Cost "from" (Choice(COSTS)) needed:
        "A field of the request, the bytes of its body, or a field of the answer.";
    Cost "name" (HeaderName) maybe: "The field, for `header` and `reported`.";
    Cost "max" (SOME) maybe: "The most that is believed, for `header` and `reported`.";

    Answers "json" (Text) maybe:
        "The body in JSON, with `{status}`, `{code}`, `{title}`, `{detail}` and `{quota}`.";
    Answers "html" (Text) maybe: "The body for those who ask for HTML first.";
    Answers "refusal_status" (Choice(RefusalStatus::WORDS)) maybe:
        "The HTTP status of refusals by limits without a `refusal_status`. Without it, 429.";

    Timeouts "connect" (Duration) usual("2s"): "To connect, encryption included.";
    Timeouts "first_byte" (Duration) usual("60s"):
        "From the last byte of a request to the head of its answer.";
    Timeouts "idle" (Duration) usual("60s"): "Between two pieces of an answer, and in a tunnel.";
    Timeouts "total" (Duration) or_off("off"): "For a whole request with its answer.";

    Upstream "name" (Text) needed: "What routes call the group.";
    Upstream "hosts" (Texts) needed: "The servers: `http://HOST:PORT` or `https://HOST:PORT`.";
    Upstream "protocol" (Choice(&["auto", "http1", "http2"])) usual("auto"):
        "What they speak; `auto` is HTTP/1.1, or what both agree on with `https`.";
    Upstream "tls" (One(Place::Tls)) maybe: "Whom to trust of those with `https`.";
    Upstream "timeouts" (One(Place::Timeouts)) maybe: "How long things may take.";
    Upstream "pool" (One(Place::Pool)) maybe: "How many connections are kept.";
    Upstream "health" (One(Place::Health)) maybe:
        "How servers are asked whether they are well. Without: not at all.";
    Upstream "ejection" (One(Place::Ejection)) maybe:
        "When a server that fails is left alone for a while.";

    Tls "authority" (Text) maybe:
        "A file of certificates of those who vouch for upstreams, PEM. Without: the system's.";
    Tls "server_name" (Text) maybe:
        "The name that certificates must be good for. Without: the host's.";
    Tls "cert" (Text) maybe: "A file with a certificate to show, PEM.";
    Tls "key" (Text) maybe: "A file with its key, PEM.";

    Pool "idle_max" (ANY) usual("128"): "Idle connections to a server, kept by each worker.";
    Pool "idle_timeout" (Duration) usual("30s"):
        "How long one is kept; less than the upstream keeps it.";
    Pool "streams_max" (SOME) usual("100"): "Requests at once on one HTTP/2 connection.";
    Pool "shared_max" (SOME) usual("4"): "HTTP/2 connections to a server, of each worker.";

    Health "path" (Text) usual("/"): "The path to ask for. An answer below 400 is good.";
    Health "interval" (Duration) usual("5s"): "How often.";
    Health "timeout" (Duration) usual("1s"): "How long an answer may take.";
    Health "unhealthy_after" (SOME) usual("3"): "So many bad answers in a row take a server out.";
    Health "healthy_after" (SOME) usual("2"): "So many good answers in a row bring it back.";

    Ejection "failures" (ANY) usual("5"): "So many failures in a row; 0 never ejects.";
    Ejection "base" (Duration) usual("10s"):
        "For how long the first time; each time in a row as much longer.";
    Ejection "max" (Duration) usual("5m"): "For how long at most.";

    Provenance "via" (Text) or_off("tidegate"): "What the gateway calls itself in `Via`.";
    Provenance "x_forwarded" (Flag) usual("true"):
        "Whether `X-Forwarded-For`, `-Proto` and `-Host` are sent.";
    Provenance "forwarded" (Flag) usual("true"): "Whether `Forwarded` is sent.";

    Head "target_bytes_max" (Size) usual("8KiB"): "The longest path with its query.";
    Head "segments_max" (SOME) usual("256"): "The most segments of a path.";
    Head "body_bytes_max" (Size) or_off("off"): "The largest body.";
    Head "body_idle" (Duration) usual("30s"):
        "How long a client may take between two pieces of a body.";

    Jwt "from" (Choice(PRESENTED)) usual("bearer"): "Where the token is.";
    Jwt "name" (Text) maybe: NAME_OF;
    Jwt "key_set" (Text) maybe:
        "A file with a set of keys (JWKS). It is read again when it changes.";
    Jwt "secret_file" (Text) maybe:
        "A file with a shared secret instead, for HS256, HS384 and HS512.";
    Jwt "issuer" (Text) maybe: "Who must have issued the token.";
    Jwt "audience" (Text) maybe: "For whom it must be.";
    Jwt "leeway" (Duration) usual("60s"): "How far clocks may differ, in whole seconds.";
    Jwt "remembered_max" (ANY) usual("10000"): "How many verified tokens are remembered.";

    ApiKeys "from" (Choice(PRESENTED)) usual("header"): "Where the key is.";
    ApiKeys "name" (Text) usual("X-API-Key"): NAME_OF;
    ApiKeys "keys" (Many(Place::ApiKey)) maybe: "The keys.";
    ApiKeys "file" (Text) maybe:
        "A file with more: hash, name and plan in each line. It is read again when it changes.";

    ApiKey "hash" (Text) needed: "The SHA-256 of the key, in hexadecimal.";
    ApiKey "name" (Text) needed: "What the key is called.";
    ApiKey "plan" (Text) needed: "Its plan.";

    Delay "waiting_max" (ANY) usual("10000"): "The most requests that wait, over all callers.";
    Delay "line_max" (ANY) usual("100"): "The most that wait in one line, behind the same limit.";
    Delay "wait_max" (Duration) usual("10s"): "The longest wait.";

    Queue "requests_max" (ANY) usual("1000"):
        "The most requests kept, with those whose state is still told.";
    Queue "bytes_max" (Size) usual("64MiB"): "The most bytes of heads and bodies that wait.";
    Queue "body_bytes_max" (Size) usual("1MiB"): "The largest body that is kept.";
    Queue "wait_max" (Duration) usual("5m"): "How long a request may wait before it expires.";
    Queue "remember" (Duration) usual("10m"): "How long its state is told after its end.";

    Categories "field" (HeaderName) or_off("X-Tidegate-Category"):
        "The field in which a trusted hop names the category, and upstreams are told it.";
    Categories "rules" (Many(Place::CategoryRule)) maybe:
        "Rules; the first that fits is taken. Without one, reading is `get` and the rest `post`.";
    Categories "caller" (One(Place::Caller)) maybe:
        "Who is refused together, for an hour. Without: the client's address.";
    Categories "timeout_field" (HeaderName) or_off("off"):
        "The field in which a client says how many milliseconds it waits. gRPC's is always read.";
    Categories "tell" (Flag) usual("true"):
        "Whether answers name the category that was shed, in `X-Tidegate-Shed`.";

    CategoryRule "category" (Choice(CATEGORIES)) needed: "The category.";
    CategoryRule "routes" (Texts) maybe: "Names of routes. Without: all.";
    CategoryRule "methods" (Texts) maybe: "Methods. Without: all.";
    CategoryRule "header" (One(Place::HeaderMatch)) maybe:
        "A field and its value, as a trusted hop sends them.";
    CategoryRule "plans" (Texts) maybe: "Plans of API keys. Without: all callers.";

    HeaderMatch "name" (HeaderName) needed: "The field.";
    HeaderMatch "value" (Text) needed: "Its value.";

    Caller "from" (Choice(VALUES)) needed: "What tells callers apart.";
    Caller "value" (Text) maybe: "The value, for `from: fixed`.";
    Caller "name" (Text) maybe: NAME_OF;
    Caller "v4_bits" (BITS_V4) usual("32"): "Bits of an IPv4 address that count.";
    Caller "v6_bits" (BITS_V6) usual("64"): "Bits of an IPv6 address that count.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_listed_once_and_has_keys_that_differ() {
        for (at, place) in Place::ALL.iter().enumerate() {
            assert!(!Place::ALL.iter().take(at).any(|other| other == place), "{place:?}");
            let mut names: Vec<&str> = keys_of(*place).map(|key| key.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert!(count > 0 && names.len() == count, "{place:?}");
        }
    }
}
