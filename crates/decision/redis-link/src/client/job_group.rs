//! Groups the script calls of callers on one thread, so that they reach the client's thread in one message, and their
//! replies the callers in another.
//!
//! A message to another thread is a syscall and, on a busy processor, two context switches. Callers of one runtime get
//! ready together: after one read of a client's socket, or one reply of the server. So the first of them opens a group
//! and spawns a task on its runtime, which runs after the callers that are ready. That task sends the jobs of the group
//! as one message, and later passes the replies on, which wakes callers of the same runtime without a syscall.

use std::cell::RefCell;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::{Notify, mpsc};

use super::ClientState;
use super::job::{Job, JobBatch, ReplySender};
use super::{queue_full, thread_ended};
use crate::script::ScriptReply;

/// Jobs in one group: as many as fit into a pipeline.
const GROUP_JOBS_MAX: usize = 128;

/// From so many jobs on a group waits for more: a larger call costs the server less for each.
const MANY_JOBS: usize = 32;

thread_local! {
    /// The group that callers on this thread may join.
    static OPEN_GROUP: RefCell<Weak<JobGroup>> = const { RefCell::new(Weak::new()) };
}

/// The way of jobs to the client's thread.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    pub(super) sender: mpsc::Sender<JobBatch>,
    pub(super) state: Arc<ClientState>,
}

/// Jobs that are sent together.
#[derive(Debug)]
pub(super) struct JobGroup {
    inbox: Inbox,
    /// The runtime of the task that sends them. Another one may run while this one stands still.
    runtime: Id,
    /// `None` once they were sent.
    jobs: Mutex<Option<JobBatch>>,
    /// Replies that their callers have not got yet.
    replies: Mutex<Vec<(ReplySender<ScriptReply>, ScriptReply)>>,
    /// Jobs that are neither answered nor failed.
    unanswered: AtomicUsize,
    /// Notified when the group has replies, and when no job is unanswered.
    changed: Notify,
}

/// A job's membership in a group, which ends with the job.
#[derive(Debug)]
pub(super) struct Membership(Arc<JobGroup>);

impl Inbox {
    /// Sends a job together with others of this thread, after the callers that are ready. Without a runtime it is sent
    /// now.
    pub(super) fn send_grouped(&self, job: Job) {
        let Ok(runtime) = Handle::try_current() else { return self.send(JobBatch::from([job])) };
        OPEN_GROUP.with_borrow_mut(|open| {
            let current = open.upgrade().filter(|group| group.is_of(self, runtime.id()));
            let Some(job) = (match current {
                Some(group) => group.add(job),
                None => Some(job),
            }) else {
                return;
            };
            let group = Arc::new(JobGroup::new(self.clone(), runtime.id()));
            *open = Arc::downgrade(&group);
            group.add(job);
            runtime.spawn(GroupTask(group).run());
        });
    }

    /// Sends jobs now. If that is impossible, they fail.
    pub(super) fn send(&self, jobs: JobBatch) {
        let (jobs, error) = match self.sender.try_send(jobs) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(jobs)) => (jobs, queue_full()),
            Err(mpsc::error::TrySendError::Closed(jobs)) => (jobs, thread_ended()),
        };
        jobs.into_iter().for_each(|job| job.fail(&error, &self.state.counters));
    }
}

impl JobGroup {
    fn new(inbox: Inbox, runtime: Id) -> Self {
        JobGroup {
            inbox,
            runtime,
            jobs: Mutex::new(Some(JobBatch::new())),
            replies: Mutex::default(),
            unanswered: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    /// Whether it is one of this client and this runtime.
    fn is_of(&self, inbox: &Inbox, runtime: Id) -> bool {
        Arc::ptr_eq(&self.inbox.state, &inbox.state) && self.runtime == runtime
    }

    /// Adds a job; returns it if the group was sent already, or is full.
    fn add(self: &Arc<Self>, mut job: Job) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        let Some(open) = jobs.as_mut().filter(|jobs| jobs.len() < GROUP_JOBS_MAX) else {
            return Some(job);
        };
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        job.membership = Some(Membership(Arc::clone(self)));
        open.push(job);
        None
    }

    /// Whether to look for further callers before the jobs are sent. A runtime of one thread polls the task of the group
    /// after all callers that were ready, so that few jobs mean that few callers call the server; others may poll it first.
    fn waits_for_more(&self) -> bool {
        let is_first = Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread;
        is_first || self.jobs.lock().as_ref().is_some_and(|jobs| jobs.len() >= MANY_JOBS)
    }

    /// Sends the jobs, once.
    fn send(&self) {
        let jobs = self.jobs.lock().take();
        if let Some(jobs) = jobs {
            self.inbox.send(jobs);
        }
    }

    /// Passes the replies on to their callers.
    fn pass_replies_on(&self) {
        for (caller, reply) in mem::take(&mut *self.replies.lock()) {
            // An error means that the caller's future was dropped.
            let _ = caller.send(Ok(reply));
        }
    }
}

/// Sends the group, at the latest when the task is dropped with its runtime, and passes replies on.
struct GroupTask(Arc<JobGroup>);

impl GroupTask {
    async fn run(self) {
        let group = &self.0;
        if group.waits_for_more() {
            // The runtime polls its sockets first, so that callers that get ready join.
            tokio::task::yield_now().await;
        }
        group.send();
        // The thread with the connections, and a server on this processor, run before this thread's next callers: a
        // thread that is never idle keeps the processor for its whole time slice, here 1.4 ms, while these callers wait.
        thread::yield_now();
        while group.unanswered.load(Ordering::Acquire) > 0 {
            group.changed.notified().await;
            group.pass_replies_on();
        }
        group.pass_replies_on();
    }
}

impl Drop for GroupTask {
    fn drop(&mut self) {
        self.0.send();
        self.0.pass_replies_on();
    }
}

impl Membership {
    /// Answers a job of the group. Its caller gets the reply after [`Membership::deliver`].
    pub(super) fn put_reply(&self, caller: ReplySender<ScriptReply>, reply: ScriptReply) {
        self.0.replies.lock().push((caller, reply));
    }

    /// Whether both are of the same group.
    pub(super) fn is_same(&self, other: &Membership) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Lets callers have their replies.
    pub(super) fn deliver(&self) {
        self.0.changed.notify_one();
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.0.unanswered.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_one();
        }
    }
}
