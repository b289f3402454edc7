//! The client's loop on a runtime that the test stops and continues: a starved thread.

use tidegate_test_servers::relay::Relay;
use tidegate_test_servers::server::Server;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use super::*;
use crate::cluster_slots::slot_of;

/// Replies with the body of each call.
const ECHO: &str = "
local out = {'1', '0'}
for i = 2, #ARGV do out[i + 1] = ARGV[i] end
redis.call('INCR', 'calls')
return out
";

/// Shorter than the thread is stopped for.
const DEADLINE: Duration = Duration::from_millis(50);

/// A client whose loop runs only while the test polls it.
struct StoppableClient {
    client: BatchingClient,
    runtime: Runtime,
    tasks: LocalSet,
}

impl StoppableClient {
    fn to(relay: &Relay) -> Self {
        let settings = Arc::new(RedisSettings::parse(&relay.url()).unwrap());
        let dialer = Dialer::new(Arc::clone(&settings)).unwrap();
        let (sender, jobs) = mpsc::channel(settings.queue);
        let (publish, published) = watch::channel(PublishedState::disconnected(now()));
        let state = Arc::new(ClientState::default());
        let worker = Worker::new(dialer, ECHO.into(), jobs, publish, Arc::clone(&state));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let tasks = LocalSet::new();
        tasks.spawn_local(worker.run());
        let inbox = Inbox { sender, state: Arc::clone(&state) };
        let client = BatchingClient { inbox, open_max: settings.queue, state, published };
        let stoppable = StoppableClient { client, runtime, tasks };
        stoppable.run_until(|client| client.state().is_connected());
        stoppable
    }

    /// Runs the loop until the condition holds.
    fn run_until(&self, mut condition: impl FnMut(&BatchingClient) -> bool) {
        self.tasks.block_on(&self.runtime, async {
            while !condition(&self.client) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

fn call() -> ScriptCall {
    ScriptCall {
        tag: slot_of(b"k"),
        keys: std::iter::once(b"k".as_slice().into()).collect(),
        body: b"body".iter().copied().collect(),
    }
}

/// Blocks until the condition holds; the thread of the loop does nothing meanwhile.
fn block_until(mut condition: impl FnMut() -> bool) {
    tidegate_test_servers::eventually("the condition", || condition().then_some(()));
}

#[test]
fn a_reply_in_the_socket_counts_however_late_the_thread_is_scheduled() {
    let server = Server::redis();
    let relay = Relay::to(server.port());
    let stoppable = StoppableClient::to(&relay);
    relay.hold_replies();
    let deadline = now() + DEADLINE;
    let mut sent = std::pin::pin!(stoppable.client.send(call(), DEADLINE));
    let counted = || server.ask(&["GET", "calls"]).text().as_deref() == Some("1");
    // Runs the loop until the server has run the call; the reply is held back.
    stoppable.tasks.block_on(&stoppable.runtime, async {
        while !counted() {
            let pending = tokio::time::timeout(Duration::from_millis(1), sent.as_mut()).await;
            assert!(pending.is_err(), "the reply is held back: {pending:?}");
        }
    });
    // The thread is stopped: the reply arrives, and the deadline passes.
    relay.release_replies();
    block_until(|| now() > deadline + DEADLINE);
    let reply = stoppable.tasks.block_on(&stoppable.runtime, sent);
    assert_eq!(reply.map(|reply| reply.body), Ok(b"body".to_vec()));
}

#[test]
fn a_reply_that_has_not_arrived_by_the_deadline_is_late() {
    let server = Server::redis();
    let relay = Relay::to(server.port());
    let stoppable = StoppableClient::to(&relay);
    relay.hold_replies();
    let sent = stoppable.client.send(call(), DEADLINE);
    let reply = stoppable.tasks.block_on(&stoppable.runtime, sent);
    assert_eq!(reply, Err(LinkError::Timeout { waited: DEADLINE }));
    assert!(stoppable.client.is_answering(0), "the connection stays: slow is not dead");
    relay.release_replies();
    let next = stoppable.client.send(call(), Duration::from_secs(10));
    assert!(stoppable.tasks.block_on(&stoppable.runtime, next).is_ok());
}
