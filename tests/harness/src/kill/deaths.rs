//! The deaths: which there are, in which order, and who brings them about.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use super::report::{Finding, Findings};
use crate::deployment::Deployment;
use crate::node::Dropped;
use crate::process::{Binary, Folder, Served, Starting};
use crate::receiver::{Manner, Receiver};

/// The steps of a settlement, as `PAYFERRY_HOLD_AFTER` names them.
pub const STEPS: [&str; 7] = ["batched", "signed", "stored", "broadcast", "mined", "recorded", "told"];
/// Names the step after which the service stands still.
const HOLD_AFTER: &str = "PAYFERRY_HOLD_AFTER";
/// How long a settlement may take to come to a step, and a start to be ready.
const PATIENCE: Duration = Duration::from_mins(2);
/// How often somebody who waits looks.
const POLL: Duration = Duration::from_millis(10);
/// How often the receiver refuses an event: less often than the service tries, so that each must arrive.
const REFUSED_MAX: usize = 2;
/// Longest wait until a start is killed, as long as none is known to take longer.
const STARTING_MAX: Duration = Duration::from_millis(600);

/// One death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Death {
    /// At any moment under load.
    UnderLoad,
    /// Before it is ready: while rows are read and actors come back.
    Starting,
    /// The moment it is ready, right after the death before.
    AtOnce,
    /// After a step of a settlement, the n-th time that it is reached.
    After(&'static str, u32),
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnderLoad => f.write_str("under load"),
            Self::Starting => f.write_str("while starting"),
            Self::AtOnce => f.write_str("as soon as it was ready"),
            Self::After(step, _) => write!(f, "after {step}"),
        }
    }
}

/// So many deaths, decided by the seed: each step of a settlement once in twenty, or in the ten or more that remain, the
/// others at random moments.
pub fn plan(kills: usize, seed: u64) -> Vec<Death> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut deaths = Vec::with_capacity(kills);
    while deaths.len() < kills {
        let size = (kills - deaths.len()).min(20);
        let mut block: Vec<Death> = Vec::with_capacity(size);
        if size >= 10 {
            block.extend(STEPS.map(|step| Death::After(step, random.random_range(1..=3))));
        }
        let others = [Death::UnderLoad, Death::Starting, Death::AtOnce, Death::UnderLoad];
        block.extend(others.into_iter().cycle().take(size.saturating_sub(block.len())));
        block.shuffle(&mut random);
        deaths.extend(block);
    }
    // The first one is of a process that was started before anybody thought of death.
    if let Some(first) = deaths.iter().position(|death| *death == Death::UnderLoad) {
        deaths.swap(0, first);
    }
    deaths
}

/// What the deaths were.
#[derive(Debug, Default)]
pub struct Deaths {
    /// How often the service died in which way.
    pub kinds: BTreeMap<Death, u32>,
    /// From the start after a death until it was ready.
    pub ready_after: Vec<Duration>,
    /// How often a chain took its newest block back while nobody was there.
    pub reorgs: u32,
}

impl Deaths {
    fn count(&mut self, death: Death) {
        let kind = if let Death::After(step, _) = death { Death::After(step, 1) } else { death };
        *self.kinds.entry(kind).or_default() += 1;
    }

    /// How often it died.
    pub fn total(&self) -> u32 {
        self.kinds.values().sum()
    }
}

/// Kills the service again and again, and starts it on the same data.
pub struct Killer<'a> {
    /// What is started.
    pub binary: &'a Binary,
    /// With which configuration.
    pub folder: &'a Folder,
    /// The PSP's receiver, which has bad moments, too.
    pub receiver: &'a Receiver,
    /// The chains, which go on while it is dead.
    pub deployments: &'a [Deployment],
    /// Shows how far it is.
    pub progress: &'a ProgressBar,
}

