//! The thread that reads on the beat.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use tidegate_row_table::{LineBuffer, RowTable};
use tidegate_snapshot_file::{
    Freshness, HEAD_BYTES, Position, SnapshotError, Trust, VerifiedSnapshot, content_hash_of, read,
};

use crate::fetch::SnapshotSource;
use crate::join::JoinFile;
use crate::kept_copy::{CopyReader, KeptCopy, NewCopy};
use crate::schedule::{BEAT_DEFAULT, Schedule};
use crate::status::{BeatOutcome, Origin, RetrieverHandle, RunningSnapshot, SharedStatus};

/// The copy on disk is written again after this many beats without a change, so that a disk error does not stay.
const KEEP_EVERY: u32 = 20;
/// How long a report of this node may take: it is of less use than the next beat.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How a retriever reads.
#[derive(Clone, Debug)]
pub struct RetrieverSettings {
    /// Where snapshots are, and whom to trust.
    pub join: JoinFile,
    /// The directory for the last good snapshot, for this process only.
    pub keep: PathBuf,
    /// The id of this node, from which the phase of its reads follows.
    pub node: String,
}

impl RetrieverSettings {
    /// Settings with these values.
    pub fn new(join: JoinFile, keep: impl Into<PathBuf>, node: impl Into<String>) -> Self {
        RetrieverSettings { join, keep: keep.into(), node: node.into() }
    }
}

/// Why a retriever cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory for the copy cannot be used.
    #[error("the directory {} for the last good snapshot cannot be used: {source}", path.display())]
    Keep {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The source in the join file cannot be used.
    #[error("the control plane in the join file cannot be used: {0}")]
    Source(String),
    /// The system gives no thread.
    #[error("the thread for snapshots cannot be started: {0}")]
    Thread(io::Error),
}

/// When this process began to count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartInstant(Instant);

impl Default for StartInstant {
    fn default() -> Self {
        #[expect(clippy::disallowed_methods, reason = "ages are real time")]
        StartInstant(Instant::now())
    }
}

impl StartInstant {
    pub(crate) fn elapsed(self) -> Duration {
        #[expect(clippy::disallowed_methods, reason = "ages are real time")]
        let now = Instant::now();
        now.saturating_duration_since(self.0)
    }
}

/// Accepts a snapshot; an error keeps what runs.
type Publish = Box<dyn FnMut(&VerifiedSnapshot) -> Result<(), String> + Send>;

