//! Values from closed sets of words.

use serde_json::json;
use tidegate_document::{Fault, choices, kind};
use tidegate_engine::Mode;

choices! {
    /// How counters are kept in Redis.
    #[derive(Default)]
    pub enum KeyLayout {
        /// Our own layout: every algorithm, one round trip, short keys.
        #[default]
        Tidegate = "tidegate",
        /// The layout of envoyproxy/ratelimit.
        EnvoyRatelimit = "envoy-ratelimit",
    }
}

choices! {
    /// Whose semantics and environment variables apply.
    #[derive(Default)]
    pub enum Compat {
        /// Only ours.
        #[default]
        None = "none",
        /// Those of envoyproxy/ratelimit.
        EnvoyRatelimit = "envoy-ratelimit",
    }
}

choices! {
    /// Whether limits can be switched at run time.
    #[derive(Default)]
    pub enum SwitchAccess {
        /// If only this machine can connect, or a token is set.
        #[default]
        Auto = "auto",
        /// Yes.
        On = "on",
        /// No.
        Off = "off",
    }
}

choices! {
    /// What happens while Redis fails to limits whose rules do not say it.
    #[derive(Default)]
    pub enum OnRedisError {
        /// The request fails with the error of envoyproxy/ratelimit.
        Upstream = "upstream",
        /// This process decides, on its share of the limit.
        #[default]
        Local = "local",
        /// The request passes.
        Allow = "allow",
        /// The request fails as undecided.
        Deny = "deny",
    }
}

choices! {
    /// Which gRPC codes errors have.
    #[derive(Default)]
    pub enum ErrorCodes {
        /// The code of the error.
        #[default]
        Precise = "precise",
        /// Always `Unknown`.
        Unknown = "unknown",
    }
}

choices! {
    /// The lowest level that is logged.
    #[derive(Default)]
    pub enum LogLevel {
        /// Errors.
        Error = "error",
        /// Warnings.
        Warn = "warn",
        /// Events.
        #[default]
        Info = "info",
        /// Details for debugging.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choices! {
    /// How messages are logged.
    #[derive(Default)]
    pub enum LogFormat {
        /// Text on a terminal, JSON otherwise.
        #[default]
        Auto = "auto",
        /// For people.
        Text = "text",
        /// For programs: one JSON object a line.
        Json = "json",
    }
}

choices! {
    /// How the decision log writes the values of callers.
    #[derive(Default)]
    pub enum RecordedValues {
        /// As they are.
        #[default]
        Plain = "plain",
        /// Hashed, except for values that a rule names.
        Hashed = "hashed",
    }
}

choices! {
    /// How traces are sent.
    #[derive(Default)]
    pub enum TraceProtocol {
        /// OTLP over gRPC.
        #[default]
        Grpc = "grpc",
        /// OTLP over HTTP.
        Http = "http",
    }
}

/// The mode of a limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchMode(pub Mode);

impl From<SwitchMode> for Mode {
    fn from(mode: SwitchMode) -> Mode {
        mode.0
    }
}

kind! {
    SwitchMode: Mode::SYNTAX,
    // To YAML 1.1 an unquoted `off` is a boolean.
    json!({"anyOf": [
        {"const": false},
        {"type": "string", "pattern": "^(off|shadow|dark|enforce([ \\t]+[0-9]{1,3}%)?)$"},
    ]}),
    |scalar| {
        let text = &*scalar.text;
        Mode::parse(text).map(SwitchMode).ok_or_else(|| {
            Fault::new("unknown_choice", format!("`{text}` is not a mode"))
                .hint(format!("it can be {}", Mode::SYNTAX))
        })
    },
    show |mode| mode.0.to_string()
}
