//! CPU time of servers, of this program and of the whole machine, from `/proc`.

use std::fs;
use std::process;
use std::time::Duration;

use anyhow::Context;

use crate::stopwatch::Stopwatch;

/// CPU time since each process began, or between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The server, with its store if it has one.
    pub(crate) server: Duration,
    /// This program and its helpers.
    generator: Duration,
    /// All processes on all processors, and time that the hypervisor took.
    everybody: Duration,
}

impl Usage {
    /// Reads the counters. Helpers are other processes that the measurement needs.
    ///
    /// # Errors
    /// When a process has ended, or the system does not count.
    fn now(servers: &[u32], helpers: &[u32]) -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")
            .context("CPU time can be measured only where /proc is")?;
        let hertz = rustix::param::clock_ticks_per_second();
        Ok(Usage {
            server: time_of_all(servers)?,
            generator: time_of(process::id())? + time_of_all(helpers)?,
            everybody: busy_in(&stat, hertz).context("/proc/stat is not understood")?,
        })
    }

    /// The time since an earlier reading.
    fn since(&self, earlier: &Self) -> Self {
        Usage {
            server: self.server.saturating_sub(earlier.server),
            generator: self.generator.saturating_sub(earlier.generator),
            everybody: self.everybody.saturating_sub(earlier.everybody),
        }
    }

    /// The time of other processes.
    fn others(&self) -> Duration {
        self.everybody.saturating_sub(self.server + self.generator)
    }
}

/// A time span, and the CPU time in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpentTime {
    pub(crate) time: Duration,
    pub(crate) usage: Usage,
}

impl SpentTime {
    /// How many processors other processes kept busy.
    pub(crate) fn others(&self) -> f64 {
        self.usage.others().as_secs_f64() / self.time.as_secs_f64()
    }
}

/// Measures the CPU time while `run` runs.
///
/// # Errors
/// When it fails, or a process has ended.
pub(crate) fn spent<T>(
    servers: &[u32],
    helpers: &[u32],
    run: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, SpentTime)> {
    let before = Usage::now(servers, helpers)?;
    let stopwatch = Stopwatch::start();
    let done = run()?;
    let time = stopwatch.elapsed();
    Ok((done, SpentTime { time, usage: Usage::now(servers, helpers)?.since(&before) }))
}

fn time_of_all(processes: &[u32]) -> anyhow::Result<Duration> {
    processes.iter().map(|process| time_of(*process)).sum()
}

/// The CPU time of all threads of a process. The file of the process covers its first thread
/// only.
///
/// # Errors
/// When the process has ended.
pub(crate) fn time_of(process: u32) -> anyhow::Result<Duration> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.with_context(|| format!("process {process} has ended"))?;
    let mut nanos = 0_u64;
    for thread in threads {
        let path = thread?.path().join("schedstat");
        // A thread may end after it was listed.
        let text = fs::read_to_string(path).unwrap_or_default();
        let spent = text.split_whitespace().next().and_then(|spent| spent.parse::<u64>().ok());
        nanos = nanos.saturating_add(spent.unwrap_or(0));
    }
    Ok(Duration::from_nanos(nanos))
}

/// The time of all processors that is neither idle nor waiting.
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

/// The resident memory of a process.
///
/// # Errors
/// When the process has ended, or the system does not count.
pub(crate) fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))
        .context("resident memory can be measured only where /proc is")?;
    resident_bytes_in(&status).context("/proc has no VmRSS")
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
    fn idle_and_waiting_time_is_not_used_time_and_stolen_time_is() {
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
    fn the_time_of_a_busy_process_grows() {
        // A process of its own: in this one the time of a test thread that ends is lost, so the
        // sum can fall.
        let mut busy =
            process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = time_of(busy.id()).unwrap();
        let stopwatch = Stopwatch::start();
        let grows = loop {
            if time_of(busy.id()).unwrap() > before {
                break true;
            }
            if stopwatch.elapsed() > Duration::from_secs(60) {
                break false;
            }
            std::thread::yield_now();
        };
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(grows);
        assert!(resident_bytes(process::id()).unwrap() > 0);
    }
}
