//! Causes of refusals.

/// Why a request was refused. Every cause is a lack of capacity and never the caller's own limit:
/// 503, or UNAVAILABLE in gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The process is overloaded and admits higher levels only.
    ShedWorker,
    /// The fleet reserves its remaining capacity for critical requests.
    ShedFleet,
    /// The gate's queue is full of requests that go first.
    QueueFull,
    /// The request waited too long in the gate's queue.
    QueueTimeout,
    /// The request could not be done before its deadline.
    Deadline,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 5] = [
        Cause::ShedWorker,
        Cause::ShedFleet,
        Cause::QueueFull,
        Cause::QueueTimeout,
        Cause::Deadline,
    ];

    /// The code in answers and metrics. It never changes.
    pub const fn code(self) -> &'static str {
        match self {
            Cause::ShedWorker => "shed_worker",
            Cause::ShedFleet => "shed_fleet",
            Cause::QueueFull => "queue_full",
            Cause::QueueTimeout => "queue_timeout",
            Cause::Deadline => "deadline",
        }
    }
}
