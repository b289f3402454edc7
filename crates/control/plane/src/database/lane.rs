//! A thread that owns one connection, and the channel to it.
//!
//! Operations that wait together share one transaction and one sync of the disk; each has a savepoint of its own, so
//! that one that is refused leaves no trace and the others stand.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::open::Connector;
use super::session::Session;
use crate::error::PlaneError;

/// Operations that wait for the thread. Callers beyond it wait before they send.
const WAITING_MAX: usize = 1_024;
/// Operations of one transaction; more would delay the first answer.
const GROUP_MAX: usize = 64;

type OperationFuture<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// An operation that waits for the thread.
trait Operation: Send {
    /// Runs it within its savepoint. Returns whether its changes stay.
    fn run<'a>(&'a mut self, session: &'a mut Session) -> OperationFuture<'a>;
    /// Answers, after the commit.
    fn answer(self: Box<Self>, failure: Option<PlaneError>);
}

struct Call<T, F> {
    work: F,
    outcome: Option<Result<T, PlaneError>>,
    reply: oneshot::Sender<Result<T, PlaneError>>,
}

impl<T, F> Operation for Call<T, F>
where
    T: Send,
    F: AsyncFn(&mut Session) -> Result<T, PlaneError> + Send,
{
    fn run<'a>(&'a mut self, session: &'a mut Session) -> OperationFuture<'a> {
        Box::pin(async move {
            let outcome = (self.work)(session).await;
            let stays = outcome.is_ok();
            self.outcome = Some(outcome);
            stays
        })
    }

    fn answer(self: Box<Self>, failure: Option<PlaneError>) {
        let outcome = match failure {
            // Its own failure says more than the failure of the transaction.
            Some(failure) => self.outcome.filter(Result::is_err).unwrap_or(Err(failure)),
            None => self.outcome.unwrap_or_else(|| Err(ended())),
        };
        // The caller may have stopped waiting; the operation is done nevertheless.
        let _ = self.reply.send(outcome);
    }
}

fn ended() -> PlaneError {
    PlaneError::Unavailable("its thread has ended".to_owned())
}

/// The handle of the thread. The thread ends when the last handle is dropped.
pub(super) struct Lane {
    operations: Option<mpsc::Sender<Box<dyn Operation>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Lane {
    /// Starts the thread. Only one that `writes` may change anything.
    pub(super) fn start(
        name: &str,
        writes: bool,
        connector: Arc<Connector>,
    ) -> Result<Self, PlaneError> {
        let (operations, waiting) = mpsc::channel(WAITING_MAX);
        let unavailable = |error: std::io::Error| PlaneError::Unavailable(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(unavailable)?;
        let thread = thread::Builder::new()
            .name(format!("tidegate-{name}"))
            .spawn(move || runtime.block_on(run(&connector, writes, waiting)))
            .map_err(unavailable)?;
        Ok(Lane { operations: Some(operations), thread: Some(thread) })
    }

    /// Runs an operation on the thread, and waits for the commit.
    pub(super) async fn call<T, F>(&self, work: F) -> Result<T, PlaneError>
    where
        T: Send + 'static,
        F: AsyncFn(&mut Session) -> Result<T, PlaneError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let operation = Box::new(Call { work, outcome: None, reply });
        let operations = self.operations.as_ref().ok_or_else(ended)?;
        operations.send(operation).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Closing the channel ends the thread after the operations that wait; joining it closes the connection before
        // this returns.
        self.operations = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

async fn run(connector: &Connector, writes: bool, mut waiting: mpsc::Receiver<Box<dyn Operation>>) {
    let mut session = None;
    while let Some(first) = waiting.recv().await {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(operation) = waiting.try_recv()
        {
            group.push(operation);
        }
        let failure = run_group(connector, writes, &mut session, &mut group).await.err();
        group.into_iter().for_each(|operation| operation.answer(failure.clone()));
    }
}

/// Runs operations in one transaction. On failure nothing of them is known to be stored.
async fn run_group(
    connector: &Connector,
    writes: bool,
    kept: &mut Option<Session>,
    group: &mut [Box<dyn Operation>],
) -> Result<(), PlaneError> {
    let mut session = begin(connector, writes, kept.take()).await?;
    let outcome = run_transaction(&mut session, group).await;
    if outcome.is_err() {
        // A connection in an unknown state is not used again, unless it takes the transaction back.
        if session.batch("ROLLBACK").await.is_err() && matches!(session, Session::Sqlite { .. }) {
            // SQLite has taken it back by itself.
            *kept = Some(session);
            return outcome;
        }
    }
    if !session.is_closed() {
        *kept = Some(session);
    }
    outcome
}

/// A connection with an open transaction. One that the server has closed meanwhile is replaced: nothing was sent on it.
async fn begin(
    connector: &Connector,
    writes: bool,
    kept: Option<Session>,
) -> Result<Session, PlaneError> {
    if let Some(mut session) = kept.filter(|session| !session.is_closed())
        && session.batch(session.begin(writes)).await.is_ok()
    {
        return Ok(session);
    }
    let mut session = connector.connect().await?;
    session.batch(session.begin(writes)).await?;
    Ok(session)
}

async fn run_transaction(
    session: &mut Session,
    group: &mut [Box<dyn Operation>],
) -> Result<(), PlaneError> {
    for operation in group {
        session.batch("SAVEPOINT operation").await?;
        let end = match operation.run(session).await {
            true => "RELEASE SAVEPOINT operation",
            false => "ROLLBACK TO SAVEPOINT operation; RELEASE SAVEPOINT operation",
        };
        session.batch(end).await?;
    }
    session.batch("COMMIT").await
}
