//! What a process takes of the machine: processor time and memory, as the kernel counts them in `/proc`.

use std::time::Duration;

/// Ticks a second in `/proc/<pid>/stat`: fixed for programs on every architecture that Linux runs on.
const TICKS_PER_SEC: u64 = 100;
/// Fields of `/proc/<pid>/stat` after the name in parentheses: user and system time.
const USER_FIELD: usize = 11;
const SYSTEM_FIELD: usize = 12;

/// What a process has taken so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, of all its threads, in user and in system mode.
    pub cpu: Duration,
    /// Memory that is resident.
    pub resident_bytes: u64,
}

impl Usage {
    /// Of the process with this id; `None` where there is none, or no `/proc`.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold spaces and parentheses itself.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let ticks = ticks(USER_FIELD)? + ticks(SYSTEM_FIELD)?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident_kib: u64 = resident.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(Self { cpu: Duration::from_millis(ticks * 1_000 / TICKS_PER_SEC), resident_bytes: resident_kib * 1_024 })
    }

    /// Of this process.
    pub fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// The cores that were kept busy since, on average.
    pub fn cores_since(&self, before: &Self, period: Duration) -> f64 {
        self.cpu.saturating_sub(before.cpu).as_secs_f64() / period.as_secs_f64().max(f64::EPSILON)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_is_seen_to_be_busy() {
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
