//! Figures of the operating system about this process.
//!
//! Read from Linux's `/proc`; other systems have none. A figure that cannot be read is left out, not shown as zero.

use std::fs;
use std::path::Path;

/// Clock ticks per second in `/proc`: fixed, whatever the kernel uses internally.
const TICKS_PER_SECOND: f64 = 100.0;

/// Figures of the process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessReading {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
    pub(super) start_seconds: Option<f64>,
}

impl ProcessReading {
    /// Reads all figures.
    pub(super) fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let stat = read("/proc/self/stat");
        let status = read("/proc/self/status");
        ProcessReading {
            cpu_seconds: cpu_seconds(&stat),
            resident_bytes: kibibytes(&status, "VmRSS:"),
            virtual_bytes: kibibytes(&status, "VmSize:"),
            open_fds: open_fds(Path::new("/proc/self/fd")),
            max_fds: max_fds(&read("/proc/self/limits")),
            start_seconds: start_seconds(&stat, &read("/proc/stat")),
        }
    }
}

/// The field with this number, counted from 1 as in proc(5). The second is the program's name in parentheses, which may
/// itself have spaces and parentheses.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    let (user, system) = (field(stat, 14)?, field(stat, 15)?);
    Some((user + system) / TICKS_PER_SECOND)
}

fn start_seconds(stat: &str, machine: &str) -> Option<f64> {
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    let booted: f64 = booted.trim().parse().ok()?;
    Some(booted + field(stat, 22)? / TICKS_PER_SECOND)
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

fn open_fds(directory: &Path) -> Option<u64> {
    // Newer kernels report the number as the directory's size; for older ones they are counted.
    let size = fs::metadata(directory).ok()?.len();
    if size > 0 {
        return Some(size);
    }
    u64::try_from(fs::read_dir(directory).ok()?.count()).ok()
}

fn max_fds(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "42 (a (b) c) S 1 42 42 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 9 0 1200 99 7";

    #[test]
    fn processor_time_is_that_of_user_and_system_together() {
        assert_eq!(cpu_seconds(STAT), Some(3.0));
    }

    #[test]
    fn the_start_is_counted_from_the_start_of_the_machine() {
        assert_eq!(start_seconds(STAT, "cpu 1 2 3\nbtime 1000\nprocesses 5\n"), Some(1012.0));
    }

    #[test]
    fn memory_is_told_in_bytes() {
        assert_eq!(kibibytes("VmSize:\t  20 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 * 1024));
    }

    #[test]
    fn the_most_open_files_are_those_of_the_soft_limit() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        assert_eq!(max_fds(limits), Some(1024));
        assert_eq!(max_fds("Max open files  unlimited  unlimited  files\n"), None);
    }

    #[test]
    fn nothing_is_made_up_of_what_cannot_be_read() {
        for broken in ["", ")", "1 (a", "1 (a) b", "btime x", "VmRSS: none kB", "VmRSS:"] {
            assert_eq!(cpu_seconds(broken), None);
            assert_eq!(start_seconds(broken, broken), None);
            assert_eq!(kibibytes(broken, "VmRSS:"), None);
            assert_eq!(max_fds(broken), None);
        }
        assert_eq!(open_fds(Path::new("/nowhere/at/all")), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_files_and_a_start() {
        let reading = ProcessReading::now();
        assert!(reading.resident_bytes > Some(0), "{reading:?}");
        assert!(reading.open_fds > Some(0), "{reading:?}");
        assert!(reading.start_seconds > Some(0.0), "{reading:?}");
        assert!(reading.cpu_seconds.is_some(), "{reading:?}");
    }
}
