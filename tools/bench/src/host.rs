//! What the host of a virtual machine takes of its processors: a row that is missed meanwhile says little of the service.

use std::fs;

/// Share that is worth a note.
const TOLD_FROM: f64 = 0.01;
/// Where the system's times stand in `/proc/stat`'s first line, the name left out: `man 5 proc_stat`.
const TIMES: usize = 8;

/// The processors' time so far, in ticks.
#[derive(Clone, Copy)]
pub(super) struct Host {
    stolen: u64,
    all: u64,
}

impl Host {
    /// As it is now; none where the system does not say.
    pub(super) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(TIMES);
        let times: Vec<u64> = times.map(str::parse).collect::<Result<_, _>>().ok()?;
        // The last of them; what guests of ours use, behind it, is counted as ours already.
        let stolen = *times.get(TIMES - 1)?;
        Some(Self { stolen, all: times.iter().sum() })
    }

    /// What it took since, if that is worth a note.
    pub(super) fn took_since(before: Option<Self>) -> Option<String> {
        let share = before?.share_until(Self::now()?);
        (share >= TOLD_FROM).then(|| format!("the machine's host took {} of its processors meanwhile", percent(share)))
    }

    /// What it took since, in words that follow others; none where the system does not say.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stolen_is_a_share_of_all() {
        let before = Host::parse("cpu  10 0 10 60 0 0 0 20 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        let after = Host::parse("cpu  40 0 20 110 0 0 0 30 9 0\n").unwrap();
        assert!((before.share_until(after) - 0.1).abs() < 1e-9);
        assert!(before.share_until(before).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_such_line_says_nothing() {
        for stat in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x"] {
            assert!(Host::parse(stat).is_none(), "{stat}");
        }
        assert!(Host::now().is_some());
    }
}
