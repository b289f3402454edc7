//! Rules from a control plane: snapshots instead of rule files.
//!
//! A retriever reads and verifies snapshots on the beat. The watch of the rules compiles each of them and puts it in
//! place, as it does with files, so that every page and metric of the rules is the same. Switches of a snapshot are
//! applied when they change; hashes of API keys go to a file that the document of the gateway can name.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidegate_admin::{ControlReading, LimiterName, Switchboard};
use tidegate_data_dir::DataDir;
use tidegate_engine::{Engine, Mode, Target};
use tidegate_metrics::Collector;
use tidegate_retriever::{JoinFile, Retriever, RetrieverSettings};
use tidegate_rules::{Rows, Snapshot, Source, compile_with_rows};
use tidegate_snapshot_file::{SwitchSetting, SwitchTarget, VerifiedSnapshot};
use tidegate_sources::{
    Cause, Fault, LoadError, TextSource, Watch, WatchEvent, WatchHandle, WatchedPaths,
};

use super::store::ServiceStore;
use super::watch::{self, FIRST_LOAD_MAX};
use super::{ServeArgs, system_failure};
use crate::config::Config;
use crate::exit::{Complaint, Failure};

/// The directory below `data_dir` with the last good snapshot.
const DIRECTORY: &str = "control";
/// The file in it with the hashes of API keys.
const API_KEYS: &str = "api-keys";
/// The name of the source that says which snapshot the rules are of.
const MARK: &str = "(snapshot)";

/// The control plane of this server.
#[derive(Debug)]
pub(super) struct ControlPlane {
    retriever: Retriever,
    shared: Arc<SharedRules>,
}

/// What the retriever hands to the watch of the rules.
#[derive(Default)]
struct SharedRules {
    directory: PathBuf,
    latest: Mutex<Option<Arc<LatestRules>>>,
    watch: OnceLock<WatchHandle>,
    switches: OnceLock<SwitchAppliers>,
    applied: Mutex<HashMap<SwitchTarget, String>>,
    /// The switches of the snapshot that was read before there was anything to switch.
    pending: Mutex<Vec<SwitchSetting>>,
    /// How many snapshots were handed on: each is compiled, changed or not.
    handed_on: Mutex<u64>,
}

impl std::fmt::Debug for SharedRules {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SharedRules").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Sets the mode of the limits that a target names, or restores it.
type SwitchLimits = Box<dyn Fn(Target<'_>, Option<Mode>) -> Result<(), String> + Send + Sync>;

struct SwitchAppliers {
    board: Arc<Switchboard>,
    limits: SwitchLimits,
}

/// The rules of the last snapshot.
#[derive(Debug)]
struct LatestRules {
    sources: Vec<Source>,
    rows: Rows,
}

/// The rules of the last snapshot, for the watch.
#[derive(Debug)]
struct SnapshotSource(Arc<SharedRules>);

impl TextSource for SnapshotSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        let latest = self.0.latest.lock().clone();
        latest.map(|latest| latest.sources.clone()).ok_or_else(|| {
            let cause = io::Error::other("no snapshot has been accepted yet");
            LoadError::new(vec![Fault { place: MARK.to_owned(), cause: Cause::Unreadable(cause) }])
        })
    }

    fn watched(&self) -> WatchedPaths {
        WatchedPaths::new()
    }
}

impl ControlPlane {
    /// Joins the control plane that the arguments name. Waits for the kept copy, or else for the first read.
    pub(super) fn start(config: &Config, args: &ServeArgs) -> Result<Option<Self>, Failure> {
        let Some(path) = &args.control else { return Ok(None) };
        let Some(data_dir) = &config.data_dir else {
            let message = "`--control` needs `data_dir`, for the last good snapshot";
            let help = "set it, such as `--set data_dir=/var/lib/tidegate`";
            return Err(Failure::Usage(Complaint::new(message, help)));
        };
        let help = "write it with `tidegate control init`";
        let join = JoinFile::read(path).map_err(|error| Complaint::new(error.to_string(), help))?;
        // Creates the directory with its format; the queue of the gateway opens it again.
        DataDir::open(data_dir).map_err(|error| {
            Complaint::new(error.to_string(), "choose a directory that only this process uses")
        })?;
        let directory = data_dir.join(DIRECTORY);
        let node = args.node.clone().unwrap_or_else(|| node_id(data_dir));
        let shared =
            Arc::new(SharedRules { directory: directory.clone(), ..SharedRules::default() });
        let handed_on = Arc::clone(&shared);
        let settings = RetrieverSettings::new(join, directory, node.clone());
        let retriever = Retriever::start(settings, move |snapshot| handed_on.accept(snapshot));
        let retriever = retriever.map_err(|error| {
            Complaint::new(error.to_string(), "check the join file and `data_dir`")
        })?;
        let status = retriever.handle().status();
        match &status.running {
            Some(running) => tracing::info!(
                node,
                version = running.version,
                sequence = running.sequence,
                rows = running.rows,
                origin = ?running.origin,
                "joined the control plane"
            ),
            None => tracing::warn!(
                node,
                error = status.last_error.unwrap_or_default(),
                "no snapshot yet: the next beat tries again"
            ),
        }
        Ok(Some(ControlPlane { retriever, shared }))
    }

