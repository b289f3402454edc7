//! Causes of refusals.

use tidegate_words::words;

words! {
    /// Why a request was refused. Every cause is a lack of capacity and never the caller's own limit:
    /// 503, or UNAVAILABLE in gRPC.
    pub enum Cause {
        /// The process is overloaded and admits higher levels only.
        ShedWorker = "shed_worker",
        /// The fleet reserves its remaining capacity for critical requests.
        ShedFleet = "shed_fleet",
        /// The gate's queue is full of requests that go first.
        QueueFull = "queue_full",
        /// The request waited too long in the gate's queue.
        QueueTimeout = "queue_timeout",
        /// The request could not be done before its deadline.
        Deadline = "deadline",
    }
}
