//! Members: further processes of a sandbox with several nodes. A member has no chains of its own. It reaches those of the
//! first process over HTTP, and follows its clock.
//!
//! The first process starts a member, writes one order per line to its standard input, and waits for one line of answer. A
//! member ends when its standard input does.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures::future::join_all;
use payferry_actors::chain::NoCheckpoint;
use payferry_actors::{ChainSetup, System};
use payferry_domain::Chain;
use payferry_evm::ChainClient;
use payferry_runtime::clock::{Clock, ClockMove};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, mpsc};
use url::Url;

use crate::chain::{Accounts, known_spec};
use crate::env::{USABLE_PATIENCE, until_read};

/// Longest time until a member has answered an order; the longest one waits until the chains are read.
const ORDER_TIMEOUT: Duration = Duration::from_secs(USABLE_PATIENCE.as_secs() + 5);
/// Longest time until a member has ended: its stop takes at most 10 s.
const END_TIMEOUT: Duration = Duration::from_secs(12);

/// Parameters of a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberStart {
    /// Name of the node.
    pub name: String,
    /// Base URL of links to the service: the proxy.
    pub public_url: Url,
    /// URL of the first process, which has the chains.
    pub first_url: Url,
    /// Offset of the clock.
    pub offset_ms: i64,
    /// Interval at which the chains are polled.
    pub poll_interval: Duration,
}

/// Addresses of a node that is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeReady {
    /// Name.
    pub name: String,
    /// URL of its public listener.
    pub api_url: String,
    /// URL of its operator listener.
    pub operator_url: String,
    /// Process id.
    pub pid: u32,
}

/// A line to a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Order {
    Start(MemberStart),
    /// The clock is about to move.
    BeginMove,
    /// The clock has this offset now.
    EndMove {
        offset_ms: i64,
    },
    /// Answer when the service has read these blocks.
    Read(BTreeMap<Chain, u64>),
}

/// The answer to an order, with the reason why it was not carried out.
type Answer = Result<(), String>;

/// A running member, in the first process.
#[derive(Debug)]
pub(crate) struct Member {
    ready: NodeReady,
    process: Child,
    pipes: Pipes,
}

#[derive(Debug)]
struct Pipes {
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Pipes {
    async fn ask<T: serde::de::DeserializeOwned>(&mut self, order: &Order) -> anyhow::Result<T> {
        let asked = async {
            let mut line = serde_json::to_vec(order)?;
            line.push(b'\n');
            self.orders.write_all(&line).await?;
            let answer = self.answers.next_line().await?.context("it has ended")?;
            anyhow::Ok(serde_json::from_str(&answer)?)
        };
        tokio::time::timeout(ORDER_TIMEOUT, asked).await.context("it does not answer")?
    }
}

impl Member {
    async fn spawn(mut command: Command, start: MemberStart) -> anyhow::Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("the process has no pipes");
        };
        let mut pipes = Pipes { orders, answers: BufReader::new(answers).lines() };
        let ready = pipes.ask(&Order::Start(start)).await?;
        Ok(Self { ready, process, pipes })
    }

    /// Closes the member's standard input and waits until it has ended.
    async fn end(self) {
        let Self { ready, mut process, pipes } = self;
        drop(pipes);
        if tokio::time::timeout(END_TIMEOUT, process.wait()).await.is_err() {
            tracing::warn!("node {} did not stop in time, and is killed", ready.name);
        }
    }
}

/// The running members, in the first process.
#[derive(Debug, Default)]
pub(crate) struct Members(Mutex<Vec<Member>>);

impl Members {
    /// Starts a member; returns when it answers requests.
    pub(crate) async fn add(&self, command: Command, start: MemberStart) -> anyhow::Result<NodeReady> {
        let name = start.name.clone();
        let member = Member::spawn(command, start).await.with_context(|| format!("node {name} did not start"))?;
        let ready = member.ready.clone();
        self.0.lock().await.push(member);
        Ok(ready)
    }

    pub(crate) async fn begin_move(&self) {
        self.order(&Order::BeginMove).await;
    }