impl Killer<'_> {
    /// Brings about all of `deaths`, the first one upon `running`; answers the process that is left in peace.
    pub async fn run(
        &self,
        running: Served,
        deaths: &[Death],
        seed: u64,
        findings: &mut Findings,
    ) -> Option<(Served, Deaths)> {
        let mut random = StdRng::seed_from_u64(!seed);
        let mut done = Deaths::default();
        pause(&mut random, 500..1_500).await;
        kill(running, findings);
        self.died(Death::UnderLoad, &mut done);
        for death in deaths.iter().skip(1) {
            if *death != Death::AtOnce && random.random_bool(0.3) {
                self.be_away(&mut random, &mut done).await;
            }
            if random.random_bool(0.2) {
                self.receiver.misbehave(Manner::Hesitant(500, REFUSED_MAX), Duration::from_millis(700));
            }
            let hold = if let Death::After(step, time) = death { format!("{step}:{time}") } else { String::new() };
            let env = [(HOLD_AFTER, hold.as_str())];
            let mut starting = self.binary.spawn(self.folder, if hold.is_empty() { &[] } else { &env });
            match death {
                Death::Starting => {
                    let longest = done.ready_after.last().copied().unwrap_or_default().max(STARTING_MAX);
                    pause(&mut random, 0..u64::try_from(longest.as_millis()).unwrap_or(u64::MAX)).await;
                    starting.kill();
                }
                Death::After(step, _) => {
                    self.held(&mut starting, step, &mut done, findings).await;
                    pause(&mut random, 0..200).await;
                    starting.kill();
                }
                Death::AtOnce | Death::UnderLoad => {
                    let served = self.ready(starting, &mut done, findings).await?;
                    let longest = if *death == Death::AtOnce { 50 } else { 2_000 };
                    pause(&mut random, 0..longest).await;
                    kill(served, findings);
                }
            }
            self.died(*death, &mut done);
        }
        let starting = self.binary.spawn(self.folder, &[]);
        let served = self.ready(starting, &mut done, findings).await?;
        Some((served, done))
    }

    fn died(&self, death: Death, done: &mut Deaths) {
        done.count(death);
        self.progress.inc(1);
    }

    /// Transfers go on and blocks are mined while nobody is there; one may be taken back, what it held goes elsewhere.
    async fn be_away(&self, random: &mut StdRng, done: &mut Deaths) {
        pause(random, 300..2_000).await;
        // Only devchain puts transactions back at the same moment: payers must not lose any.
        if let Some(deployment) = self.deployments.choose(random)
            && deployment.node.in_process().is_some()
        {
            deployment.node.reorg(1, Dropped::Remine).await;
            done.reorgs += 1;
        }
    }

    /// Waits until it is ready; none, and a finding, if it never is.
    async fn ready(&self, starting: Starting, done: &mut Deaths, findings: &mut Findings) -> Option<Served> {
        let since = Instant::now();
        match tokio::task::spawn_blocking(|| starting.try_ready()).await.unwrap() {
            Ok(served) => {
                done.ready_after.push(since.elapsed());
                Some(served)
            }
            Err(log) => {
                findings.push(Finding::of("service", format!("did not start again: {}", tail(&log))));
                None
            }
        }
    }

    /// Waits until it stands still after a step, with what the death before has left perhaps before it is ready; a
    /// finding if it never comes there.
    async fn held(&self, starting: &mut Starting, step: &str, done: &mut Deaths, findings: &mut Findings) {
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
                let what = format!("no settlement came to `{step}` within {PATIENCE:?}: {}", tail(&starting.log()));
                return findings.push(Finding::of("service", what));
            }
            tokio::time::sleep(POLL).await;
        }
        done.ready_after.extend(ready);
    }
}

fn kill(mut served: Served, findings: &mut Findings) {
    if let Some(status) = served.ended() {
        findings.push(ended_by_itself(status, &served.log()));
    }
    served.kill();
}

fn ended_by_itself(status: ExitStatus, log: &str) -> Finding {
    Finding::of("service", format!("ended by itself with {status}: {}", tail(log)))
}

async fn pause(random: &mut StdRng, millis: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(random.random_range(millis))).await;
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_died_after_and_the_other_ways_are_there() {
        for (kills, each) in [(10, 1), (20, 1), (100, 5)] {
            let deaths = plan(kills, 3);
            assert_eq!(deaths.len(), kills);
            for step in STEPS {
                let after = deaths.iter().filter(|death| matches!(death, Death::After(name, _) if *name == step));
                assert!(after.count() >= each, "{step} of {kills}");
            }
            for kind in [Death::UnderLoad, Death::Starting, Death::AtOnce] {
                assert!(deaths.contains(&kind), "{kind} of {kills}");
            }
            assert_eq!(deaths[0], Death::UnderLoad);
            assert_eq!(plan(kills, 3), deaths);
        }
    }
}
