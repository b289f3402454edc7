//! Every key of the forwarder's document, once: its type, its default, its meaning.
//!
//! Reader, schema and reference page come from these declarations. Defaults are written as in the document; a test
//! compares them with those of the settings.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_document::{HeaderName, LocatedValue, Network, OrOff, Size, Text, Word, mapping};

use super::kinds::{
    AllowedHost, BulkEnvelopeWord, BulkFormatWord, BulkResultsWord, FieldText, MethodName,
    OrderWord, Part, PriorityRule, ProtocolWord, StatusCodeNumber, StoreLostWord, TargetUrl,
};
use crate::retry::AmbiguousRule;

/// Larger counts are mistakes, and keep sums within 64 bits.
pub(super) const COUNT_MAX: u64 = 1 << 40;
/// The largest amount of a limit.
const AMOUNT_MAX: u64 = 1 << 44;

mapping! {
    /// the document
    pub(super) DocumentKeys "document" {
        /// The throttled services, with their limits.
        targets: Vec<TargetKeys> = required,
        /// The types of records. Each has its own queue and its own processor.
        types: Vec<TypeKeys> = required,
        /// Header fields with credentials, such as `authorization`, that records may keep. All others of that kind are
        /// dropped when a record is accepted, and the answer names them.
        kept_secrets: Vec<HeaderName>,
        /// Access tokens that belong to a tenant: they enqueue for it only and see only its jobs.
        tenants: Vec<TenantKeys>,
    }
}

mapping! {
    /// a throttled service
    pub(super) TargetKeys "target" {
        /// Its name: the same in every process that shares it.
        name: Option<LocatedValue<Text>> = required,
        /// Its limits, all of them in force at once.
        limits: Vec<LimitKeys> = required,
        /// The equal parts that its capacity is divided into; processes hold some of them under leases.
        slots: Option<u64> = "100" in 1..=1_000,
        /// The part of its limits that is used. The rest is the margin for timers and clocks.
        utilisation: Option<Part> = "98%",
        /// The longest time to wait that is believed when the service asks for it.
        hold_max: Option<Duration> = "5m",
        /// Shares of workflows. Without it, all types share it alike.
        pools: Vec<PoolKeys>,
        /// What processes do when the lease store cannot be reached for a whole lease: `stop` sending, go on with a
        /// `safe_share`, or with their reserve (`floor`). The same in every process.
        store_lost: Option<StoreLostWord> = "stop",
    }
}

mapping! {
    /// a limit of a throttled service
    pub(super) LimitKeys "limit" {
        /// At most this many requests,
        operations: Option<u64> = optional in 1..=AMOUNT_MAX,
        /// or this many bytes of payload,
        bytes: Option<Size> = optional in 1..=AMOUNT_MAX,
        /// or this many units, which records name as their cost,
        units: Option<u64> = optional in 1..=AMOUNT_MAX,
        /// in any window of this length: up to a minute it is paced, up to 31 days it is a quota.
        per: Option<Duration> = required,
    }
}

mapping! {
    /// the share of a workflow
    pub(super) PoolKeys "pool" {
        /// Its name; types name the pool that they belong to.
        name: Option<LocatedValue<Text>> = required,
        /// Its weight against other pools.
        weight: Option<u64> = "1" in 1..=1_000_000,
        /// Slots that it gets first, if it wants them.
        slots_min: Option<u64> = "0" in 0..=1_000,
        /// Slots that it never exceeds. Without it: all.
        slots_max: Option<u64> = optional in 1..=1_000,
    }
}

