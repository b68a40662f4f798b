//! Resource use of processes, as reported by Linux.

use std::fs;
use std::time::Duration;

/// CPU time of a process, user and system.
pub(super) fn cpu(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(Duration::from_millis(ticks(&stat)? * 1_000 / rustix::param::clock_ticks_per_second()))
}

/// Resident memory of a process in bytes.
pub(super) fn resident(process: u32) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, "VmRSS:")
}

/// The name, in parentheses, may contain anything; after it utime and stime are the 12th and 13th fields.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11);
    Some(times.next()?.parse::<u64>().ok()? + times.next()?.parse::<u64>().ok()?)
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(field("Name:\tx\nVmRSS:\t    1234 kB\n", "VmRSS:"), Some(1234 * 1024));
        assert_eq!((ticks("nonsense"), field("", "VmRSS:")), (None, None));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_something() {
        assert!(cpu(std::process::id()).is_some());
        assert!(resident(std::process::id()).is_some_and(|bytes| bytes > 100_000));
    }
}