/// Reads snapshots until it is dropped.
#[derive(Debug)]
pub struct Retriever {
    handle: RetrieverHandle,
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct StopSignal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Retriever {
    /// Starts from the kept copy, or else reads the source once, then reads on the beat. `publish` compiles a snapshot
    /// and puts it in place; it is called for every verified snapshot, new or not.
    ///
    /// # Errors
    /// When the directory or the URL cannot be used. A source that cannot be reached is no error.
    pub fn start(
        settings: RetrieverSettings,
        publish: impl FnMut(&VerifiedSnapshot) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, StartError> {
        let RetrieverSettings { join, keep, node } = settings;
        let kept = KeptCopy::open(&keep)
            .map_err(|source| StartError::Keep { path: keep.clone(), source })?;
        let source = SnapshotSource::of(&join).map_err(StartError::Source)?;
        let shared = Arc::new(SharedStatus::default());
        shared.status.lock().beat = BEAT_DEFAULT;
        let mut worker = Worker {
            trust: join.trust,
            source,
            kept,
            node,
            publish: Box::new(publish),
            shared: Arc::clone(&shared),
            beat: BEAT_DEFAULT,
            running: None,
            spare: None,
            since_kept: 0,
        };
        let stop = Arc::new(StopSignal::default());
        let (signal, (begun, has_begun)) = (Arc::clone(&stop), sync_channel(1));
        let thread = thread::Builder::new().name("tidegate-snapshot".to_owned());
        // On its own thread from the start: the caller may be one of a runtime, which must not be blocked by another.
        let thread = thread.spawn(move || {
            worker.begin();
            let _ = begun.send(());
            worker.run(&signal);
        });
        let thread = thread.map_err(StartError::Thread)?;
        // An error means that the thread ended, which its status shows.
        let _ = has_begun.recv();
        Ok(Retriever { handle: RetrieverHandle { shared }, stop, thread: Some(thread) })
    }

    /// Reads its state.
    pub fn handle(&self) -> RetrieverHandle {
        self.handle.clone()
    }
}

impl Drop for Retriever {
    fn drop(&mut self) {
        *self.stop.is_set.lock() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The snapshot in place.
struct PlacedSnapshot {
    position: Position,
    content_hash: [u8; 32],
    table: RowTable,
}

struct Worker {
    trust: Trust,
    source: SnapshotSource,
    kept: KeptCopy,
    node: String,
    publish: Publish,
    shared: Arc<SharedStatus>,
    beat: Duration,
    running: Option<PlacedSnapshot>,
    /// The table that ran before, to be filled again when requests have let go of it.
    spare: Option<RowTable>,
    /// Beats since the copy was written.
    since_kept: u32,
}

/// A report of this node, as the control plane takes it.
#[derive(Serialize)]
struct NodeReport<'r> {
    ring: &'r str,
    program: &'static str,
    epoch: u64,
    sequence: u64,
    version: u64,
    content: &'r str,
    age_seconds: u64,
    outcome: &'r str,
    error: &'r str,
    switches: [String; 0],
}

impl Worker {
    /// Uses the kept copy; without one, reads the source at once.
    fn begin(&mut self) {
        match self.read_kept(None) {
            Ok(snapshot) => match self.hand_on(&snapshot) {
                Ok(()) => self.run_snapshot(snapshot, Origin::KeptCopy),
                Err(error) => self.note_beat("rules", Some(error)),
            },
            Err(_) => self.beat(),
        }
    }

    fn run(mut self, stop: &StopSignal) {
        let started = self.shared.started;
        let mut schedule = Schedule::new(&self.node, self.beat, started.elapsed());
        let mut is_set = stop.is_set.lock();
        while !*is_set {
            let patience = schedule.next().saturating_sub(started.elapsed());
            if patience.is_zero() {
                drop(is_set);
                self.beat();
                self.report();
                schedule.set_beat(self.beat);
                schedule.plan(started.elapsed());
                is_set = stop.is_set.lock();
            } else {
                stop.changed.wait_for(&mut is_set, patience);
            }
        }
    }

    /// The work of a beat: the same whatever changed and whatever fails.
    fn beat(&mut self) {
        let started = self.shared.started.elapsed();
        let spare = self.spare.take().and_then(RowTable::into_buffer);
        let mut copy = None;
        let (outcome, error): (BeatOutcome, _) = match self.read_source(spare, &mut copy) {
            Ok(snapshot) => match self.hand_on(&snapshot) {
                Ok(()) => {
                    let outcome = match snapshot.freshness {
                        Freshness::Newer => "new",
                        Freshness::Same => "same",
                    };
                    self.keep(copy);
                    self.run_snapshot(snapshot, Origin::Source);
                    (outcome, None)
                }
                Err(error) => ("rules", Some(error)),
            },
            Err(error) => {
                self.work_on_kept();
                (error.reason(), Some(error.to_string()))
            }
        };
        self.note_beat(outcome, error);
        self.shared.status.lock().last_work = self.shared.started.elapsed().saturating_sub(started);
    }

    /// Reads the source. The bytes are copied to the disk on the way if their content is new.
    fn read_source(
        &mut self,
        spare: Option<LineBuffer>,
        copy: &mut Option<NewCopy>,
    ) -> Result<VerifiedSnapshot, SnapshotError> {
        let mut source = self.source.open(self.beat / 2).map_err(SnapshotError::Unreadable)?;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let bytes = (&mut source).take(HEAD_BYTES as u64).read_to_end(&mut head);
        bytes.map_err(SnapshotError::Unreadable)?;
        let running = self.running.as_ref();
        let is_new = running.map(|running| running.content_hash) != content_hash_of(&head);
        self.since_kept = self.since_kept.saturating_add(1);
        if is_new || self.since_kept >= KEEP_EVERY {
            match self.kept.begin() {
                Ok(new) => *copy = Some(new),
                Err(error) => self.note_keep(Some(error)),
            }
        }
        let last = running.map(|running| running.position);
        let source = head.as_slice().chain(source);
        let mut source = CopyReader { source, copy: copy.as_mut() };
        read(&mut source, &self.trust, last.as_ref(), spare)
    }

    /// The work of a beat on the kept copy, so that a dead source costs what a living one costs; it also notices a
    /// copy that the disk has damaged.
    fn work_on_kept(&mut self) {
        let Some(content_hash) = self.running.as_ref().map(|running| running.content_hash) else {
            return;
        };
        match self.read_kept(None) {
            Ok(snapshot) if snapshot.head.content_hash == content_hash => {
                if self.hand_on(&snapshot).is_ok() {
                    self.replace_table(snapshot.content.table);
                }
            }
            // The copy is of other content than what runs: it could not be written.
            Ok(_) => {}
            Err(_) => self.since_kept = KEEP_EVERY,
        }
    }

    fn read_kept(&self, spare: Option<LineBuffer>) -> Result<VerifiedSnapshot, SnapshotError> {
        let mut kept = self.kept.read().map_err(SnapshotError::Unreadable)?;
        read(&mut kept, &self.trust, None, spare)
    }

    /// Hands a snapshot on. A panic there is an error: this thread must not end.
    fn hand_on(&mut self, snapshot: &VerifiedSnapshot) -> Result<(), String> {
        let publish = &mut self.publish;
        catch_unwind(AssertUnwindSafe(|| publish(snapshot)))
            .unwrap_or_else(|_| Err("putting it in place panicked".to_owned()))
    }

    fn keep(&mut self, copy: Option<NewCopy>) {
        let Some(copy) = copy else { return };
        match self.kept.commit(copy) {
            Ok(()) => {
                self.since_kept = 0;
                self.note_keep(None);
            }
            Err(error) => {
                self.since_kept = KEEP_EVERY;
                self.note_keep(Some(error));
            }
        }
    }

    fn run_snapshot(&mut self, snapshot: VerifiedSnapshot, origin: Origin) {
        let (position, head) = (snapshot.position(), &snapshot.head);
        let stamp = &head.stamp;
        self.beat = match stamp.beat_ms {
            0 => head.class.beat(),
            millis => Duration::from_millis(millis.into()),
        };
        let content = head.content_hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut status = self.shared.status.lock();
        status.beat = self.beat;
        status.running = Some(RunningSnapshot {
            epoch: stamp.epoch,
            sequence: stamp.sequence,
            version: stamp.version,
            content,
            published_at: stamp.published_at,
            content_at: stamp.content_at,
            rows: head.rows,
            rows_max: head.class.rows_max() as u64,
            origin,
        });
        drop(status);
        if snapshot.freshness == Freshness::Newer && origin == Origin::Source {
            *self.shared.accepted_at.lock() = Some(self.shared.started.elapsed());
        }
        let content_hash = head.content_hash;
        let table = snapshot.content.table;
        self.replace_table(table.clone());
        self.running = Some(PlacedSnapshot { position, content_hash, table });
    }

    fn replace_table(&mut self, table: RowTable) {
        if let Some(running) = &mut self.running {
            self.spare = Some(std::mem::replace(&mut running.table, table));
        }
    }

    fn note_beat(&self, outcome: BeatOutcome, error: Option<String>) {
        let mut status = self.shared.status.lock();
        *status.beats.entry(outcome).or_default() += 1;
        status.last_outcome = Some(outcome);
        status.last_error = error;
    }

    fn note_keep(&self, error: Option<io::Error>) {
        self.shared.status.lock().keep_error = error.map(|error| error.to_string());
    }

    fn report(&self) {
        let status = RetrieverHandle { shared: Arc::clone(&self.shared) }.status();
        let Some(running) = &status.running else { return };
        let report = NodeReport {
            ring: self.trust.ring.as_deref().unwrap_or_default(),
            program: env!("CARGO_PKG_VERSION"),
            epoch: running.epoch,
            sequence: running.sequence,
            version: running.version,
            content: &running.content,
            age_seconds: status.age.unwrap_or_default().as_secs(),
            outcome: status.last_outcome.unwrap_or_default(),
            error: status.last_error.as_deref().unwrap_or_default(),
            switches: [],
        };
        self.source.report(&self.node, &report, REPORT_TIMEOUT.min(self.beat / 4));
    }
}
