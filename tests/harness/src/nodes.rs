//! Several nodes that share a database, behind load balancers, and faults of one of them at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use payferry_testkit::progress::Progress;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::balancer::{Balancer, address_of, is_ready};
use crate::namespace::Namespace;
use crate::process::{Binary, Folder, Served};
use crate::{eventually, expect, install_tls};

/// Time without heartbeats after which other nodes take over, as documented.
const LEASE_TTL: Duration = Duration::from_secs(6);
/// Time for a node to end: after a drain with its hand-over, or after it has noticed that it was declared gone.
const END_PATIENCE: Duration = Duration::from_secs(40);

/// A fault of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeFault {
    /// SIGKILL, then a new process with the same name.
    Killed,
    /// SIGKILL; the new process starts after other nodes have taken over.
    Gone,
    /// SIGSTOP for longer than the TTL, then SIGCONT. The node must end, and a new process starts.
    Frozen,
    /// SIGTERM: the node hands over and ends, and a new process starts.
    Restarted,
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "killed",
            Self::Gone => "killed and gone",
            Self::Frozen => "frozen",
            Self::Restarted => "restarted",
        })
    }
}

/// Number of nodes and of their faults.
#[derive(Debug, Clone, Default)]
pub struct NodesPlan {
    /// Nodes.
    pub nodes: usize,
    /// Faults, in a random order.
    pub faults: BTreeMap<NodeFault, u32>,
}

impl NodesPlan {
    /// Distributes a number of faults over the kinds.
    pub fn of(nodes: usize, faults: usize) -> Self {
        let faults = u32::try_from(faults).unwrap_or(u32::MAX);
        let (gone, frozen, restarted) = (faults / 4, faults / 6, faults / 10);
        let counts = [
            (NodeFault::Killed, faults - gone - frozen - restarted),
            (NodeFault::Gone, gone),
            (NodeFault::Frozen, frozen),
            (NodeFault::Restarted, restarted),
        ];
        Self { nodes, faults: counts.into() }
    }
}

/// Differences of the first node.
#[derive(Debug, Default)]
pub struct First {
    /// Further variables.
    pub env: Vec<(&'static str, String)>,
    /// Its network.
    pub namespace: Option<Namespace>,
}

impl From<Vec<(&'static str, String)>> for First {
    fn from(env: Vec<(&'static str, String)>) -> Self {
        Self { env, namespace: None }
    }
}

/// The nodes, behind a balancer of their public listeners and one of their operator listeners.
pub struct Nodes<'a> {
    binary: &'a Binary,
    folder: &'a Folder,
    running: Vec<Served>,
    /// After the nodes, one of which may run in its namespace.
    first: First,
    /// When a node was killed or frozen.
    interrupted_at: Vec<Instant>,
    public: Balancer,
    operator: Balancer,
}

impl<'a> Nodes<'a> {
    /// Starts all nodes; returns when they are ready.
    pub async fn start(binary: &'a Binary, folder: &'a Folder, count: usize) -> Self {
        Self::start_with(binary, folder, count, First::default()).await
    }

    /// The same, with a first node that differs.
    pub async fn start_with(binary: &'a Binary, folder: &'a Folder, count: usize, first: impl Into<First>) -> Self {
        install_tls();
        let port = |key: &str| {
            let address = folder.settings["server"][key].as_str().unwrap();
            address.rsplit(':').next().unwrap().parse::<u16>().unwrap()
        };
        let (public, operator) =
            (Balancer::start(port("listen")).await, Balancer::start(port("operator_listen")).await);
        let mut nodes = Self {
            binary,
            folder,
            first: first.into(),
            running: Vec::new(),
            interrupted_at: Vec::new(),
            public,
            operator,
        };
        for number in 0..count {
            let served = nodes.serve(number).await.unwrap_or_else(|log| panic!("node {number} did not start: {log}"));
            nodes.running.push(served);
        }
        nodes
    }

    /// URL of the public listeners.
    pub fn api_url(&self) -> String {
        self.public.url()
    }

    /// URL of the operator listeners.
    pub fn operator_url(&self) -> String {
        self.operator.url()
    }

