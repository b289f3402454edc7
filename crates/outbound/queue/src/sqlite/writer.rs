//! The thread that owns the connection, and the channel to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tidegate_algorithms::{Clock, Timestamp};
use tidegate_data_dir::DataDir;
use tokio::sync::{mpsc, oneshot};

use super::state::Engine;
use crate::error::QueueError;

/// Operations that wait for the writer. Callers beyond it wait before they send.
const WAITING_MAX: usize = 1_024;
/// Operations of one transaction; more would delay the first answer.
const GROUP_MAX: usize = 256;

/// An operation that waits for the writer.
trait Job: Send {
    /// Runs it within the open transaction. Returns false if the transaction has to be rolled back.
    fn run(&mut self, engine: &mut Engine) -> bool;
    /// Answers, after the commit.
    fn answer(self: Box<Self>, failure: Option<QueueError>);
}

struct Call<T, F> {
    operation: F,
    outcome: Option<Result<T, QueueError>>,
    reply: oneshot::Sender<Result<T, QueueError>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnMut(&mut Engine) -> Result<T, QueueError> + Send,
{
    fn run(&mut self, engine: &mut Engine) -> bool {
        let outcome = (self.operation)(engine);
        // These operations end before their first change.
        let kept = matches!(
            outcome,
            Ok(_)
                | Err(QueueError::Full(_)
                    | QueueError::NeverFits { .. }
                    | QueueError::InvalidRecord { .. }
                    | QueueError::InvalidSettings(_)
                    | QueueError::Unsupported(_))
        );
        self.outcome = Some(outcome);
        kept
    }

    fn answer(self: Box<Self>, failure: Option<QueueError>) {
        let ended = || Err(QueueError::Unavailable("the writer has ended".to_owned()));
        let outcome = match failure {
            // Its own failure says more than the failure of the commit.
            Some(failure) => self.outcome.filter(Result::is_err).unwrap_or(Err(failure)),
            None => self.outcome.unwrap_or_else(ended),
        };
        // The caller may have stopped waiting; its operation is done nevertheless.
        let _ = self.reply.send(outcome);
    }
}

/// The handle of the writer thread. The thread ends when the last handle is dropped.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<thread::JoinHandle<()>>,
    clock: Arc<dyn Clock>,
    location: PathBuf,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(
        engine: Engine,
        directory: Option<Arc<DataDir>>,
    ) -> Result<Arc<Self>, QueueError> {
        let (jobs, waiting) = mpsc::channel(WAITING_MAX);
        let clock = Arc::clone(&engine.clock);
        let location = engine.path.clone();
        let thread = thread::Builder::new()
            .name("tidegate-queue".to_owned())
            .spawn(move || {
                run(engine, waiting);
                // The lock outlives the connection.
                drop(directory);
            })
            .map_err(|error| QueueError::Unavailable(error.to_string()))?;
        Ok(Arc::new(Writer { jobs: Some(jobs), thread: Some(thread), clock, location }))
    }

    /// Runs an operation on the writer thread and waits for the commit.
    pub(super) async fn call<T, F>(&self, operation: F) -> Result<T, QueueError>
    where
        T: Send + 'static,
        F: FnMut(&mut Engine) -> Result<T, QueueError> + Send + 'static,
    {
        let ended = || QueueError::Unavailable("the writer has ended".to_owned());
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Call { operation, outcome: None, reply });
        self.jobs.as_ref().ok_or_else(ended)?.send(job).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn location(&self) -> &Path {
        &self.location
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Closing the channel ends the thread after the operations that wait. Joining it releases the data directory
        // before this returns, so that it can be opened again.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("location", &self.location).finish_non_exhaustive()
    }
}

fn run(mut engine: Engine, mut waiting: mpsc::Receiver<Box<dyn Job>>) {
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(job) = waiting.try_recv()
        {
            group.push(job);
        }
        match run_group(&mut engine, &mut group) {
            Ok(()) => group.into_iter().for_each(|job| job.answer(None)),
            Err(failure) if group.len() == 1 => {
                group.into_iter().for_each(|job| job.answer(Some(failure.clone())));
            }
            Err(_) => {
                for job in group {
                    let mut alone = [job];
                    let failure = run_group(&mut engine, &mut alone).err();
                    let [job] = alone;
                    job.answer(failure);
                }
            }
        }
    }
}

/// Runs operations in one transaction. On failure nothing of them is done.
fn run_group(engine: &mut Engine, group: &mut [Box<dyn Job>]) -> Result<(), QueueError> {
    engine.begin()?;
    for job in group {
        if !job.run(engine) {
            engine.roll_back();
            return Err(QueueError::Unavailable("the transaction was rolled back".to_owned()));
        }
    }
    engine.commit().inspect_err(|_| engine.roll_back())
}