mapping! {
    /// a type of records
    pub(super) TypeKeys "type" {
        /// Its name: letters, digits, `-`, `_` and `.`.
        name: Option<LocatedValue<Text>> = required,
        /// The name of the target that its records are sent to.
        target: Option<LocatedValue<Text>> = required,
        /// Sends each record as an HTTP request.
        http: Option<HttpKeys>,
        /// Runs a command for each record instead.
        command: Option<CommandKeys>,
        /// The pool of the target that it belongs to.
        pool: Option<LocatedValue<Text>> = "default",
        /// Its weight within the pool.
        weight: Option<u64> = "1" in 1..=1_000_000,
        /// Slots that each process keeps while the type is idle, so that its first record leaves at once.
        reserve: Option<u64> = "0" in 0..=1_000,
        /// How long slots and claimed records stay with a process that was killed.
        slot_lease: Option<Duration> = "15s",
        /// Its queue.
        queue: Option<QueueKeys>,
        /// When a failed record is tried again.
        retry: Option<RetryKeys>,
        /// What becomes of a record that was sent and whose answer was lost: `retry` as after a failure, `hold` for
        /// `ambiguous_wait` first, or `bury` as a dead letter.
        on_ambiguous: Option<Word<AmbiguousRule>> = "retry",
        /// How long `on_ambiguous: hold` waits.
        ambiguous_wait: Option<Duration> = "1h",
        /// The maximum of requests in flight from one process. An adaptive limit stays below it.
        in_flight_max: Option<u64> = "256" in 1..=10_000,
        /// The longest time of an attempt, whatever its processor does.
        attempt_timeout: Option<Duration> = "60s",
    }
}

mapping! {
    /// the queue of a type
    pub(super) QueueKeys "queue" {
        /// Which records stay in order: `none`, those with the same `key`, or all of them (`strict`).
        order: Option<OrderWord> = "none",
        /// How the classes `urgent`, `normal`, `low` and `bulk` share the queue: by weight, or the most urgent first.
        priority: Option<PriorityRule> = "weighted",
        /// The weights of the four classes, for `priority: weighted`.
        weights: Option<Vec<u64>> = "[8, 4, 2, 1]" in 1..=1_000_000,
        /// A record counts as one class higher for each such time that it has waited.
        ageing: Option<OrOff<Duration>> = "60s",
        /// The maximum of records: waiting, in flight and dead. A full queue refuses more, and says when there is room.
        records_max: Option<u64> = "10000000" in 1..=COUNT_MAX,
        /// The maximum of payload bytes.
        bytes_max: Option<Size> = "10GiB" in 1..=1 << 50,
        /// A record that waits longer becomes a dead letter.
        age_max: Option<OrOff<Duration>> = "1d",
        /// How long a deduplication key is remembered.
        dedup_window: Option<Duration> = "1d",
        /// Claims of a record that may end without a settlement; then it becomes a dead letter, because it seems to
        /// crash its processors.
        lapses_max: Option<u64> = "20" in 1..=1_000_000,
    }
}

mapping! {
    /// retries
    pub(super) RetryKeys "retry" {
        /// The longest wait after the first failure; it doubles with each one.
        base: Option<Duration> = "500ms",
        /// The longest wait after any failure.
        cap: Option<Duration> = "5m",
        /// Failed attempts after which a record becomes a dead letter. Throttled answers do not count.
        attempts_max: Option<u64> = "10" in 1..=1_000_000,
    }
}

mapping! {
    /// sending by HTTP
    pub(super) HttpKeys "http" {
        /// The URL of the service. A record may name a path of it, or another allowed URL.
        url: Option<LocatedValue<TargetUrl>> = required,
        /// The method; a record may name another.
        method: Option<MethodName> = "POST",
        /// Header fields of each request, such as the credentials of the service. They replace those of the record.
        headers: Vec<FieldKeys>,
        /// Further hosts that a record may name: `api.example.com`, `*.example.com`, `api.example.com:8443`.
        hosts: Vec<AllowedHost>,
        /// Networks that are allowed although they are not public, such as `10.0.0.0/8` or `127.0.0.1`.
        networks: Vec<Network>,
        /// The time for each stage.
        timeouts: Option<TimeoutsKeys>,
        /// The version of HTTP: `auto` is HTTP/2 if the TLS handshake negotiates it, otherwise HTTP/1.1.
        protocol: Option<ProtocolWord> = "auto",
        /// Certificates.
        tls: Option<TlsKeys>,
        /// How many redirects are followed.
        redirects_max: Option<u64> = "0" in 0..=10,
        /// Whether requests have the field `Tidegate-Slot`, for services that reject older epochs.
        send_slot: Option<bool> = "false",
        /// Further statuses that mean "slow down", beside 429 and a 503 that says when to return.
        throttled: Vec<StatusCodeNumber>,
        /// Further statuses that count as delivered, such as 409 of a service that has the record already.
        delivered: Vec<StatusCodeNumber>,
        /// Where the answer says what the request cost.
        real_cost: Option<RealCostKeys>,
        /// Sends many records in one request.
        bulk: Option<BulkKeys>,
        /// Files with a secret of at least 16 bytes each, which sign every body; two while a secret is replaced.
        signing_secrets: Vec<PathBuf>,
    }
}

