//! The closed sets of words that a configuration can choose from.

use serde_json::Value;
use tidegate_document::{Scalar, closest, one_of};

use super::{Bounds, Shape, Single, Wrong};

macro_rules! choice {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$variant_about:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_about])* $variant,)+
        }

        impl $name {
            /// The words, in the order in which they are explained.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl Single for $name {
            const SHAPE: Shape = Shape::Choice($name::WORDS);

            fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
                // `on` and `off` are booleans to YAML and words to everyone else.
                match &*written.text {
                    $($word => Ok($name::$variant),)+
                    other => Err(no_choice(other, $name::WORDS)),
                }
            }

            fn shown(&self) -> Value {
                Value::from(self.as_str())
            }
        }
    };
}

fn no_choice(written: &str, words: &[&str]) -> Wrong {
    let hint = match closest(written, words.iter().copied()) {
        Some(word) => format!("did you mean `{word}`? It can be {}", one_of(words)),
        None => format!("it can be {}", one_of(words)),
    };
    Wrong::new("unknown_choice", format!("`{written}` is not possible here")).hint(hint)
}

choice! {
    /// How counters are kept in Redis.
    KeyLayout {
        /// Our own way: every algorithm, one round trip, short keys.
        #[default]
        Tidegate = "tidegate",
        /// As envoyproxy/ratelimit keeps them.
        EnvoyRatelimit = "envoy-ratelimit",
    }
}

choice! {
    /// Whose semantics and environment variables apply.
    Compat {
        /// Only ours.
        #[default]
        None = "none",
        /// Those of envoyproxy/ratelimit.
        EnvoyRatelimit = "envoy-ratelimit",
    }
}

choice! {
    /// Whether rules can be switched at run time.
    Switches {
        /// Where only this machine can ask, or a token is set.
        #[default]
        Auto = "auto",
        /// Yes.
        On = "on",
        /// No.
        Off = "off",
    }
}

choice! {
    /// What happens to new keys when the memory for counters is used up.
    WhenFull {
        /// They share counters.
        #[default]
        Approximate = "approximate",
        /// They are admitted.
        Allow = "allow",
        /// They are refused.
        Deny = "deny",
    }
}

choice! {
    /// What happens to a request that cannot be decided.
    FailureMode {
        /// It passes.
        #[default]
        Admit = "admit",
        /// It does not.
        Refuse = "refuse",
    }
}

choice! {
    /// Which gRPC codes errors have.
    ErrorCodes {
        /// The one that says what is wrong.
        #[default]
        Precise = "precise",
        /// Always `Unknown`.
        Unknown = "unknown",
    }
}

choice! {
    /// The least important messages that are logged.
    LogLevel {
        /// Something is broken.
        Error = "error",
        /// Something is odd.
        Warn = "warn",
        /// Something happened.
        #[default]
        Info = "info",
        /// What it did, for those who look for a mistake.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// How messages are logged.
    LogFormat {
        /// Text on a terminal, JSON otherwise.
        #[default]
        Auto = "auto",
        /// For people.
        Text = "text",
        /// For programs: one JSON object a line.
        Json = "json",
    }
}

choice! {
    /// The form of the access log.
    AccessLogFormat {
        /// One JSON object in each line.
        #[default]
        Json = "json",
        /// The common log format of web servers.
        Common = "common",
    }
}

choice! {
    /// How traces are sent.
    TraceProtocol {
        /// OTLP over gRPC.
        #[default]
        Grpc = "grpc",
        /// OTLP over HTTP.
        Http = "http",
    }
}
