//! The scenes: which fault happens to whom, and what must hold.

mod downstream;
mod leases;
mod processes;
mod queues;

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;

/// A fault that happens to forwarders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scene {
    /// Processes are killed at random points and replaced.
    KilledProcesses,
    /// A process is stopped for two leases and continued.
    FrozenProcess,
    /// The process that owns a queue in SQLite is killed while it stores and sends.
    KilledQueueOwner,
    /// The Redis of the queue is killed and started again.
    KilledRedisQueue,
    /// The PostgreSQL of the queue is killed and started again.
    KilledPostgresQueue,
    /// The store of leases is away, then forgets everything.
    LostLeaseStore,
    /// Half of the processes are cut off from the store of leases.
    PartitionedMembers,
    /// The clock is an hour ahead, then an hour behind.
    WrongClocks,
    /// The service is dead, then slow, then asks to wait.
    DeadService,
    /// Another client takes four tenths of the limit.
    Rival,
    /// Writes to the queue's file fail.
    FullDisk,
    /// Some records always fail, and one of twenty requests does.
    PoisonRecords,
    /// The limit is changed up and down while members send.
    ChangedLimits,
    /// Members join and leave.
    JoinsAndLeaves,
}

/// How long a scene is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SceneLength {
    /// Seconds, for the tests.
    Short,
    /// Minutes, with the numbers of the design.
    Long,
}

/// What a scene saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SceneReport {
    /// Records that were acknowledged to their producer; all of them were delivered.
    pub records: usize,
    /// Requests that the service got.
    pub arrivals: usize,
    /// Records that were delivered more than once.
    pub duplicates: usize,
    /// What else is of interest.
    pub detail: String,
}

impl fmt::Display for SceneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SceneReport { records, arrivals, duplicates, detail } = self;
        write!(
            f,
            "{records} records, {arrivals} requests, {duplicates} duplicates, 0 lost; {detail}"
        )
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value();
        f.write_str(name.as_ref().map_or("scene", |name| name.get_name()))
    }
}

impl SceneLength {
    /// One of two numbers.
    pub(crate) const fn of<T: Copy>(self, short: T, long: T) -> T {
        match self {
            SceneLength::Short => short,
            SceneLength::Long => long,
        }
    }
}

impl Scene {
    /// All scenes.
    pub const ALL: [Scene; 14] = [
        Scene::KilledProcesses,
        Scene::FrozenProcess,
        Scene::KilledQueueOwner,
        Scene::KilledRedisQueue,
        Scene::KilledPostgresQueue,
        Scene::LostLeaseStore,
        Scene::PartitionedMembers,
        Scene::WrongClocks,
        Scene::DeadService,
        Scene::Rival,
        Scene::FullDisk,
        Scene::PoisonRecords,
        Scene::ChangedLimits,
        Scene::JoinsAndLeaves,
    ];

    /// Plays the scene. `program` is the worker: the program of this crate.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn play(self, program: &Path, length: SceneLength, seed: u64) -> SceneReport {
        let stage = Stage { program, length, seed };
        match self {
            Scene::KilledProcesses => processes::killed(stage),
            Scene::FrozenProcess => processes::frozen(stage),
            Scene::JoinsAndLeaves => processes::joining_and_leaving(stage),
            Scene::KilledQueueOwner => queues::killed_owner(stage),
            Scene::KilledRedisQueue => queues::killed_redis(stage),
            Scene::KilledPostgresQueue => queues::killed_postgres(stage),
            Scene::WrongClocks => queues::wrong_clocks(stage),
            Scene::FullDisk => queues::full_disk(stage),
            Scene::LostLeaseStore => leases::lost_and_wiped(stage),
            Scene::PartitionedMembers => leases::partitioned(stage),
            Scene::ChangedLimits => leases::changed_limits(stage),
            Scene::DeadService => downstream::dead_slow_and_closed(stage),
            Scene::Rival => downstream::rival(stage),
            Scene::PoisonRecords => downstream::poison(stage),
        }
    }
}

/// What every scene needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) program: &'a Path,
    pub(crate) length: SceneLength,
    pub(crate) seed: u64,
}

/// Lets the processes work for this long. A scene asserts nothing about it.
pub(crate) fn let_work(time: Duration) {
    thread::park_timeout(time);
}
