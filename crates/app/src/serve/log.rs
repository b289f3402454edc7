//! The log: text on a terminal, otherwise one JSON object a line, to standard error.
//!
//! The level can be changed while the service runs.

use std::io::IsTerminal;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::{Log, LogFormat};

/// The target of warnings that are logged at every level: settings that have no effect.
pub(crate) const NOTICE: &str = "tidegate_notice";

/// Reads and changes the level while the service runs.
#[derive(Clone)]
pub(crate) struct LogLevelHandle {
    handle: Handle<EnvFilter, Registry>,
    written: Arc<Mutex<String>>,
}

impl tidegate_admin::LogLevel for LogLevelHandle {
    fn get(&self) -> String {
        self.written.lock().clone()
    }

    fn set(&self, level: &str) -> Result<(), String> {
        let filter = filter(level)?;
        self.handle.reload(filter).map_err(|error| error.to_string())?;
        level.clone_into(&mut self.written.lock());
        Ok(())
    }
}

impl std::fmt::Debug for LogLevelHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("LogLevelHandle").field(&*self.written.lock()).finish()
    }
}

/// Starts to log. Fails if the process logs already.
pub(crate) fn start(log: &Log) -> Result<LogLevelHandle, String> {
    let level = log.level.as_str();
    let (filter, handle) = reload::Layer::new(filter(level)?);
    let registry = tracing_subscriber::registry().with(filter);
    let on_terminal = std::io::stderr().is_terminal();
    let as_text = match log.format {
        LogFormat::Auto => on_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let started = if as_text {
        registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(on_terminal)).try_init()
    } else {
        let lines = fmt::layer().json().flatten_event(true).with_current_span(false);
        registry.with(lines.with_span_list(false).with_writer(std::io::stderr)).try_init()
    };
    started.map_err(|error| error.to_string())?;
    Ok(LogLevelHandle { handle, written: Arc::new(Mutex::new(level.to_owned())) })
}

/// The filter for a level, or for directives such as `info,tidegate_gateway=debug`. A bare word that is not a level is
/// refused, although `EnvFilter` reads it as the name of a module: it would turn all other logs off.
fn filter(level: &str) -> Result<EnvFilter, String> {
    let is_known = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let mut parts = level.split(',').map(str::trim);
    let is_off = level.trim().eq_ignore_ascii_case("off");
    let notices = if is_off { String::new() } else { format!(",{NOTICE}=warn") };
    let parsed = EnvFilter::builder().parse(format!("{level}{notices}")).ok();
    let filter = parsed.filter(|_| parts.all(|part| part.contains('=') || is_known(part)));
    filter.ok_or_else(|| {
        format!(
            "`{level}` is not a log level: use error, warn, info, debug or trace, \
             or a list with modules such as `info,tidegate_gateway=debug`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_level_is_an_error_that_lists_the_levels() {
        for level in ["tidegate=loud", "nonsense", "", "info,nonsense"] {
            let error = filter(level).expect_err("no such level");
            assert!(error.contains("error, warn, info, debug or trace"), "{error}");
        }
        for level in ["warn", "DEBUG", "info,tidegate_gateway=debug", "off"] {
            assert!(filter(level).is_ok(), "{level}");
        }
    }
}
