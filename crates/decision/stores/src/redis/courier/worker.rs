//! The thread's loop: takes jobs in, sends shipments, hears answers, keeps time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{RedisError, ServerError, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::job::{Job, Note};
use super::meter::Meter;
use super::node::{LaneState, Node, Target};
use super::now;
use super::routes::Routes;
use super::shipment::{Script, Settled, Sharing, Shipment, pack};
use crate::counter_store::{FailureKind, StoreError};
use crate::redis::failure::{self, failure};
use crate::redis::link::LinkState;
use crate::redis::link::dial::{Dialer, Wire};
use crate::redis::link::slots::{SlotMap, Stretch};
use crate::redis::settings::{Password, RedisServers, Secret};

/// How many notes are taken before answers are looked at again.
const NOTES_MAX: usize = 1_024;

/// How long those are waited for who have an answer and may ask again: less
/// than a call takes.
const GATHER: Duration = Duration::from_micros(100);

/// How many of them are worth waiting for. Fewer are better off when the server
/// answers some while others ask.
const GATHER_MIN: usize = 64;

/// What others may know of the connections.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) state: LinkState,
    changed: Instant,
    /// Which node has which slot, in a cluster.
    pub(super) map: Option<Arc<SlotMap>>,
}

impl Published {
    pub(super) fn at(changed: Instant) -> Self {
        let state =
            LinkState { connected: 0, wanted: 1, since: Duration::ZERO, last_failure: None };
        Published { state, changed, map: None }
    }

    pub(super) fn at_age(&self, now: Instant) -> LinkState {
        let since = now.saturating_duration_since(self.changed);
        LinkState { since, ..self.state.clone() }
    }
}

/// What a task of the thread has to tell.
pub(super) enum Event {
    Dialed { node: usize, lane: usize, epoch: u64, made: Result<(Wire, String), StoreError> },
    Ended { node: usize, lane: usize, epoch: u64 },
    Answered { node: usize, lane: usize, epoch: u64, number: u64, answers: Answers },
    Mapped { map: Result<Vec<Stretch>, StoreError> },
    Password { read: Result<Option<Secret>, StoreError> },
}

type Answers = Result<Vec<Value>, RedisError>;

/// Everything that the thread owns.
pub(super) struct Worker {
    pub(super) dialer: Dialer,
    pub(super) script: Arc<str>,
    inbox: mpsc::Receiver<Note>,
    publish: watch::Sender<Published>,
    pub(super) meter: Arc<Meter>,
    instant: Arc<Mutex<Vec<u8>>>,
    /// Callers that wait for an answer, or have not taken it yet.
    open: Arc<AtomicUsize>,
    pub(super) nodes: Vec<Node>,
    pub(super) routes: Routes,
    pub(super) tasks: JoinSet<Event>,
    /// Jobs that are tried again in a moment.
    pub(super) later: Vec<(Instant, Job)>,
    /// The time of this turn of the loop.
    pub(super) now: Instant,
    /// The earliest deadline, or earlier.
    pub(super) expiry: Option<Instant>,
    pub(super) password_due: Option<Instant>,
    /// Numbers connections and shipments.
    pub(super) count: u64,
    /// Whether others have to be told how connections are.
    pub(super) changed: bool,
    pub(super) failure: Option<StoreError>,
}

impl Worker {
    pub(super) fn new(
        dialer: Dialer,
        script: Arc<str>,
        inbox: mpsc::Receiver<Note>,
        publish: watch::Sender<Published>,
        meter: Arc<Meter>,
        instant: Arc<Mutex<Vec<u8>>>,
        open: Arc<AtomicUsize>,
    ) -> Self {
        let now = now();
        let settings = &dialer.settings;
        let target = match &settings.servers {
            RedisServers::Single(address) => Some(Target::Address(address.clone())),
            RedisServers::Sentinels { .. } => Some(Target::Master),
            RedisServers::Cluster(_) => None,
        };
        let nodes = target.map(|target| Node::new(target, settings.connections, now));
        let rotates = matches!(settings.login.password, Password::File(_));
        Worker {
            script,
            inbox,
            publish,
            meter,
            instant,
            open,
            nodes: nodes.into_iter().collect(),
            routes: Routes::new(&settings.servers, now),
            tasks: JoinSet::new(),
            later: Vec::new(),
            now,
            expiry: None,
            password_due: rotates.then_some(now),
            count: 0,
            changed: true,
            failure: None,
            dialer,
        }
    }

