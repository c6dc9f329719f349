//! Kill test: the real binary is killed repeatedly while it works. At the end, everything that it acknowledged must
//! exist exactly once, both incoming payments and outbound transfers.
//!
//! The environment keeps running while the service is down: chains, payers and the PSP's receiver run in this process.
//! Deliberately absent: failures of the chains and of the database server, which have their own tests.

mod audit;
mod behaviour;
mod creation;
mod evidence;
pub mod kill_log;
mod load;
mod outgoing;
mod payees;
mod report;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use payferry_domain::Chain;
use payferry_testkit::progress::Progress;

use crate::deployment::{Accounts, Deployment};
use crate::free_ports;
use crate::node::Node;
use crate::nodes::{Nodes, NodesPlan};
use crate::payers::Payers;
use crate::process::{Binary, Folder, Served};
use crate::psp::Psp;
use crate::receiver::Receiver;
use evidence::Evidence;
use kill_log::{KillLog, Killer};
use load::Load;
use payees::Payees;
use report::{Finding, Findings, Percentiles, Report};

/// Time between blocks.
const BLOCK_TIME: Duration = Duration::from_millis(200);
const PAYERS: usize = 24;
/// Initial balance of the PSP in each token on each chain, in base units: more than all orders of a run.
const FUNDS: i64 = 500_000_000_000;
/// Text in the log when part of the service panicked.
const PANICKED: &str = "panicked at";

/// Implementation of the chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Chains {
    /// A devchain in this process.
    Devchain,
    /// One anvil process per chain.
    Anvil,
}

/// The service under test.
enum Service<'a> {
    One(Served),
    Nodes(Nodes<'a>),
}

impl Service<'_> {
    /// URLs of the public and of the operator's listener.
    fn urls(&self) -> (String, String) {
        match self {
            Self::One(served) => (served.api_url().to_owned(), served.operator_url().to_owned()),
            Self::Nodes(nodes) => (nodes.api_url(), nodes.operator_url()),
        }
    }

    fn stop(self) {
        match self {
            Self::One(served) => drop(served.stop()),
            Self::Nodes(nodes) => nodes.stop(),
        }
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The binary that is killed.
    pub binary: Binary,
    /// Number of kills.
    pub kills: usize,
    /// Several nodes and their faults, in place of the kills of one service.
    pub nodes: Option<NodesPlan>,
    /// Database of the service.
    pub database_url: String,
    /// Implementation of the chains.
    pub chains: Chains,
    /// Payments per second.
    pub rate: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Progress display.
    pub progress: Progress,
}

impl Run {
    /// Test defaults: three devchains, a block every 200 ms, ten payments per second.
    pub fn new(binary: Binary, kills: usize, database_url: &str) -> Self {
        Self {
            binary,
            kills,
            nodes: None,
            database_url: database_url.to_owned(),
            chains: Chains::Devchain,
            rate: 10.0,
            seed: rand::random::<u32>().into(),
            progress: Progress::none(),
        }
    }

    /// Executes the run and reports its result.
    pub async fn report(&self) -> Report {
        let since = Instant::now();
        let accounts = Arc::new(Accounts::known(PAYERS));
        let deploying = Chain::ALL.map(|chain| self.deployment(chain, &accounts));
        let deployments = futures::future::join_all(deploying).await;
        let temp = tempfile::tempdir().unwrap();
        let folder = self.folder(temp.path(), &deployments, &accounts);
        let (psp_id, api_key) = self.binary.make_psp(&folder, "Northern Pay");
        let wallet = Payees::register_wallet(&self.binary, &folder, &psp_id);
        let receiver = Receiver::start().await;
        let running = match &self.nodes {
            Some(plan) => Service::Nodes(Nodes::start(&self.binary, &folder, plan.nodes).await),
            None => Service::One(self.binary.serve(&folder)),
        };
        let (api_url, operator_url) = running.urls();
        let psp = Psp::connect(&api_url, &api_key, &receiver).await;

        let operator = Psp::new(&operator_url, &folder.operator_token);
        let payees = Payees::prepare(&psp, &operator, wallet, &deployments, &accounts).await;
        let payers = deployments.iter().map(|deployment| (deployment.chain, Payers::new(deployment, &accounts)));
        let load = Arc::new(Load::new(psp.clone(), payers.collect(), payees, self.rate, self.seed));
        let funds = load.fund(FUNDS).await;
        let loading = tokio::spawn(Arc::clone(&load).run());
        let mut findings = Findings::new();
        let died_since = Instant::now();
        let killed = match running {
            Service::One(running) => {
                let killer = Killer {
                    binary: &self.binary,
                    folder: &folder,
                    receiver: &receiver,
                    deployments: &deployments,
                    progress: &self.progress,
                };
                let plan = kill_log::plan(self.kills, self.seed);
                let killed = killer.run(running, &plan, self.seed, &mut findings).await;
                killed.map(|(served, kill_log)| (Service::One(served), kill_log))
            }
            Service::Nodes(mut nodes) => {
                let plan = self.nodes.clone().unwrap_or_default();
                let mut found = Vec::new();
                nodes.suffer(&plan, self.seed, &self.progress, &mut found).await;
                findings.extend(found.into_iter().map(|what| Finding::of("service", what)));
                let kill_log = KillLog { at: nodes.interrupted_at().to_vec(), ..KillLog::default() };
                nodes.are_running(&plan).then(|| (Service::Nodes(nodes), kill_log))
            }
        };
        load.stop();
        let mut report = Report { findings, dying_secs: died_since.elapsed().as_secs_f64(), ..self.head() };
        if let Some((served, kill_log)) = killed {
            let rests_since = Instant::now();
            let mut stories = loading.await.unwrap();
            stories.payments.extend(funds);
            evidence::rest(&psp, &deployments, &stories).await;
            report.resting_secs = rests_since.elapsed().as_secs_f64();
            let mut evidence = evidence::gather(&psp, &psp_id, &receiver, &deployments, &accounts, stories).await;
            evidence.ledger.complaint = self.reconcile(&folder);
            evidence.interrupted_at.clone_from(&kill_log.at);
            served.stop();
            Self::fill(&mut report, &evidence, kill_log);
            if let Some(plan) = &self.nodes {
                report.kills_by_kind = plan.faults.iter().map(|(fault, count)| (fault.to_string(), *count)).collect();
                report.kills = report.kills_by_kind.values().sum();
            }
            report.findings.extend(audit::audit(&evidence));
        } else {
            // The service cannot be reached any more, so no further check is possible.
            loading.abort();
        }
        (report.requests, report.requests_retried) = load.requests();
        let log = std::fs::read_to_string(folder.path().join("stderr.log")).unwrap_or_default();
        let panics = log.lines().filter(|line| line.contains(PANICKED));
        report.findings.extend(panics.map(|line| Finding::of("service", line)));
        report.took_secs = since.elapsed().as_secs_f64();
        report
    }

