//! Changes of the configuration file.
//!
//! Access tokens take effect at once. The rest of the configuration is fixed at the start, and so are the few files
//! that are read only then: when one of them changes, the log names each changed field, never the value of a secret.
//! Flags and variables are those of the start.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};

use tidegate_sources::{DocumentSource, NamedFiles, Watch, WatchEvent};

use super::tokens::{self, DoorTokens};
use super::{system_failure, watch};
use crate::config::{Config, Input, changed, resolve};
use crate::exit::{Complaint, Failure};

/// Tokens, keys and certificates are shorter; bytes after these are not compared.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Watches the configuration file and the files that are read only at the start, and replaces `tokens` when they
/// change. `None` without a configuration file, or when it was a pipe.
pub(super) fn start(
    config: &Config,
    input: Input,
    tokens: DoorTokens,
) -> Result<Option<Watch>, Failure> {
    let path = input.file.as_ref().map(|file| PathBuf::from(&file.name));
    let Some(path) = path.filter(|path| path.is_file()) else { return Ok(None) };
    let running = config.clone();
    let files = StartupFiles::of(config);
    let named = NamedFiles::default();
    named.set(files.files.iter().map(|file| file.path.clone()).collect());
    let source = DocumentSource::new(path, named);
    let watch = watch::of(source, "the configuration", &config.rules, config.rules.watch)
        .report(|event| {
            if let WatchEvent::Failed(failure) = event {
                tracing::error!(problems = %failure.error, "the changed configuration would not start");
            }
        })
        .start_document(move |sources| {
            for field in files.changed().filter(|field| !tokens::FIELDS.contains(field)) {
                tracing::warn!(field, "the file that it names has changed: it takes a restart");
            }
            let file = sources.first().cloned();
            let loaded = resolve(&Input { file, ..input.clone() })?;
            match DoorTokens::of(&loaded.config) {
                Ok(loaded) => tokens.replace(&loaded),
                Err(Complaint { message, .. }) => {
                    tracing::error!(message, "cannot use the access tokens; the active ones stay");
                }
            }
            let restarting = changed(&running, &loaded.config);
            for field in restarting.iter().filter(|field| !tokens::FIELDS.contains(&&***field)) {
                tracing::warn!(field, "changed in the configuration: it takes a restart");
            }
            Ok(Vec::new())
        });
    let watch =
        watch.map_err(|error| system_failure("the configuration cannot be watched", &error));
    watch.map(Some)
}

/// The files that are read only at the start, with digests of their content then.
#[derive(Debug)]
struct StartupFiles {
    files: Vec<StartupFile>,
    /// Random, so that a digest reveals nothing about a secret.
    seed: RandomState,
}

#[derive(Debug)]
struct StartupFile {
    /// The field that names it.
    field: &'static str,
    path: PathBuf,
    digest: Option<u64>,
}

impl StartupFiles {
    fn of(config: &Config) -> Self {
        let seed = RandomState::new();
        let (debug, redis) = (&config.debug, &config.store.redis);
        // The token itself wins over its file; without Redis its certificates are not read.
        let token = debug.token_file.as_ref().filter(|_| debug.token.is_none());
        let tls = redis.url.as_ref().map(|_| &redis.tls);
        let named = [
            ("debug.token_file", token),
            ("store.redis.tls.ca", tls.and_then(|tls| tls.ca.as_ref())),
            ("store.redis.tls.cert", tls.and_then(|tls| tls.cert.as_ref())),
            ("store.redis.tls.key", tls.and_then(|tls| tls.key.as_ref())),
        ];
        let files = named.into_iter().filter_map(|(field, path)| {
            let path = path?.clone();
            Some(StartupFile { field, digest: digest(&seed, &path), path })
        });
        StartupFiles { files: files.collect(), seed }
    }

    /// The fields whose files have other content now. An unreadable file is skipped: it may be about to be replaced.
    fn changed(&self) -> impl Iterator<Item = &'static str> {
        let changed = self.files.iter().filter(|file| {
            let now = digest(&self.seed, &file.path);
            now.is_some() && now != file.digest
        });
        changed.map(|file| file.field)
    }
}

/// A digest of the content of a file.
fn digest(seed: &RandomState, path: &Path) -> Option<u64> {
    let mut content = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut content).ok()?;
    Some(seed.hash_one(content))
}