    /// Runs until the courier is dropped.
    pub(super) async fn run(mut self) {
        let mut notes = Vec::with_capacity(NOTES_MAX);
        loop {
            self.turn();
            let wake = self.next_wake();
            tokio::select! {
                biased;
                Some(event) = self.tasks.join_next() => {
                    self.now = now();
                    self.hear(event.ok());
                }
                count = self.inbox.recv_many(&mut notes, NOTES_MAX) => {
                    if count == 0 {
                        return;
                    }
                    self.now = now();
                    notes.drain(..).for_each(|note| self.accept(note));
                }
                () = tokio::time::sleep_until(wake.into()) => self.now = now(),
            }
            while let Some(event) = self.tasks.try_join_next() {
                self.hear(event.ok());
            }
        }
    }

    fn turn(&mut self) {
        self.keep_time();
        self.gather();
        self.ship();
        if std::mem::take(&mut self.changed) {
            self.tell();
        }
    }

    /// Lets those come along who are about to ask. Many are answered by one call,
    /// and on the way to their next question when the first of them is here: it
    /// should not leave alone. Few callers wait for nobody.
    fn gather(&mut self) {
        let until = self.now + GATHER;
        while self.stirring() >= GATHER_MIN.max(self.waiting()) && self.is_ready() && now() < until
        {
            thread::yield_now();
            while let Ok(note) = self.inbox.try_recv() {
                self.accept(note);
            }
        }
    }

    /// How many callers have an answer that they have not taken yet, or a
    /// question that has not been looked at.
    fn stirring(&self) -> usize {
        let out: usize = self.nodes.iter().map(Node::out).sum();
        self.open.load(Ordering::Relaxed).saturating_sub(out + self.kept())
    }

    fn waiting(&self) -> usize {
        self.nodes.iter().map(|node| node.waiting.len()).sum()
    }

    /// How many are here and not out, whatever they wait for.
    fn kept(&self) -> usize {
        self.waiting() + self.routes.unrouted() + self.later.len()
    }

    /// Whether a shipment may leave now.
    fn is_ready(&self) -> bool {
        self.nodes.iter().any(|node| !node.waiting.is_empty() && node.next_lane().is_some())
    }

    fn accept(&mut self, note: Note) {
        let full = self.kept() >= self.queue_max();
        note.open(|job| {
            if full {
                let why = failure(FailureKind::Overloaded, "too many checks wait for it already");
                job.fail(&why, &self.meter);
                return;
            }
            self.expiry = Some(self.expiry.map_or(job.until, |next| next.min(job.until)));
            self.route(job);
        });
    }

    fn queue_max(&self) -> usize {
        self.dialer.settings.queue
    }

    fn hear(&mut self, event: Option<Event>) {
        match event {
            // A task of ours does not panic; if one did, the silence is noticed.
            None => {}
            Some(Event::Dialed { node, lane, epoch, made }) => {
                self.on_dialed(node, lane, epoch, made);
            }
            Some(Event::Ended { node, lane, epoch }) => self.on_ended(node, lane, epoch),
            Some(Event::Answered { node, lane, epoch, number, answers }) => {
                self.on_answers(node, lane, epoch, number, answers);
            }
            Some(Event::Mapped { map }) => self.on_map(map),
            Some(Event::Password { read }) => self.on_password(read),
        }
    }

    fn ship(&mut self) {
        for at in 0..self.nodes.len() {
            self.give_up_hopeless(at);
            // Each turn of the loop adds to what is out, and that has a maximum.
            while let Some((lane, jobs)) = self.next_load(at) {
                self.send(at, lane, jobs);
            }
        }
    }

    fn give_up_hopeless(&mut self, at: usize) {
        let Some(node) = self.nodes.get_mut(at) else { return };
        if node.waiting.is_empty() {
            return;
        }
        if let Some(why) = node.hopeless().cloned() {
            let jobs = std::mem::take(&mut node.waiting);
            self.fail_all(jobs, &why);
        }
    }

    fn next_load(&mut self, at: usize) -> Option<(usize, Vec<Job>)> {
        let node = self.nodes.get_mut(at)?;
        let lane = node.next_lane()?;
        let jobs = node.take_load(self.now, &self.meter);
        (!jobs.is_empty()).then_some((lane, jobs))
    }

