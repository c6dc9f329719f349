//! The kills: their kinds, their order and their execution.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use payferry_testkit::progress::Progress;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use super::report::{Finding, Findings};
use crate::deployment::Deployment;
use crate::node::Dropped;
use crate::process::{Binary, Folder, Served, Starting};
use crate::receiver::{Receiver, ReceiverBehaviour};

/// Steps of a settlement, by their names in `PAYFERRY_HOLD_AFTER`.
pub const STEPS: [&str; 7] = ["batched", "signed", "stored", "broadcast", "mined", "recorded", "told"];
/// Variable with the step after which the service holds.
pub const HOLD_AFTER: &str = "PAYFERRY_HOLD_AFTER";
/// Variable with the path of a file whose existence ends the hold.
pub const HOLD_UNTIL: &str = "PAYFERRY_HOLD_UNTIL";
/// Maximum time for a settlement to reach a step, and for a start to become ready.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(10);
/// Number of times the receiver refuses an event: less than the sender's attempts, so every event must arrive.
const REFUSED_MAX: usize = 2;
/// Longest pause before a start is killed, unless an earlier start took longer.
const STARTING_MAX: Duration = Duration::from_millis(600);

/// Kind of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillKind {
    /// At a random time under load.
    UnderLoad,
    /// Before the service is ready: while it loads rows and restores actors.
    Starting,
    /// As soon as the service is ready, directly after the previous kill.
    AtOnce,
    /// After a step of a settlement, when it is reached for the nth time.
    After(&'static str, u32),
}

impl fmt::Display for KillKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnderLoad => f.write_str("under load"),
            Self::Starting => f.write_str("while starting"),
            Self::AtOnce => f.write_str("as soon as it was ready"),
            Self::After(step, _) => write!(f, "after {step}"),
        }
    }
}

/// Plans this number of kills from the seed: each settlement step once per block of twenty (or per last block of at
/// least ten), the others at random times.
pub fn plan(kills: usize, seed: u64) -> Vec<KillKind> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut kill_log = Vec::with_capacity(kills);
    while kill_log.len() < kills {
        let size = (kills - kill_log.len()).min(20);
        let mut block: Vec<KillKind> = Vec::with_capacity(size);
        if size >= 10 {
            block.extend(STEPS.map(|step| KillKind::After(step, random.random_range(1..=3))));
        }
        let others = [KillKind::UnderLoad, KillKind::Starting, KillKind::AtOnce, KillKind::UnderLoad];
        block.extend(others.into_iter().cycle().take(size.saturating_sub(block.len())));
        block.shuffle(&mut random);
        kill_log.extend(block);
    }
    // The first kill hits a process that was started normally, without a hold.
    if let Some(first) = kill_log.iter().position(|death| *death == KillKind::UnderLoad) {
        kill_log.swap(0, first);
    }
    kill_log
}

/// Record of the kills.
#[derive(Debug, Default)]
pub struct KillLog {
    /// Number of kills by kind.
    pub kinds: BTreeMap<KillKind, u32>,
    /// Time from each restart until the service was ready.
    pub ready_after: Vec<Duration>,
    /// Number of reorgs of a chain while the service was down.
    pub reorgs: u32,
    /// Time of each kill.
    pub at: Vec<Instant>,
}

impl KillLog {
    fn count(&mut self, death: KillKind) {
        let kind = if let KillKind::After(step, _) = death { KillKind::After(step, 1) } else { death };
        *self.kinds.entry(kind).or_default() += 1;
    }

    /// Total number of kills.
    pub fn total(&self) -> u32 {
        self.kinds.values().sum()
    }
}

/// Kills the service repeatedly and restarts it on the same data.
pub struct Killer<'a> {
    /// Binary of the service.
    pub binary: &'a Binary,
    /// Folder with its configuration.
    pub folder: &'a Folder,
    /// The PSP's receiver, which fails temporarily.
    pub receiver: &'a Receiver,
    /// The chains, which continue while the service is down.
    pub deployments: &'a [Deployment],
    /// Progress display.
    pub progress: &'a Progress,
}

