//! CPU time and memory of a process, as `/proc` shows them.

use std::time::Duration;

/// Clock ticks per second in `/proc/<pid>/stat`: the same on every architecture that Linux runs on.
const TICKS_PER_SEC: u64 = 100;
/// Fields of `/proc/<pid>/stat` after the name in parentheses: user time and system time.
const USER_FIELD: usize = 11;
const SYSTEM_FIELD: usize = 12;

/// CPU time and memory of a process so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads, in user and in system mode.
    pub cpu: Duration,
    /// Resident memory.
    pub resident_bytes: u64,
}

impl Usage {
    /// Reads the usage of a process. `None` if there is no such process or no `/proc`.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let ticks = ticks(USER_FIELD)? + ticks(SYSTEM_FIELD)?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident_kib: u64 = resident.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(Self { cpu: Duration::from_millis(ticks * 1_000 / TICKS_PER_SEC), resident_bytes: resident_kib * 1_024 })
    }

    /// Reads the usage of several processes, of which some may have ended. `None` if none is left.
    pub fn of_all(pids: &[u32]) -> Option<Self> {
        pids.iter()
            .filter_map(|pid| Self::of(*pid))
            .reduce(|sum, one| Self { cpu: sum.cpu + one.cpu, resident_bytes: sum.resident_bytes + one.resident_bytes })
    }

    /// Reads the usage of this process.
    pub fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Returns the average number of busy cores since `before`.
    pub fn cores_since(&self, before: &Self, period: Duration) -> f64 {
        self.cpu.saturating_sub(before.cpu).as_secs_f64() / period.as_secs_f64().max(f64::EPSILON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_a_busy_process() {
        let before = Usage::own().unwrap();
        let since = std::time::Instant::now();
        let mut sum = 0_u64;
        while since.elapsed() < Duration::from_millis(300) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let after = Usage::own().unwrap();
        assert!(after.cpu > before.cpu, "{before:?} {after:?}");
        assert!(after.resident_bytes > 1_000_000);
        assert!(after.cores_since(&before, since.elapsed()) > 0.0);
        assert_eq!(Usage::of(u32::MAX), None);
    }
}
