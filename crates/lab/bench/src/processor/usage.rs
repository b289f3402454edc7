//! How long a server, this program and everybody have run, from `/proc`.

use std::fs;
use std::process;
use std::time::Duration;

use anyhow::Context;

use crate::stopwatch::Stopwatch;

/// Time spent since each began, as of one moment; or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) server: Duration,
    /// This program, and what it needs beside the server.
    generator: Duration,
    /// Whoever ran, on any processor, and time that the machine below took away.
    everybody: Duration,
}

impl Usage {
    /// As of now. Helpers are processes that the measurement needs beside the server.
    ///
    /// # Errors
    /// When a process has ended, or the system does not count.
    fn now(server: u32, helpers: &[u32]) -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")
            .context("the use of processors can be measured only where /proc is")?;
        let hertz = rustix::param::clock_ticks_per_second();
        let mut generator = time_of(process::id())?;
        for helper in helpers {
            generator += time_of(*helper)?;
        }
        Ok(Usage {
            server: time_of(server)?,
            generator,
            everybody: busy_in(&stat, hertz).context("/proc/stat is not understood")?,
        })
    }

    /// What was spent since an earlier moment.
    fn since(&self, earlier: &Self) -> Self {
        Usage {
            server: self.server.saturating_sub(earlier.server),
            generator: self.generator.saturating_sub(earlier.generator),
            everybody: self.everybody.saturating_sub(earlier.everybody),
        }
    }

    /// What neither the server nor this program spent.
    fn others(&self) -> Duration {
        self.everybody.saturating_sub(self.server + self.generator)
    }
}

/// A time, and who used the processors in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) time: Duration,
    pub(crate) usage: Usage,
}

impl Spent {
    /// How many processors others kept busy.
    pub(crate) fn others(&self) -> f64 {
        self.usage.others().as_secs_f64() / self.time.as_secs_f64()
    }
}

/// Runs something and says what was spent meanwhile.
///
/// # Errors
/// When it fails, or a process has ended.
pub(crate) fn spent<T>(
    server: u32,
    helpers: &[u32],
    run: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Spent)> {
    let before = Usage::now(server, helpers)?;
    let stopwatch = Stopwatch::start();
    let done = run()?;
    let time = stopwatch.elapsed();
    Ok((done, Spent { time, usage: Usage::now(server, helpers)?.since(&before) }))
}

/// The time of all threads of a process. The file of the process itself speaks
/// of its first thread only.
fn time_of(process: u32) -> anyhow::Result<Duration> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.with_context(|| format!("process {process} has ended"))?;
    let mut nanos = 0_u64;
    for thread in threads {
        let path = thread?.path().join("schedstat");
        // A thread may end between being listed and being asked.
        let text = fs::read_to_string(path).unwrap_or_default();
        let spent = text.split_whitespace().next().and_then(|spent| spent.parse::<u64>().ok());
        nanos = nanos.saturating_add(spent.unwrap_or(0));
    }
    Ok(Duration::from_nanos(nanos))
}

/// The time that is neither idle nor waiting, of all processors together.
fn busy_in(stat: &str, hertz: u64) -> Option<Duration> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = fields.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, irq, softirq, stolen, ..] = *ticks.as_slice() else {
        return None;
    };
    let busy = user + nice + system + irq + softirq + stolen;
    let nanos_per_tick = 1_000_000_000_u64.checked_div(hertz)?;
    Some(Duration::from_nanos(busy.saturating_mul(nanos_per_tick)))
}

/// The memory of a process that is in use, as the system counts it.
///
/// # Errors
/// When the process has ended, or the system does not count.
pub(crate) fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))
        .context("resident memory can be measured only where /proc is")?;
    resident_bytes_in(&status).context("/proc does not say what is resident")
}

/// From `status` rather than `statm`: the latter counts pages, of a size that differs by machine.
fn resident_bytes_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "VmHWM:\t    9000 kB\nVmRSS:\t    1688 kB\nThreads:\t1\n";
        assert_eq!(resident_bytes_in(status), Some(1_688 * 1024));
        assert_eq!(resident_bytes_in("Threads:\t1\n"), None);
    }

    #[test]
    fn idle_and_waiting_time_is_nobodys_and_stolen_time_is_somebodys() {
        let stat = "cpu  100 10 20 5000 600 3 4 50 0 0\ncpu0 1 2 3\n";
        assert_eq!(busy_in(stat, 100), Some(Duration::from_millis(1_870)));
        assert_eq!(busy_in("cpu  1 2", 100), None);
    }

    #[test]
    fn what_is_left_of_everybodys_time_is_others() {
        let usage = |server, generator, everybody| Usage {
            server: Duration::from_secs(server),
            generator: Duration::from_secs(generator),
            everybody: Duration::from_secs(everybody),
        };
        let spent = usage(12, 23, 134).since(&usage(10, 20, 127));
        assert_eq!(spent, usage(2, 3, 7));
        assert_eq!(spent.others(), Duration::from_secs(2));
    }

    #[test]
    fn work_takes_time() {
        let before = time_of(process::id()).unwrap();
        let mut sum = 0_u64;
        while time_of(process::id()).unwrap() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(time_of(process::id()).unwrap() > before);
        assert!(resident_bytes(process::id()).unwrap() > 0);
    }
}
