//! The fields of the gateway, of what protects its node, and of what switches limiters.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_admin::LimiterName;
use tidegate_engine::Mode;

use super::{DAY, HOUR, MANY, SECOND, Tls};
use crate::config::kinds::{AccessLogFormat, Address, LogTo, Network, Percent};
use crate::config::section::section;

section! {
    /// A reverse proxy with every limiter.
    Gateway {
        /// The document with its routes and upstreams; see docs/gateway.md. Setting it turns
        /// the gateway on.
        file: Option<PathBuf> = "off",
        /// Whether changes of the document, and of the files that it names, take effect while the
        /// service runs. How they are noticed is said by `rules.debounce` and `rules.poll`.
        watch: bool = "true",
        /// Where to listen: `ADDRESS:PORT` or `unix:PATH`.
        listen: Vec<Address> = "0.0.0.0:8000",
        /// TLS; off without a certificate.
        tls: Tls,
        /// Networks that begin each connection with a PROXY header, which is then demanded.
        proxy_protocol_from: Vec<Network> = "",
        /// The most connections.
        connections_max: u32 = "10000" in 1..=MANY,
        /// The most requests at once on one HTTP/2 connection.
        streams_max: u32 = "1000" in 1..=MANY,
        /// How long a client may take to send its header.
        header_timeout: Duration = "10s" in SECOND..=HOUR,
        /// How long a connection may be idle.
        idle_timeout: Duration = "75s" in SECOND..=DAY,
        /// What is written of each request.
        access_log: AccessLog,
        /// How many refusals are written to the log as examples, in ten seconds; 0 for none.
        refusal_samples: u32 = "10" in 0..=1_000,
    }
}

section! {
    /// What is written of each request.
    AccessLog {
        /// Where it goes: `stdout`, `stderr` or a file, at its end.
        to: Option<LogTo> = "off",
        /// One JSON object a line, or the common format of web servers.
        format: AccessLogFormat = "json",
        /// One of so many requests is written.
        one_of: u32 = "1" in 1..=MANY,
        /// Lines that may wait to be written; more are dropped and counted.
        waiting_max: u32 = "8192" in 1..=MANY,
    }
}

section! {
    /// What protects the node behind the gateway from more than it can work on.
    Overload {
        /// How many requests are worked on at once. Setting it turns protection on.
        capacity: Option<u32> = "off" in 1..=MANY,
        /// The gate: who comes in, who waits.
        gate: Gate,
        /// The worker utilization shedder.
        worker: Worker,
        /// The fleet usage shedder.
        fleet: Fleet,
    }
}

section! {
    /// The gate: who comes in, who waits.
    Gate {
        /// How many may wait, in percent of the capacity.
        queue: Percent = "50",
        /// The part of the capacity that only critical requests may hold.
        reserved: Percent = "5",
        /// How long a request may wait in a burst.
        burst_wait: Duration = "100ms" in 0..=HOUR,
        /// How long a request may wait while the queue does not empty, or a tenth of the service time
        /// if that is longer.
        standing_wait: Duration = "5ms" in 0..=HOUR,
        /// For how long the queue must not have been empty for that.
        standing_after: Duration = "100ms" in 1..=HOUR,
        /// A slot that is held for longer is taken back.
        hold_max: Duration = "15m" in SECOND..=DAY,
        /// Whether the limit is searched below the capacity instead of kept.
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
        /// Which nodes are one fleet: those of this name that share a Redis. Without one a node is
        /// alone.
        name: String = "gateway",
        /// The part of the fleet's capacity that is kept for critical requests.
        reserved: Percent = "20",
        /// How long a grant of the fleet holds without being renewed.
        lease: Duration = "2s" in 100..=HOUR,
        /// How often it is renewed.
        beat: Duration = "200ms" in 10..=HOUR,
    }
}

section! {
    /// What each limiter does, and what stops them all.
    LimiterSwitches {
        /// Whether everything is switched off: every request passes.
        kill: bool = "false",
        /// Limits of requests over time.
        rate: Mode = "enforce",
        /// Limits of requests in flight.
        concurrency: Mode = "enforce",
        /// The worker utilization shedder.
        worker: Mode = "enforce",
        /// The fleet usage shedder. Enforce it where nodes share a Redis.
        fleet: Mode = "shadow",
        /// The gate.
        gate: Mode = "enforce",
        /// A file with any of these keys that is looked at each second. What it says wins over
        /// the rest of this section while it says so.
        file: Option<PathBuf> = "off",
    }
}

impl LimiterSwitches {
    /// What a limiter does.
    pub const fn mode(&self, limiter: LimiterName) -> Mode {
        match limiter {
            LimiterName::Rate => self.rate,
            LimiterName::Concurrency => self.concurrency,
            LimiterName::Worker => self.worker,
            LimiterName::Fleet => self.fleet,
            LimiterName::Gate => self.gate,
        }
    }
}
