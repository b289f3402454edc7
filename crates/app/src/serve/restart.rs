//! What takes a restart: what changed in the configuration while the service runs.
//!
//! Addresses, certificates' places, limits of connections and protection are fixed at the start,
//! as all fields of the configuration are, and so is what stood in the few files that are read
//! at the start only. Who changes one is told by the name of its field that it
//! waits for a restart, instead of wondering. What a secret was or is, is told nobody. Flags and
//! variables are those of the start.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tidegate_sources::{DocumentSource, NamedFiles, Watch, WatchEvent, WatchHandle};

use super::{rules, system};
use crate::config::{Config, Input, changed, resolve};
use crate::exit::Failure;

/// Tokens, keys and certificates are shorter; what is behind this many bytes of a file is not compared.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Watches the file of the configuration, and files that are read at the start only.
#[derive(Debug)]
pub(super) struct Restart {
    watch: Option<Watch>,
}

impl Restart {
    /// Begins to watch, if the configuration has a file.
    pub(super) fn start(config: &Config, input: Input) -> Result<Self, Failure> {
        let Some(path) = path(&input) else { return Ok(Restart { watch: None }) };
        let running = config.clone();
        let read = ReadOnce::of(config);
        let named = NamedFiles::default();
        named.set(read.files.iter().map(|file| file.path.clone()).collect());
        #[expect(clippy::disallowed_methods, reason = "the watch wants a date")]
        let watch = Watch::of(DocumentSource::new(path, named), SystemTime::now)
            .settings(rules::watch_settings(&config.rules, config.rules.watch))
            .report(report)
            .start_document(move |sources| {
                for field in read.changed() {
                    tracing::warn!(field, "the file that it names has changed: it takes a restart");
                }
                let file = sources.first().cloned();
                let loaded = resolve(&Input { file, ..input.clone() })?;
                for field in changed(&running, &loaded.config) {
                    tracing::warn!(field, "changed in the configuration: it takes a restart");
                }
                Ok(Vec::new())
            })
            .map_err(|error| system("the configuration cannot be watched", &error))?;
        Ok(Restart { watch: Some(watch) })
    }

    pub(super) fn handle(&self) -> Option<WatchHandle> {
        self.watch.as_ref().map(|watch| watch.handle().clone())
    }

    pub(super) fn stop(self) {
        if let Some(watch) = self.watch {
            watch.stop();
        }
    }
}

/// The files that are read at the start only, as they were then. Nothing of their content is kept.
#[derive(Debug)]
struct ReadOnce {
    files: Vec<FileRead>,
    /// Drawn at random, so that what is kept says nothing of a secret.
    seed: RandomState,
}

#[derive(Debug)]
struct FileRead {
    /// The field that names it.
    field: &'static str,
    path: PathBuf,
    digest: Option<u64>,
}

impl ReadOnce {
    fn of(config: &Config) -> Self {
        let seed = RandomState::new();
        let (debug, redis) = (&config.debug, &config.store.redis);
        // The token itself wins over its file; without a store there is nobody to be shown to.
        let token = debug.token_file.as_ref().filter(|_| debug.token.is_none());
        let tls = redis.url.as_ref().map(|_| &redis.tls);
        let named = [
            ("debug.token_file", token),
            ("store.redis.tls.ca", tls.and_then(|tls| tls.ca.as_ref())),
            ("store.redis.tls.cert", tls.and_then(|tls| tls.cert.as_ref())),
            ("store.redis.tls.key", tls.and_then(|tls| tls.key.as_ref())),
        ];
        let named = named.into_iter().filter_map(|(field, path)| Some((field, path?.clone())));
        let files = named.map(|(field, path)| {
            let digest = digest(&seed, &path);
            FileRead { field, path, digest }
        });
        ReadOnce { files: files.collect(), seed }
    }

    /// The fields whose files have another content now. One that cannot be read may be on its way.
    fn changed(&self) -> impl Iterator<Item = &'static str> {
        let other = self.files.iter().filter(|file| {
            let now = digest(&self.seed, &file.path);
            now.is_some() && now != file.digest
        });
        other.map(|file| file.field)
    }
}

/// A number for the content of a file.
fn digest(seed: &RandomState, path: &Path) -> Option<u64> {
    let mut content = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut content).ok()?;
    Some(seed.hash_one(content))
}

/// Where the file is; what was piped in is nowhere.
fn path(input: &Input) -> Option<PathBuf> {
    let path = PathBuf::from(&input.file.as_ref()?.name);
    Path::is_file(&path).then_some(path)
}

/// Tells the log what is wrong. What is right is told by field.
fn report(event: WatchEvent<'_>) {
    if let WatchEvent::Failed(failure) = event {
        let problems = &failure.error;
        tracing::error!(%problems, "the changed configuration would not start");
    }
}
