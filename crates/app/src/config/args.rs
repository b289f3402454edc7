//! The flags that set fields, shared by all commands that need a configuration.

use std::path::PathBuf;

use clap::Args;

use super::kinds::{Compat, LogFormat, LogLevel};
use super::layers::Flag;

/// Where the configuration is, and what wins over it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub struct ConfigArgs {
    /// The configuration file. Default: `tidegate.yaml`, if it exists.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Rule files, or directories that hold some.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub rules: Vec<PathBuf>,
    /// Where Envoy's rate limit service listens: `ADDRESS:PORT` or `unix:PATH`.
    #[arg(long, value_name = "ADDR")]
    pub grpc: Vec<String>,
    /// Where the HTTP API listens: `ADDRESS:PORT` or `unix:PATH`.
    #[arg(long, value_name = "ADDR")]
    pub http: Vec<String>,
    /// Start the gateway with this document: routes, upstreams, what requests are limited by.
    #[arg(long, value_name = "FILE")]
    pub gateway: Option<PathBuf>,
    /// Where the gateway listens: `ADDRESS:PORT` or `unix:PATH`.
    #[arg(long, value_name = "ADDR")]
    pub gateway_listen: Vec<String>,
    /// The document of the forwarder: targets and record types.
    #[arg(long, value_name = "FILE")]
    pub forward: Option<PathBuf>,
    /// Where the forwarder's API listens.
    #[arg(long, value_name = "ADDR")]
    pub forward_listen: Vec<String>,
    /// Where metrics and switches are served.
    #[arg(long, value_name = "ADDR")]
    pub debug_listen: Vec<String>,
    /// Share counters over this Redis or Valkey: `redis://HOST:PORT`.
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    /// The least important messages that are logged.
    #[arg(long, value_name = "LEVEL", value_parser = clap::builder::PossibleValuesParser::new(LogLevel::WORDS))]
    pub log_level: Option<String>,
    /// How messages are logged.
    #[arg(long, value_name = "FORMAT", value_parser = clap::builder::PossibleValuesParser::new(LogFormat::WORDS))]
    pub log_format: Option<String>,
    /// How many threads serve: a number, or `auto` for one per core.
    #[arg(long, value_name = "COUNT")]
    pub workers: Option<String>,
    /// Read the environment variables of envoyproxy/ratelimit, and behave as it does.
    #[arg(
        long, value_name = "WHOSE", num_args = 0..=1, require_equals = true,
        default_missing_value = Compat::EnvoyRatelimit.as_str(),
        value_parser = clap::builder::PossibleValuesParser::new(Compat::WORDS),
    )]
    pub compat: Option<String>,
    /// Set any other field, such as `shutdown.grace=30s`; can be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl ConfigArgs {
    /// The flags that were given. `--set` wins over the others.
    pub(super) fn flags(&self) -> Vec<Flag> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let one = |value: &Option<String>| Vec::from_iter(value.clone());
        let flags = [
            ("--rules", "rules.paths", self.rules.iter().map(text).collect()),
            ("--grpc", "grpc.listen", self.grpc.clone()),
            ("--http", "http.listen", self.http.clone()),
            ("--gateway-listen", "gateway.listen", self.gateway_listen.clone()),
            ("--debug-listen", "debug.listen", self.debug_listen.clone()),
            ("--forward-listen", "forward.listen", self.forward_listen.clone()),
            ("--forward", "forward.file", self.forward.iter().map(text).collect()),
            ("--gateway", "gateway.file", self.gateway.iter().map(text).collect()),
            ("--redis", "store.redis.url", one(&self.redis)),
            ("--log-level", "log.level", one(&self.log_level)),
            ("--log-format", "log.format", one(&self.log_format)),
            ("--workers", "workers", one(&self.workers)),
            ("--compat", "compat", one(&self.compat)),
        ];
        let given = flags.into_iter().filter(|(_, _, values)| !values.is_empty());
        let given = given.map(|(name, path, values)| Flag {
            name,
            path: Some(path),
            text: values.join(","),
        });
        let set = |text: &String| Flag { name: "--set", path: None, text: text.clone() };
        given.chain(self.set.iter().map(set)).collect()
    }
}