    async fn serve(&self, number: usize) -> Result<Served, String> {
        let (name, public_url) = (format!("n{}", number + 1), self.public.url());
        let mut env = vec![
            ("PAYFERRY_SERVER__PUBLIC_URL", public_url.as_str()),
            ("PAYFERRY_NODE__NAME", name.as_str()),
            ("PAYFERRY_SERVER__DRAIN_SECS", "4"),
            ("PAYFERRY_SERVER__LISTEN", "127.0.0.1:0"),
            ("PAYFERRY_SERVER__OPERATOR_LISTEN", "127.0.0.1:0"),
        ];
        if number == 0 {
            env.extend(self.first.env.iter().map(|(name, value)| (*name, value.as_str())));
        }
        let namespace = self.first.namespace.as_ref().filter(|_| number == 0);
        let starting = self.binary.spawn_in(namespace, self.folder, &env);
        let served = tokio::task::spawn_blocking(|| starting.try_ready()).await.unwrap()?;
        // As an upgrade does before it restarts the next node.
        let ready = async || expect(is_ready(address_of(served.api_url())).await, |ready| *ready);
        eventually("the node is ready for payments", ready).await;
        self.public.add(served.api_url());
        self.operator.add(served.operator_url());
        Ok(served)
    }

    /// The network of the first node. Panics if it has none of its own.
    pub fn first_namespace(&self) -> &Namespace {
        self.first.namespace.as_ref().unwrap()
    }

    /// A running node, counted from 0.
    pub fn node(&mut self, number: usize) -> &mut Served {
        &mut self.running[number]
    }

    /// Changes the binary of nodes that start from now on.
    pub fn set_binary(&mut self, binary: &'a Binary) {
        self.binary = binary;
    }

    /// Restarts a node as a rolling upgrade does: SIGTERM, its end, and a new process.
    pub async fn restart(&mut self, number: usize) {
        let mut findings = Vec::new();
        self.strike(number, NodeFault::Restarted, &mut findings).await;
        assert!(findings.is_empty(), "{findings:?}");
    }

    /// Starts a node again whose process has ended.
    pub async fn start_again(&mut self, number: usize) {
        let served = self.serve(number).await.unwrap_or_else(|log| panic!("node {number} did not start: {log}"));
        self.running[number] = served;
    }

    /// Executes the faults of a plan, one at a time.
    pub async fn suffer(&mut self, plan: &NodesPlan, seed: u64, progress: &Progress, findings: &mut Vec<String>) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut faults: Vec<NodeFault> =
            plan.faults.iter().flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count as usize)).collect();
        faults.shuffle(&mut random);
        for fault in faults {
            tokio::time::sleep(Duration::from_millis(random.random_range(500..3_000))).await;
            let number = random.random_range(0..self.running.len());
            self.strike(number, fault, findings).await;
            progress.step();
            if self.running.len() < plan.nodes {
                return;
            }
        }
    }

    async fn strike(&mut self, number: usize, fault: NodeFault, findings: &mut Vec<String>) {
        let node = &mut self.running[number].process;
        if let Some(status) = node.ended() {
            findings.push(format!("node {number} exited by itself with {status}: {}", node.log()));
        }
        if fault != NodeFault::Restarted {
            self.interrupted_at.push(Instant::now());
        }
        match fault {
            NodeFault::Killed => node.kill(),
            NodeFault::Gone => {
                node.kill();
                tokio::time::sleep(LEASE_TTL + Duration::from_secs(3)).await;
            }
            NodeFault::Frozen => {
                node.signal("STOP");
                tokio::time::sleep(LEASE_TTL + Duration::from_secs(3)).await;
                node.signal("CONT");
                let status = tokio::task::block_in_place(|| node.until_ended(END_PATIENCE));
                if status.success() {
                    findings.push("a node that was declared gone ended as if nothing had happened".to_owned());
                }
            }
            NodeFault::Restarted => {
                node.signal("TERM");
                let status = tokio::task::block_in_place(|| node.until_ended(END_PATIENCE));
                if !status.success() {
                    findings.push(format!("a drained node ended with {status}: {}", node.log()));
                }
            }
        }
        let gone = self.running.remove(number);
        self.public.remove(gone.api_url());
        self.operator.remove(gone.operator_url());
        drop(gone);
        match self.serve(number).await {
            Ok(served) => self.running.insert(number, served),
            Err(log) => findings.push(format!("node {number} did not restart: {log}")),
        }
    }

    /// When nodes were killed or frozen.
    pub fn interrupted_at(&self) -> &[Instant] {
        &self.interrupted_at
    }

    /// True if no fault has ended a node for good.
    pub fn are_running(&self, plan: &NodesPlan) -> bool {
        self.running.len() == plan.nodes
    }

    /// Stops all nodes.
    pub fn stop(self) {
        for mut served in self.running {
            served.process.signal("TERM");
            let status = served.process.until_ended(END_PATIENCE);
            assert!(status.success(), "ended with {status}: {}", served.process.log());
        }
    }
}