mapping! {
    /// a header field
    pub(super) FieldKeys "header" {
        /// Its name.
        name: Option<HeaderName> = required,
        /// Its value,
        value: Option<FieldText>,
        /// or a file whose first line is the value.
        value_file: Option<PathBuf>,
    }
}

mapping! {
    /// timeouts
    pub(super) TimeoutsKeys "timeouts" {
        /// To resolve the name, connect and encrypt.
        connect: Option<Duration> = "5s",
        /// From the connection to the head of the answer.
        head: Option<Duration> = "20s",
        /// Between two parts of the body of the answer.
        body: Option<Duration> = "10s",
        /// For the whole attempt.
        total: Option<Duration> = "30s",
    }
}

mapping! {
    /// the encryption towards a service
    pub(super) TlsKeys "tls" {
        /// A PEM file with the certificate authorities to trust. Without it: the system's.
        authority: Option<PathBuf>,
        /// A PEM file with a client certificate.
        cert: Option<PathBuf>,
        /// A PEM file with its private key.
        key: Option<PathBuf>,
    }
}

mapping! {
    /// where an answer says what a record cost
    pub(super) RealCostKeys "real_cost" {
        /// In this header field, such as `x-ms-request-charge`,
        header: Option<HeaderName>,
        /// or at this JSON pointer of the body, such as `/usage/total_tokens`.
        pointer: Option<Text>,
    }
}

mapping! {
    /// many records in one request
    pub(super) BulkKeys "bulk" {
        /// The most records of a request.
        records_max: Option<u64> = required in 1..=10_000,
        /// How records are written: a JSON document on each line, or a JSON array.
        format: Option<BulkFormatWord> = "ndjson",
        /// What is written of each: its id, attempt and body (`wrapped`), or its body alone (`bare`).
        envelope: Option<BulkEnvelopeWord> = "wrapped",
        /// What the answer says: a result for each record, or a status for the `whole`.
        results: Option<BulkResultsWord> = "per_record",
    }
}

mapping! {
    /// a command
    pub(super) CommandKeys "command" {
        /// The program.
        program: Option<PathBuf> = required,
        /// Its arguments.
        arguments: Vec<Text>,
        /// Its environment. Nothing else is passed on.
        environment: Vec<VariableKeys>,
        /// The directory in which it runs. Without it: that of the forwarder.
        directory: Option<PathBuf>,
        /// The time that it may take; then it is killed with its children.
        timeout: Option<Duration> = "30s",
        /// The JSON pointer of its output at which it says what the record cost.
        real_cost: Option<Text>,
    }
}

mapping! {
    /// a variable of the environment
    pub(super) VariableKeys "variable" {
        /// Its name.
        name: Option<Text> = required,
        /// Its value.
        value: Option<Text> = required,
    }
}

mapping! {
    /// the tenant of a token
    pub(super) TenantKeys "tenant" {
        /// The name of the token, as in `forward.tokens` of the configuration.
        token: Option<Text> = required,
        /// The tenant.
        tenant: Option<Text> = required,
    }
}