    /// Compiles the snapshots, and puts them in place.
    pub(super) fn watch<S: ServiceStore>(
        &self,
        config: &Config,
        engine: &Arc<Engine<S>>,
        board: &Arc<Switchboard>,
        mut set_readiness: impl FnMut(bool) + Send + 'static,
    ) -> Result<Watch, Failure> {
        let switched = Arc::clone(engine);
        let limits: SwitchLimits = Box::new(move |target, mode| {
            let changed = match mode {
                Some(mode) => switched.set_switch(target, mode),
                None => switched.unset_switch(target),
            };
            changed.map(|_| ()).map_err(|error| error.to_string())
        });
        let appliers = SwitchAppliers { board: Arc::clone(board), limits };
        let _ = self.shared.switches.set(appliers);
        let (shared, engine) = (Arc::clone(&self.shared), Arc::clone(engine));
        let options = config.rule_options();
        let activate = move |_: &[Source]| {
            let latest = shared.latest.lock().clone();
            let (sources, rows) = match &latest {
                Some(latest) => (latest.rules(), latest.rows.clone()),
                None => (&[][..], Rows::default()),
            };
            let snapshot: Snapshot = compile_with_rows(sources, &rows, &options)?;
            let warnings = snapshot.warnings().to_vec();
            set_readiness(snapshot.domains().next().is_some());
            engine.install(snapshot);
            Ok(warnings)
        };
        let mut logged = String::new();
        let report = move |event: WatchEvent<'_>| {
            // Every beat puts a snapshot in place; a changed one is worth a line.
            if let WatchEvent::Published(texts) = &event {
                let mark = texts.sources.last().map(|mark| mark.text.as_str()).unwrap_or_default();
                let content = mark.split(" (").next().unwrap_or_default();
                if content == logged {
                    return;
                }
                content.clone_into(&mut logged);
                tracing::info!("activated the rules of {content}");
                return;
            }
            watch::log_event("the snapshot", &event);
        };
        let source = SnapshotSource(Arc::clone(&self.shared));
        let watch = watch::of(source, "the snapshot", &config.rules, false).report(report);
        let watch = watch.start_document(activate);
        let watch = watch.map_err(|error| system_failure("snapshots cannot be watched", &error))?;
        let handle = watch.handle();
        handle.wait_until(FIRST_LOAD_MAX, |status| status.looks > 0);
        let _ = self.shared.watch.set(handle.clone());
        let pending = std::mem::take(&mut *self.shared.pending.lock());
        if !pending.is_empty() {
            self.shared.apply_switches(&pending);
        }
        Ok(watch)
    }

    /// What the debug port shows of the snapshot that runs.
    pub(super) fn reader(&self) -> Box<dyn Fn() -> ControlReading + Send + Sync> {
        let handle = self.retriever.handle();
        Box::new(move || {
            let status = handle.status();
            let version = status.running.map(|running| running.version.to_string());
            ControlReading {
                version: version.unwrap_or_default(),
                age_s: status.age.unwrap_or_default().as_secs(),
                problem: status.last_error,
            }
        })
    }

    /// The metrics of snapshots.
    pub(super) fn collector(&self) -> Arc<dyn Collector> {
        Arc::new(self.retriever.handle())
    }
}

impl LatestRules {
    /// The rule documents, without the mark.
    fn rules(&self) -> &[Source] {
        self.sources.split_last().map(|(_, rules)| rules).unwrap_or_default()
    }
}

