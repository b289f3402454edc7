//! The fields of the gateway, of overload protection, and of the switches.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_admin::LimiterName;
use tidegate_document::{Network, section};
use tidegate_engine::Mode;
use tidegate_gateway::{AccessLogFormat, CallerFormat};

use super::{DAY, HOUR, MANY, SECOND, Tls};
use crate::config::kinds::{Address, Percent, SwitchMode};

section! {
    /// A reverse proxy with every limiter.
    Gateway {
        /// The document with its routes and upstreams; see docs/gateway.md. Setting it enables
        /// the gateway.
        file: Option<PathBuf> = "off",
        /// Whether changes of the document, and of the files that it names, take effect while the
        /// service runs; with `rules.debounce` and `rules.poll`.
        watch: bool = "true",
        /// Where to listen: `ADDRESS:PORT` or `unix:PATH`.
        listen: Vec<Address> = "0.0.0.0:8000",
        /// TLS; off without a certificate.
        tls: Tls,
        /// Networks whose connections must begin with a PROXY protocol header.
        proxy_protocol_from: Vec<Network> = "",
        /// The maximum of connections.
        connections_max: u32 = "10000" in 1..=MANY,
        /// The maximum of concurrent requests on one HTTP/2 connection.
        streams_max: u32 = "1000" in 1..=MANY,
        /// How long a client may take to send its header.
        header_timeout: Duration = "10s" in SECOND..=HOUR,
        /// How long a connection may be idle.
        idle_timeout: Duration = "75s" in SECOND..=DAY,
        /// The minimum rate at which a client must take an answer that waits for it, in bytes per second, on average
        /// over `idle_timeout`; a slower one is cut off. 0 for no minimum.
        send_rate_min: u32 = "240" in 0..=MANY,
        /// The access log.
        access_log: AccessLog,
        /// Whether a request without `x-request-id` gets a new one, for the upstream and the access
        /// log.
        request_ids: bool = "true",
        /// How many refusals are logged as examples, per ten seconds; 0 for none.
        refusal_samples: u32 = "10" in 0..=1_000,
    }
}

section! {
    /// The access log.
    AccessLog {
        /// Where to write it: `stdout`, `stderr` or a file.
        to: Option<PathBuf> = "off",
        /// One JSON object a line, or the common format of web servers.
        format: AccessLogFormat = "json",
        /// How JSON lines and spans name the caller: as `categories.caller` identifies it, hashed, or not at all.
        caller: CallerFormat = "plain",
        /// One of this many requests is logged.
        one_of: u32 = "1" in 1..=MANY,
        /// The maximum of lines that wait to be written; more are dropped and counted.
        waiting_max: u32 = "8192" in 1..=MANY,
    }
}

section! {
    /// Overload protection for the node behind the gateway.
    Overload {
        /// The maximum of requests in flight. Setting it enables protection.
        capacity: Option<u32> = "off" in 1..=MANY,
        /// The gate: the bounded queue in front of the work.
        gate: Gate,
        /// The worker utilization shedder.
        worker: Worker,
        /// The fleet usage shedder.
        fleet: Fleet,
    }
}

section! {
    /// The gate: the bounded queue in front of the work.
    Gate {
        /// How many requests may wait, in percent of the capacity.
        queue: Percent = "50",
        /// The percentage of the capacity that is reserved for critical requests.
        reserved: Percent = "5",
        /// How long a request may wait in a burst.
        burst_wait: Duration = "100ms" in 0..=HOUR,
        /// How long a request may wait while the queue stays full, or a tenth of the service time
        /// if that is longer.
        standing_wait: Duration = "5ms" in 0..=HOUR,
        /// After which time without an empty queue that applies.
        standing_after: Duration = "100ms" in 1..=HOUR,
        /// A slot that is held for longer is reclaimed.
        hold_max: Duration = "15m" in SECOND..=DAY,
        /// Whether the gate tunes itself to a limit below the capacity.
        adaptive: bool = "false",
    }
}

section! {
    /// The worker utilization shedder.
    Worker {
        /// Whether critical requests are shed too, after all others.
        shed_critical: bool = "false",
    }
}

section! {
    /// The fleet usage shedder.
    Fleet {
        /// The name of the fleet: nodes with the same name and Redis belong together. Without Redis
        /// a node is on its own.
        name: String = "gateway",
        /// The percentage of the fleet's capacity that is reserved for critical requests.
        reserved: Percent = "20",
        /// How long a share of the fleet's capacity is valid without renewal.
        lease: Duration = "2s" in 100..=HOUR,
        /// How often it is renewed.
        beat: Duration = "200ms" in 10..=HOUR,
    }
}

section! {
    /// The mode of each limiter, and the kill switch.
    LimiterSwitches {
        /// Whether everything is switched off: every request passes.
        kill: bool = "false",
        /// Limits of requests over time.
        rate: SwitchMode = "enforce",
        /// Limits of requests in flight.
        concurrency: SwitchMode = "enforce",
        /// The worker utilization shedder.
        worker: SwitchMode = "enforce",
        /// The fleet usage shedder. Enforce it where nodes share a Redis.
        fleet: SwitchMode = "shadow",
        /// The gate.
        gate: SwitchMode = "enforce",
        /// Limits on connections by network. Watch what they would refuse before they are enforced.
        connection: SwitchMode = "shadow",
        /// A file with any of these keys, read every second. It wins over this section while it
        /// exists.
        file: Option<PathBuf> = "off",
    }
}

impl LimiterSwitches {
    /// What a limiter does.
    pub const fn mode(&self, limiter: LimiterName) -> Mode {
        match limiter {
            LimiterName::Rate => self.rate.0,
            LimiterName::Concurrency => self.concurrency.0,
            LimiterName::Worker => self.worker.0,
            LimiterName::Fleet => self.fleet.0,
            LimiterName::Gate => self.gate.0,
            LimiterName::Connection => self.connection.0,
        }
    }
}
