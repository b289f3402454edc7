//! Processor affinity: one processor for servers, one for the generator.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One processor for the servers, one for the generator.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    all: CpuSet,
    /// `None` on a machine with one processor.
    apart: Option<(CpuSet, CpuSet)>,
}

impl Pins {
    /// The first two processors that this thread may use.
    ///
    /// # Errors
    /// When the system does not report them.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let all = sched_getaffinity(None).context("cannot tell the processors")?;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).map(only);
        let apart = allowed.next().zip(allowed.next());
        Ok(Pins { all, apart })
    }

    /// Whether servers and generator have separate processors.
    pub(crate) const fn are_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// Starts a server on its processor. A child process inherits the affinity of the thread that
    /// starts it, so all its threads have it from the beginning.
    ///
    /// # Errors
    /// When `start` fails.
    pub(crate) fn on_server<T>(
        &self,
        start: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.keep_to(self.apart.as_ref().map(|(server, _)| server), start)
    }

    /// Runs the generator on its processor.
    ///
    /// # Errors
    /// When `generate` fails.
    pub(crate) fn on_generator<T>(
        &self,
        generate: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.keep_to(self.apart.as_ref().map(|(_, generator)| generator), generate)
    }

    fn keep_to<T>(
        &self,
        place: Option<&CpuSet>,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Some(place) = place else { return run() };
        sched_setaffinity(None, place).context("cannot keep to a processor")?;
        let done = run();
        sched_setaffinity(None, &self.all).context("cannot use all processors again")?;
        done
    }
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count() -> anyhow::Result<u32> {
        Ok(sched_getaffinity(None)?.count())
    }

    #[test]
    fn a_thread_keeps_to_one_processor_only_while_it_runs_there() {
        let before = count().unwrap();
        let pins = Pins::new().unwrap();
        if pins.are_apart() {
            assert_eq!(pins.on_server(count).unwrap(), 1);
            assert_eq!(pins.on_generator(count).unwrap(), 1);
        }
        assert_eq!(count().unwrap(), before);
    }

    #[test]
    fn all_processors_are_there_again_after_an_error() {
        let before = count().unwrap();
        let pins = Pins::new().unwrap();
        let failed: anyhow::Result<()> = pins.on_server(|| anyhow::bail!("no"));
        assert!(failed.is_err());
        assert_eq!(count().unwrap(), before);
    }
}