    async fn deployment(&self, chain: Chain, accounts: &Accounts) -> Deployment {
        let node = match self.chains {
            Chains::Devchain => Node::devchain(chain.default_id(), BLOCK_TIME).await,
            Chains::Anvil => Node::anvil(chain.default_id(), BLOCK_TIME).await,
        };
        Deployment::new(chain, node, accounts).await
    }

    fn folder(&self, path: &std::path::Path, deployments: &[Deployment], accounts: &Accounts) -> Folder {
        let mut folder = Folder::new(path, &self.database_url, deployments, accounts, free_ports());
        // The receiver's failures are short, so the retry delays are short too.
        let webhooks = toml::toml! { retry_delays_ms = [1000, 3000, 10000] };
        folder.settings.insert("webhooks".to_owned(), webhooks.into());
        folder.write();
        folder
    }

    /// Output of the operator's `payferry reconcile` if it reports a problem.
    fn reconcile(&self, folder: &Folder) -> Option<String> {
        let arguments = ["reconcile", "--json", "--treasury-kept", "--pause-secs", "1"];
        let output = tokio::task::block_in_place(|| self.binary.output(folder, &arguments));
        let said = || String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (!output.status.success()).then(said)
    }

    fn head(&self) -> Report {
        let postgres = self.database_url.starts_with("postgres");
        Report {
            database: if postgres { "PostgreSQL" } else { "SQLite" }.to_owned(),
            chains: match self.chains {
                Chains::Devchain => "devchain".to_owned(),
                Chains::Anvil => "anvil".to_owned(),
            },
            seed: self.seed,
            rate: self.rate,
            ..Report::default()
        }
    }

    fn fill(report: &mut Report, evidence: &Evidence, kill_log: KillLog) {
        report.kills = kill_log.total();
        report.kills_by_kind = kill_log.kinds.iter().map(|(kind, count)| (kind.to_string(), *count)).collect();
        report.restarts = kill_log.ready_after.len();
        report.reorgs = kill_log.reorgs;
        report.ready_ms = Percentiles::of(kill_log.ready_after);
        let mut by_status: BTreeMap<String, usize> = BTreeMap::new();
        for story in evidence.stories.iter().filter(|story| story.creation.made.is_some()) {
            report.payments += 1;
            report.transfers += story.sent.len();
            let status = story.creation.read.as_ref().and_then(|read| read["status"].as_str()).unwrap_or("lost");
            *by_status.entry(status.to_owned()).or_default() += 1;
        }
        report.payments_by_status = by_status;
        report.moved_out = audit::moved_out(evidence);
        report.refused = evidence.outgoing().filter(|out| out.is_refused && !out.is_sent()).count();
        let sent = || evidence.chains.values().flat_map(|chain| &chain.sent);
        report.sent_txs = sent().map(|log| log.tx_hash).collect::<HashSet<_>>().len();
        report.moved_out_units = sent().map(|log| log.units).sum();
        let settled = || evidence.chains.values().flat_map(|chain| &chain.settled);
        report.settlements = settled().count();
        report.settlement_txs = settled().map(|log| log.tx_hash).collect::<HashSet<_>>().len();
        report.events = evidence.feed.len();
        let taken = || evidence.deliveries.iter().filter(|delivery| delivery.answered == 200);
        report.deliveries = taken().count();
        let events = taken().map(|delivery| &delivery.webhook_id).collect::<HashSet<_>>().len();
        report.duplicate_deliveries = report.deliveries - events;
    }
}
