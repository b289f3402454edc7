//! A processor as it is configured, before the files that it names are read.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use tidegate_delivery::signature::SigningKey;
use tidegate_delivery::{
    CommandProcessor, CommandSettings, HttpProcessor, HttpSettings, HttpSetupError, Processor,
};

/// How records of a type are processed.
#[derive(Clone, Debug)]
pub enum ProcessorPlan {
    /// By HTTP requests.
    Http(Box<HttpPlan>),
    /// By a command.
    Command(CommandSettings),
}

/// HTTP requests, with the files that hold their secrets.
#[derive(Clone, Debug)]
pub struct HttpPlan {
    /// The settings, without what is in files.
    pub settings: HttpSettings,
    /// Header fields whose values are in files.
    pub field_files: Vec<FieldFile>,
    /// Files with secrets that sign bodies.
    pub signing_secrets: Vec<PathBuf>,
}

/// A header field whose value is the first line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFile {
    /// Its name.
    pub name: HeaderName,
    /// The file.
    pub path: PathBuf,
}

/// A processor cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file holds nothing that can be used.
    #[error("{} {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The client cannot be set up.
    #[error(transparent)]
    Client(#[from] HttpSetupError),
}

impl ProcessorPlan {
    /// The longest time of an attempt.
    pub fn time_max(&self) -> Duration {
        match self {
            ProcessorPlan::Http(plan) => plan.settings.timeouts.total,
            ProcessorPlan::Command(settings) => settings.timeout,
        }
    }

    /// Reads the files and makes the processor. It blocks.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn build(&self) -> Result<Arc<dyn Processor>, ProcessorError> {
        Ok(match self {
            ProcessorPlan::Http(plan) => Arc::new(plan.build()?),
            ProcessorPlan::Command(settings) => Arc::new(CommandProcessor::new(settings.clone())),
        })
    }
}

impl HttpPlan {
    fn build(&self) -> Result<HttpProcessor, ProcessorError> {
        let mut settings = self.settings.clone();
        for FieldFile { name, path } in &self.field_files {
            let text = read(path)?;
            let line = text.lines().next().unwrap_or_default().trim();
            let value = HeaderValue::from_str(line).ok().filter(|value| !value.is_empty());
            let mut value = value.ok_or_else(|| ProcessorError::Unusable {
                path: path.clone(),
                problem: "has no value of a header field in its first line".to_owned(),
            })?;
            value.set_sensitive(true);
            settings.headers.push((name.clone(), value));
        }
        for path in &self.signing_secrets {
            let text = read(path)?;
            let key = SigningKey::new(text.trim()).map_err(|error| ProcessorError::Unusable {
                path: path.clone(),
                problem: format!("has no secret: {error}"),
            })?;
            settings.signing_keys.push(key);
        }
        Ok(HttpProcessor::new(settings)?)
    }
}

fn read(path: &PathBuf) -> Result<String, ProcessorError> {
    fs::read_to_string(path)
        .map_err(|source| ProcessorError::Unreadable { path: path.clone(), source })
}