    fn send(&mut self, at: usize, lane: usize, jobs: Vec<Job>) {
        let sharing = if self.routes.is_cluster() { Sharing::SameTag } else { Sharing::All };
        let Some(node) = self.nodes.get_mut(at) else { return };
        let reload = std::mem::take(&mut node.reload);
        let Some(place) = node.lanes.get_mut(lane) else { return };
        let LaneState::Up { wire, hash } = &place.state else { return };
        let script = Script { text: &self.script, hash };
        let (commands, calls) = pack(jobs, script, sharing, reload, &self.instant.lock());
        self.count += 1;
        let (number, epoch) = (self.count, place.epoch);
        let answers = wire.send(commands);
        self.tasks.spawn(async move {
            Event::Answered { node: at, lane, epoch, number, answers: answers.await }
        });
        place.in_flight.push_back(Shipment { number, sent: self.now, calls });
    }

    fn on_answers(&mut self, at: usize, lane: usize, epoch: u64, number: u64, answers: Answers) {
        let now = self.now;
        let place = self.nodes.get_mut(at).and_then(|node| node.lanes.get_mut(lane));
        let Some(place) = place.filter(|place| place.epoch == epoch) else { return };
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => return self.lose(at, lane, &failure::of_connection(&error)),
        };
        place.hear(now);
        let found = place.in_flight.iter().position(|shipment| shipment.number == number);
        let Some(shipment) = found.and_then(|found| place.in_flight.remove(found)) else { return };
        let took = now.saturating_duration_since(shipment.sent);
        for call in shipment.calls {
            if call.is_script() {
                self.meter.answered(call.jobs.len(), took);
            }
            let answer = call.take_answer(&mut answers);
            match call.settle(answer, &self.meter) {
                Settled::Done { error: None } => self.prove(at, lane),
                Settled::Done { error: Some(error) } => self.react(at, lane, &error),
                Settled::Refused { error, jobs } => self.on_refusal(at, lane, &error, jobs),
            }
        }
    }

    fn prove(&mut self, at: usize, lane: usize) {
        if let Some(lane) = self.nodes.get_mut(at).and_then(|node| node.lanes.get_mut(lane)) {
            lane.prove();
        }
    }

    /// The server did not do it: some of these it will do when asked in another way.
    fn on_refusal(&mut self, at: usize, lane: usize, error: &ServerError, jobs: Vec<Job>) {
        let cluster = self.routes.is_cluster();
        match error.code() {
            "NOSCRIPT" => {
                self.meter.reloaded();
                if let Some(node) = self.nodes.get_mut(at) {
                    node.reload = true;
                }
                let asking = jobs.first().is_some_and(|job| job.asking);
                self.send_on(at, jobs, asking);
            }
            "MOVED" | "ASK" if cluster => self.redirect(at, error, jobs),
            "TRYAGAIN" if cluster => self.postpone(jobs),
            _ => {
                self.fail_all(jobs, &failure::of_answer(error));
                self.react(at, lane, error);
            }
        }
    }

    /// Does what an error of the server asks of a client.
    fn react(&mut self, at: usize, lane: usize, error: &ServerError) {
        match error.code() {
            "CLUSTERDOWN" => self.routes.doubt(self.now),
            // Another server may be the master by now, or the password another.
            "READONLY" | "MASTERDOWN" | "NOAUTH" => {
                self.doubt(at, lane);
                self.lose(at, lane, &failure::of_answer(error));
            }
            _ => {}
        }
    }

    pub(super) fn fail_all(&self, jobs: impl IntoIterator<Item = Job>, why: &StoreError) {
        jobs.into_iter().for_each(|job| job.fail(why, &self.meter));
    }

    /// Tells others how the connections are.
    pub(super) fn tell(&mut self) {
        let nodes = || self.nodes.iter().filter(|node| !node.retired);
        let connected: usize = nodes().map(Node::connected).sum();
        let wanted: usize = nodes().map(|node| node.lanes.len()).sum();
        let wanted = if self.routes.is_mapped() { wanted } else { wanted.max(1) };
        if connected >= wanted {
            self.failure = None;
        }
        let (failure, now, map) = (self.failure.clone(), self.now, self.routes.map());
        self.publish.send_modify(|published| {
            let state = &mut published.state;
            if state.is_connected() != (wanted > 0 && connected >= wanted) {
                published.changed = now;
            }
            state.connected = connected;
            state.wanted = wanted;
            state.last_failure = failure;
            published.map = map;
        });
    }
}
