//! Faults that a run injects at planned times, such as `kill@6s; reorg base 8@9s; rpc-errors 0.1@12s-20s`.
//!
//! Pure.

pub mod inject;
pub mod parse;

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_with::SerializeDisplay;

use payferry_testkit::wire::Chain;

/// Largest number of planned faults, and of kills of one fault.
pub const FAULTS_MAX: usize = 100;

/// Kind of a fault, with its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FaultKind {
    /// SIGKILL of the sandbox, which then starts again on its data and ports: this number of times, evenly spread.
    Kill { times: u32 },
    /// A chain replaces this number of blocks.
    Reorg { chain: Chain, depth: u32 },
    /// This share of the calls of every chain's JSON-RPC fails.
    RpcErrors { share: f64 },
    /// The webhook receiver refuses this share of the requests.
    ReceiverFail { share: f64 },
    /// The webhook receiver answers this late.
    ReceiverSlow { delay: Duration },
}

/// A planned fault. Times count from the first arrival.
#[derive(Debug, Clone, Copy, PartialEq, SerializeDisplay)]
pub struct Fault {
    pub kind: FaultKind,
    pub at: Duration,
    /// End of a fault that lasts.
    pub until: Option<Duration>,
}

/// Planned faults, in the order of the command line.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct FaultPlan(pub Vec<Fault>);

/// A fault as it happened. A fault of several kills has one entry for each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InjectedFault {
    /// The planned fault.
    pub fault: String,
    /// Seconds from the first arrival to its begin.
    pub at_secs: f64,
    /// Seconds from the first arrival to its end: after a kill, until the service answers again.
    pub until_secs: f64,
    /// Number of the kill, reorganisation or other fault in the plots, from 1.
    pub number: usize,
}

impl FaultKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill",
            Self::Reorg { .. } => "reorg",
            Self::RpcErrors { .. } => "rpc-errors",
            Self::ReceiverFail { .. } => "receiver-fail",
            Self::ReceiverSlow { .. } => "receiver-slow",
        }
    }

    /// Returns true if the fault begins by a request to the service, or by its end.
    pub const fn needs_service(self) -> bool {
        !matches!(self, Self::ReceiverFail { .. } | Self::ReceiverSlow { .. })
    }
}

impl Fault {
    /// Returns the times at which it begins: several for several kills.
    fn begins(&self) -> Vec<Duration> {
        let (FaultKind::Kill { times }, Some(until)) = (self.kind, self.until) else { return vec![self.at] };
        let gap = until.saturating_sub(self.at) / times.saturating_sub(1).max(1);
        (0..times).map(|number| self.at + gap * number).collect()
    }

    /// Returns true if two faults set the same thing at the same time.
    fn clashes(&self, other: &Self) -> bool {
        let lasts = |fault: &Self| fault.until.filter(|_| !matches!(fault.kind, FaultKind::Kill { .. }));
        let (Some(end), Some(other_end)) = (lasts(self), lasts(other)) else { return false };
        self.kind.name() == other.kind.name() && self.at < other_end && other.at < end
    }
}

impl FaultPlan {
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn kills(&self) -> bool {
        self.0.iter().any(|fault| matches!(fault.kind, FaultKind::Kill { .. }))
    }

    pub fn reorganises(&self) -> bool {
        self.0.iter().any(|fault| matches!(fault.kind, FaultKind::Reorg { .. }))
    }

    /// Checks that every fault ends before the last arrival, and that no two set the same thing at the same time.
    pub fn check(&self, arrivals: Duration) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.0.len() <= FAULTS_MAX,
            "--fault: {} faults are too many: at most {FAULTS_MAX}",
            self.0.len()
        );
        for (index, fault) in self.0.iter().enumerate() {
            let end = fault.until.unwrap_or(fault.at);
            anyhow::ensure!(
                end < arrivals,
                "--fault: `{fault}` ends after the last arrival, which is at {:.1} s: use an earlier fault or a longer run",
                arrivals.as_secs_f64()
            );
            if let Some(other) = self.0[..index].iter().find(|other| other.clashes(fault)) {
                anyhow::bail!("--fault: `{other}` and `{fault}` overlap");
            }
        }
        Ok(())
    }
}

fn time(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match self.kind {
            FaultKind::Kill { times: 1 } => {}
            FaultKind::Kill { times } => write!(f, " {times}")?,
            FaultKind::Reorg { chain, depth } => write!(f, " {chain} {depth}")?,
            FaultKind::RpcErrors { share } | FaultKind::ReceiverFail { share } => write!(f, " {share}")?,
            FaultKind::ReceiverSlow { delay } => write!(f, " {}", time(delay))?,
        }
        write!(f, "@{}", time(self.at))?;
        self.until.map_or(Ok(()), |until| write!(f, "-{}", time(until)))
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

/// Returns the faults of a run in words, for the verdict. Empty without faults.
pub fn in_words(faults: &[InjectedFault], plan: &FaultPlan) -> String {
    let count = |name: &str| faults.iter().filter(|fault| fault.fault.starts_with(name)).count();
    let times = |count: usize| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let mut words = Vec::new();
    let killed = count("kill");
    if killed > 0 {
        words.push(format!("killed {}", times(killed)));
    }
    let others = plan.0.iter().filter(|fault| !matches!(fault.kind, FaultKind::Kill { .. }));
    words.extend(others.map(|fault| {
        let secs = fault.until.unwrap_or_default().saturating_sub(fault.at).as_secs_f64();
        match fault.kind {
            FaultKind::Kill { .. } => String::new(),
            FaultKind::Reorg { chain, depth } => format!("{chain} reorganised by {depth} blocks"),
            FaultKind::RpcErrors { share } => format!("{:.0} % of the RPC calls failed for {secs} s", share * 100.0),
            FaultKind::ReceiverFail { share } => {
                format!("{:.0} % of the webhooks were refused for {secs} s", share * 100.0)
            }
            FaultKind::ReceiverSlow { delay } => format!("the receiver took {} for {secs} s", time(delay)),
        }
    }));
    words.join(", ")
}

#[cfg(test)]
mod tests;