impl Killer<'_> {
    /// Executes all kills of `kill_log`, the first on `running`. Returns the last process, which is not killed.
    pub async fn run(
        &self,
        running: Served,
        kill_log: &[KillKind],
        seed: u64,
        findings: &mut Findings,
    ) -> Option<(Served, KillLog)> {
        let mut random = StdRng::seed_from_u64(!seed);
        let mut done = KillLog::default();
        pause(&mut random, 500..1_500).await;
        self.died(KillKind::UnderLoad, &mut done);
        kill(running, findings);
        for death in kill_log.iter().skip(1) {
            if *death != KillKind::AtOnce && random.random_bool(0.3) {
                self.be_away(&mut random, &mut done).await;
            }
            if random.random_bool(0.2) {
                self.receiver
                    .set_behaviour(ReceiverBehaviour::FailThenAccept(500, REFUSED_MAX), Duration::from_millis(700));
            }
            let hold = if let KillKind::After(step, time) = death { format!("{step}:{time}") } else { String::new() };
            let env = [(HOLD_AFTER, hold.as_str())];
            let mut starting = self.binary.spawn(self.folder, if hold.is_empty() { &[] } else { &env });
            match death {
                KillKind::Starting => {
                    let longest = done.ready_after.last().copied().unwrap_or_default().max(STARTING_MAX);
                    pause(&mut random, 0..u64::try_from(longest.as_millis()).unwrap_or(u64::MAX)).await;
                    self.died(*death, &mut done);
                    starting.kill();
                }
                KillKind::After(step, _) => {
                    self.held(&mut starting, step, &mut done, findings).await;
                    pause(&mut random, 0..200).await;
                    self.died(*death, &mut done);
                    starting.kill();
                }
                KillKind::AtOnce | KillKind::UnderLoad => {
                    let served = self.ready(starting, &mut done, findings).await?;
                    let longest = if *death == KillKind::AtOnce { 50 } else { 2_000 };
                    pause(&mut random, 0..longest).await;
                    self.died(*death, &mut done);
                    kill(served, findings);
                }
            }
        }
        let starting = self.binary.spawn(self.folder, &[]);
        let served = self.ready(starting, &mut done, findings).await?;
        Some((served, done))
    }

    fn died(&self, death: KillKind, done: &mut KillLog) {
        done.count(death);
        done.at.push(Instant::now());
        self.progress.step();
    }

    /// Keeps the service down while transfers are sent and blocks are mined. A reorg may move transactions to other
    /// blocks.
    async fn be_away(&self, random: &mut StdRng, done: &mut KillLog) {
        pause(random, 300..2_000).await;
        // Only devchain returns dropped transactions at once: payers must not lose any.
        if let Some(deployment) = self.deployments.choose(random)
            && deployment.node.in_process().is_some()
        {
            deployment.node.reorg(1, Dropped::Remine).await;
            done.reorgs += 1;
        }
    }

    /// Waits until the service is ready. Returns `None` and adds a finding if it exits.
    async fn ready(&self, starting: Starting, done: &mut KillLog, findings: &mut Findings) -> Option<Served> {
        let since = Instant::now();
        match tokio::task::spawn_blocking(|| starting.try_ready()).await.unwrap() {
            Ok(served) => {
                done.ready_after.push(since.elapsed());
                Some(served)
            }
            Err(log) => {
                findings.push(Finding::of("service", format!("did not restart: {}", tail(&log))));
                None
            }
        }
    }

    /// Waits until the service holds after a step, possibly before it is ready, with work left by the previous kill.
    /// Adds a finding if it does not reach the step.
    async fn held(&self, starting: &mut Starting, step: &str, done: &mut KillLog, findings: &mut Findings) {
        let (since, line) = (Instant::now(), format!("held after {step}"));
        let mut ready = None;
        while !starting.log().contains(&line) {
            if ready.is_none() && starting.has_spoken() {
                ready = Some(since.elapsed());
            }
            if let Some(status) = starting.ended() {
                return findings.push(ended_by_itself(status, &starting.log()));
            }
            if since.elapsed() > PATIENCE {
                let what = format!("no settlement reached `{step}` within {PATIENCE:?}: {}", tail(&starting.log()));
                return findings.push(Finding::of("service", what));
            }
            tokio::time::sleep(POLL).await;
        }
        done.ready_after.extend(ready);
    }
}

fn kill(mut served: Served, findings: &mut Findings) {
    if let Some(status) = served.process.ended() {
        findings.push(ended_by_itself(status, &served.process.log()));
    }
    served.process.kill();
}

fn ended_by_itself(status: ExitStatus, log: &str) -> Finding {
    Finding::of("service", format!("exited by itself with {status}: {}", tail(log)))
}

async fn pause(random: &mut StdRng, millis: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(random.random_range(millis))).await;
}

/// Last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_kills_after_every_step_and_in_every_other_way() {
        for (kills, each) in [(10, 1), (20, 1), (100, 5)] {
            let kill_log = plan(kills, 3);
            assert_eq!(kill_log.len(), kills);
            for step in STEPS {
                let after = kill_log.iter().filter(|death| matches!(death, KillKind::After(name, _) if *name == step));
                assert!(after.count() >= each, "{step} of {kills}");
            }
            for kind in [KillKind::UnderLoad, KillKind::Starting, KillKind::AtOnce] {
                assert!(kill_log.contains(&kind), "{kind} of {kills}");
            }
            assert_eq!(kill_log[0], KillKind::UnderLoad);
            assert_eq!(plan(kills, 3), kill_log);
        }
    }
}