    pub(crate) async fn end_move(&self, offset_ms: i64) {
        self.order(&Order::EndMove { offset_ms }).await;
    }

    /// Waits until all members have read these blocks.
    pub(crate) async fn until_read(&self, heads: &BTreeMap<Chain, u64>) -> anyhow::Result<()> {
        self.order(&Order::Read(heads.clone()))
            .await
            .into_iter()
            .try_for_each(|answer| answer.map_err(|why| anyhow!(why)))
    }

    /// Gives an order to each member. One that does not answer has another clock from then on, so it is ended.
    async fn order(&self, order: &Order) -> Vec<Answer> {
        let mut members = self.0.lock().await;
        let asked = members.iter_mut().map(|member| member.pipes.ask::<Answer>(order));
        let (mut answers, mut lost) = (Vec::new(), Vec::new());
        for (index, answer) in join_all(asked).await.into_iter().enumerate() {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => lost.push((index, error)),
            }
        }
        for (index, error) in lost.into_iter().rev() {
            let member = members.remove(index);
            tracing::warn!(%error, "node {} of the sandbox has gone", member.ready.name);
        }
        answers
    }

    /// Ends all members.
    pub(crate) async fn end(&self) {
        let members = std::mem::take(&mut *self.0.lock().await);
        join_all(members.into_iter().map(Member::end)).await;
    }
}

/// The orders of the first process, in a member.
#[derive(Debug)]
pub struct Orders(mpsc::UnboundedReceiver<String>);

impl Orders {
    /// Reads them from standard input.
    pub fn from_stdin() -> std::io::Result<Self> {
        let (lines, read) = mpsc::unbounded_channel();
        // A separate thread: reading standard input cannot be cancelled.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            for line in std::io::stdin().lock().lines() {
                if line.is_ok_and(|line| lines.send(line).is_ok()) {
                    continue;
                }
                return;
            }
        })?;
        Ok(Self(read))
    }

    async fn next(&mut self) -> Option<Order> {
        serde_json::from_str(&self.0.recv().await?).ok()
    }

    /// Waits for the first order.
    pub async fn start(&mut self) -> anyhow::Result<MemberStart> {
        match self.next().await {
            Some(Order::Start(start)) => Ok(start),
            _ => bail!("only a sandbox starts its members"),
        }
    }

    /// Announces that this member is ready, and carries out the orders until the first process ends it.
    pub async fn follow(mut self, ready: &NodeReady, clock: &Clock, system: &System) -> anyhow::Result<()> {
        answer(ready)?;
        let mut moving: Option<ClockMove> = None;
        while let Some(order) = self.next().await {
            let done = match order {
                Order::Start(_) => Err("already started".to_owned()),
                Order::BeginMove => {
                    moving = Some(clock.begin_move());
                    Ok(())
                }
                Order::EndMove { offset_ms } => {
                    clock.advance_secs((offset_ms - clock.offset_ms()) / 1_000);
                    moving = None;
                    Ok(())
                }
                Order::Read(heads) => until_read(&heads, system, |_| u64::MAX).await.map_err(|error| error.to_string()),
            };
            answer(&done)?;
        }
        drop(moving);
        Ok(())
    }
}

fn answer(answer: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    Ok(stdout.flush()?)
}

/// Chain setups of a member, over the JSON-RPC of the first process.
pub fn member_setups(start: &MemberStart) -> anyhow::Result<Vec<ChainSetup>> {
    let accounts = Accounts::known();
    let setup = |chain: Chain| {
        let url = start.first_url.join(&format!("/sandbox/rpc/{chain}"))?;
        let mut spec = known_spec(chain);
        spec.poll_interval = start.poll_interval;
        let [settler, sender] = accounts.operator_signers()?;
        let (client, checkpoint) = (ChainClient::http(url)?, std::sync::Arc::new(NoCheckpoint));
        Ok(ChainSetup { spec, client, settler, sender, checkpoint, wake_ups: None })
    };
    Chain::ALL.into_iter().map(setup).collect()
}
