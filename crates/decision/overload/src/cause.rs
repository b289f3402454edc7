//! Why a request was refused here.

/// Why a request was refused. All of them mean "we are short", never "you are over
/// your limit": 503, or UNAVAILABLE in gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// This process is overloaded, and others go first.
    ShedWorker,
    /// The fleet keeps what is left for critical requests.
    ShedFleet,
    /// The queue at the gate is full of those who go first.
    QueueFull,
    /// It waited at the gate for too long.
    QueueTimeout,
    /// It could not be done in time any more.
    Deadline,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 5] = [
        Cause::ShedWorker,
        Cause::ShedFleet,
        Cause::QueueFull,
        Cause::QueueTimeout,
        Cause::Deadline,
    ];

    /// The code that answers and metrics carry. It never changes.
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