impl SharedRules {
    /// Compiles a snapshot and puts it in place; an error keeps what runs.
    fn accept(&self, snapshot: &VerifiedSnapshot) -> Result<(), String> {
        let number = {
            let mut handed_on = self.handed_on.lock();
            *handed_on += 1;
            *handed_on
        };
        let stamp = &snapshot.head.stamp;
        let documents = snapshot.content.rules.documents.iter();
        let mut sources: Vec<Source> =
            documents.map(|document| Source::new(&document.name, &document.text)).collect();
        let hash: String =
            snapshot.head.content_hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let mark = format!(
            "version {} with {} rows, content {hash} (epoch {}, sequence {}, read {number})",
            stamp.version, snapshot.head.rows, stamp.epoch, stamp.sequence
        );
        sources.push(Source::new(MARK, mark));
        let terms = snapshot.content.rules.terms.clone();
        let rows = Rows { terms, table: snapshot.content.table.clone() };
        let latest = Arc::new(LatestRules { sources, rows });
        let previous = self.latest.lock().replace(latest);
        if let Some(handle) = self.watch.get() {
            let ticket = handle.reload();
            let status = handle.wait_until(FIRST_LOAD_MAX, |status| status.answers(ticket));
            let failure = status.as_ref().and_then(|status| status.current_failure());
            if let Some(failure) = failure {
                *self.latest.lock() = previous;
                return Err(failure.error.to_string());
            }
        }
        self.keep_api_keys(&snapshot.content.keys).map_err(|error| error.to_string())?;
        self.apply_switches(&snapshot.content.switches);
        Ok(())
    }

    /// Writes the hashes of API keys, whole or not at all, where the document of the gateway can name them.
    fn keep_api_keys(&self, keys: &str) -> io::Result<()> {
        let path = self.directory.join(API_KEYS);
        if fs::read_to_string(&path).is_ok_and(|known| known == keys) {
            return Ok(());
        }
        let new = self.directory.join(format!("{API_KEYS}.new"));
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
        let mut file = options.open(&new)?;
        file.write_all(keys.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    /// Applies the switches that changed. What was switched at this node stays until the snapshot's setting changes.
    fn apply_switches(&self, settings: &[SwitchSetting]) {
        let Some(appliers) = self.switches.get() else {
            *self.pending.lock() = settings.to_vec();
            return;
        };
        #[expect(clippy::disallowed_methods, reason = "switches end at a date")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let holds = |setting: &&SwitchSetting| setting.until.is_none_or(|until| until > now);
        let wanted: HashMap<SwitchTarget, String> = settings
            .iter()
            .filter(holds)
            .map(|setting| (setting.target.clone(), setting.mode.clone()))
            .collect();
        let mut applied = self.applied.lock();
        for target in applied.keys().filter(|target| !wanted.contains_key(target)) {
            report_switch(target, "as the rules say", appliers.apply(target, None));
        }
        for (target, mode) in &wanted {
            if applied.get(target) != Some(mode) {
                let parsed = Mode::parse(mode).ok_or_else(|| format!("`{mode}` is no mode"));
                let result = parsed.and_then(|parsed| appliers.apply(target, Some(parsed)));
                report_switch(target, mode, result);
            }
        }
        *applied = wanted;
    }
}

fn report_switch(target: &SwitchTarget, mode: &str, result: Result<(), String>) {
    match result {
        Ok(()) => tracing::warn!(?target, mode, "the control plane switched this"),
        Err(error) => tracing::error!(?target, mode, error, "a switch cannot be applied"),
    }
}

impl SwitchAppliers {
    fn apply(&self, target: &SwitchTarget, mode: Option<Mode>) -> Result<(), String> {
        match target {
            SwitchTarget::All => {
                self.board.switch_off(mode == Some(Mode::Off));
                Ok(())
            }
            SwitchTarget::Limiter { limiter } => {
                let name = LimiterName::from_word(limiter);
                let name = name.ok_or_else(|| format!("no limiter is called `{limiter}`"))?;
                let switched = match mode {
                    Some(mode) => self.board.set(name, mode),
                    None => self.board.restore(name).is_some(),
                };
                if switched { Ok(()) } else { Err(format!("this server has no `{limiter}`")) }
            }
            SwitchTarget::Limit { domain, path, limit } => {
                let target = Target { domain, path, limit: limit.as_deref() };
                (self.limits)(target, mode)
            }
        }
    }
}

/// The id of this node: its host, and a hash of its data directory, so that two servers of a host differ.
fn node_id(data_dir: &Path) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let mut hasher = DefaultHasher::new();
    std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned()).hash(&mut hasher);
    let letters = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
    let host: String = host.chars().filter(|letter| letters(*letter)).collect();
    let host = if host.is_empty() { "node" } else { &host };
    format!("{host}-{:08x}", hasher.finish() & 0xFFFF_FFFF)
}
