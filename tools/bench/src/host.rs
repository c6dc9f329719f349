//! CPU time that the host of a virtual machine takes (steal time): a goal that is missed meanwhile says little about
//! the service.

use std::fs;

/// Smallest share for a note.
const REPORTED_FROM: f64 = 0.01;
/// Number of times in the first line of `/proc/stat`, without guest times: see `man 5 proc_stat`.
const TIMES: usize = 8;

/// CPU time of all processors so far, in ticks.
#[derive(Clone, Copy)]
pub(super) struct Host {
    stolen: u64,
    all: u64,
}

impl Host {
    /// Reads the current values. `None` if the system does not provide them.
    pub(super) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(TIMES);
        let times: Vec<u64> = times.map(str::parse).collect::<Result<_, _>>().ok()?;
        // Steal time is the last one. The guest times behind it are part of user time.
        let stolen = *times.get(TIMES - 1)?;
        Some(Self { stolen, all: times.iter().sum() })
    }

    /// Describes the share that the host took since `before`, if it is large enough for a note.
    pub(super) fn note_since(before: Option<Self>) -> Option<String> {
        let share = before?.share_until(Self::now()?);
        (share >= REPORTED_FROM)
            .then(|| format!("the host of the virtual machine took {} of the CPU time meanwhile", percent(share)))
    }

    /// Returns the share that the host took since `before`, in percent. `None` if the system does not provide it.
    pub(super) fn share_since(before: Option<Self>) -> Option<String> {
        Some(percent(before?.share_until(Self::now()?)))
    }

    #[allow(clippy::cast_precision_loss, reason = "ticks of one measurement")]
    fn share_until(self, after: Self) -> f64 {
        let all = after.all.saturating_sub(self.all);
        if all == 0 { 0.0 } else { after.stolen.saturating_sub(self.stolen) as f64 / all as f64 }
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_is_a_share_of_all_time() {
        let before = Host::parse("cpu  10 0 10 60 0 0 0 20 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        let after = Host::parse("cpu  40 0 20 110 0 0 0 30 9 0\n").unwrap();
        assert!((before.share_until(after) - 0.1).abs() < 1e-9);
        assert!(before.share_until(before).abs() < 1e-9);
    }

    #[test]
    fn an_unreadable_line_has_no_share() {
        for stat in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x"] {
            assert!(Host::parse(stat).is_none(), "{stat}");
        }
        assert!(Host::now().is_some());
    }
}
