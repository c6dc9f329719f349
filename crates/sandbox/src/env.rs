//! The simulated environment of one sandbox: chains, clock and inboxes. The clock advances the service and the chains
//! together; its offset survives restarts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::{join_all, try_join_all};
use payferry_actors::chain::{ChainView, NoCheckpoint, wake_on_change};
use payferry_actors::{ChainSetup, System};
use payferry_devchain::Faults;
use payferry_domain::{Chain, Timestamp};
use payferry_evm::ChainClient;
use payferry_runtime::clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::chain::{Accounts, SandboxChain};
use super::folder::{Folder, read_json, write_json};
use super::inbox::Inboxes;
use super::member::{MemberStart, Members, NodeReady};

/// Maximum distance between the blocks of an advance, so that the chain never counts as down.
const SPACING_SECS: u64 = 15;
/// Longest advance in one step.
pub const ADVANCE_SECS_MAX: u64 = 31 * 24 * 3600;
/// Maximum time until the service has read the chains, and the polling interval.
pub const USABLE_PATIENCE: Duration = Duration::from_secs(20);
const USABLE_POLL: Duration = Duration::from_millis(10);
/// Time that the service may be behind the head of a usable chain, because it reads a block a moment after it is mined. Shorter
/// than [`SPACING_SECS`], so that a chain is usable only after the blocks of an advance are read.
const BEHIND_SECS_MAX: i64 = 10;

/// The simulated environment.
#[derive(Debug)]
pub struct SandboxEnv {
    chains: BTreeMap<Chain, Arc<SandboxChain>>,
    clock: Clock,
    /// File of the clock's offset. The lock serialises advances.
    clock_file: Mutex<PathBuf>,
    inboxes: Inboxes,
    accounts: Arc<Accounts>,
    members: Members,
}

impl SandboxEnv {
    /// Opens the environment stored in `folder`, or creates it.
    pub async fn open(folder: &Folder, block_time: Duration) -> anyhow::Result<Self> {
        let accounts = Arc::new(Accounts::known());
        let chains = try_join_all(Chain::ALL.map(|chain| {
            let (file, accounts) = (folder.chain(chain), accounts.clone());
            async move {
                let opened = SandboxChain::open(chain, Some(file), block_time, accounts).await?;
                anyhow::Ok((chain, Arc::new(opened)))
            }
        }));
        let chains: BTreeMap<_, _> = chains.await?.into_iter().collect();
        let file = folder.clock();
        let Stored { offset_secs } = read_json(&file)?.unwrap_or_default();
        // Advances chains that are behind it, for example after a stop during an advance.
        bring_up_to(offset_secs, chains.values()).await?;
        let offset_ms = i64::try_from(offset_secs).ok().and_then(|secs| secs.checked_mul(1_000));
        let offset_ms = offset_ms.with_context(|| format!("{} is damaged", file.display()))?;
        let clock = Clock::with_offset_ms(offset_ms);
        Ok(Self {
            chains,
            clock,
            clock_file: Mutex::new(file),
            inboxes: Inboxes::default(),
            accounts,
            members: Members::default(),
        })
    }

    /// Returns a chain.
    pub fn chain(&self, chain: Chain) -> &Arc<SandboxChain> {
        // Every chain is opened.
        &self.chains[&chain]
    }

    /// All chains.
    pub fn chains(&self) -> impl Iterator<Item = (Chain, &Arc<SandboxChain>)> {
        self.chains.iter().map(|(chain, running)| (*chain, running))
    }

    /// The service's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The webhook inboxes.
    pub fn inboxes(&self) -> &Inboxes {
        &self.inboxes
    }

    /// Starts a further node with this environment, as a process of its own; returns when it answers requests.
    pub async fn add_member(&self, command: Command, start: MemberStart) -> anyhow::Result<NodeReady> {
        self.members.add(command, start).await
    }

    /// Stops the further nodes.
    pub async fn end_members(&self) {
        self.members.end().await;
    }

    /// Advances the service and the chains by `secs`, at most [`ADVANCE_SECS_MAX`]. Returns the new offset in seconds.
    ///
    /// The order is: store the offset, advance the chains, advance the service. The service therefore never sees a
    /// chain that appears stalled. No deadline passes in between.
    pub async fn advance(&self, secs: u64) -> anyhow::Result<u64> {
        let file = self.clock_file.lock().await;
        let secs = secs.min(ADVANCE_SECS_MAX);
        let before = u64::try_from(self.clock.offset_ms() / 1_000).unwrap_or(0);
        let offset_secs = before.saturating_add(secs);
        write_json(&file, &Stored { offset_secs })?;
        let _moving = self.clock.begin_move();
        self.members.begin_move().await;
        let moved = bring_up_to(offset_secs, self.chains.values()).await;
        if moved.is_ok() {
            self.clock.advance_secs(i64::try_from(secs)?);
        }
        self.members.end_move(self.clock.offset_ms()).await;
        moved.map(|()| offset_secs)
    }

    /// True if the service has read the chain, except for the newest blocks, and takes payments on it.
    pub fn is_usable(&self, chain: Chain, system: &System) -> bool {
        let head_time = self.chain(chain).devchain().head().timestamp;
        let head_time = Timestamp::from_secs(head_time.cast_signed());
        view(chain, system).is_some_and(|view| view.read_time.plus_secs(BEHIND_SECS_MAX) >= head_time)
    }

    /// Waits until the service has read every chain up to its head at the time of this call. Chains with injected faults are
    /// left out, because they may never be read. Fails with the names of the others that were not read in time.
    pub async fn until_usable(&self, system: &System) -> anyhow::Result<()> {
        let without_faults = self.chains().filter(|(_, chain)| chain.devchain().faults() == Faults::default());
        let heads: BTreeMap<_, _> =
            without_faults.map(|(name, chain)| (name, chain.devchain().head().number)).collect();
        let head = |chain| self.chain(chain).devchain().head().number;
        until_read(&heads, system, head).await?;
        self.members.until_read(&heads).await
    }

    /// Chain setups for the service, over the chains' JSON-RPC including its injected faults.
    pub fn setups(&self) -> anyhow::Result<Vec<ChainSetup>> {
        let setup = |chain: &Arc<SandboxChain>| {
            let [settler, sender] = self.accounts.operator_signers()?;
            Ok(ChainSetup {
                spec: chain.spec().clone(),
                client: ChainClient::new(chain.devchain().transport()),
                settler,
                sender,
                checkpoint: Arc::new(NoCheckpoint),
                wake_ups: Some(wake_on_change(chain.devchain().heads())),
            })
        };
        self.chains.values().map(setup).collect()
    }

    /// The accounts of the chains.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Completes pending work of the chains and closes their files.
    pub async fn close(&self) {
        join_all(self.chains.values().map(|chain| chain.devchain().close())).await;
    }
}

/// Waits until the service has read each chain up to a block, or up to its head if a reorg or a revert made it shorter.
pub(crate) async fn until_read(
    blocks: &BTreeMap<Chain, u64>,
    system: &System,
    head: impl Fn(Chain) -> u64,
) -> anyhow::Result<()> {
    let mut waiting: Vec<_> = blocks.iter().map(|(chain, number)| (*chain, *number)).collect();
    let is_read =
        |chain: Chain, number: u64| view(chain, system).is_some_and(|view| view.read_number >= number.min(head(chain)));
    let all = async {
        loop {
            waiting.retain(|(chain, number)| !is_read(*chain, *number));
            if waiting.is_empty() {
                return;
            }
            tokio::time::sleep(USABLE_POLL).await;
        }
    };
    let is_in_time = tokio::time::timeout(USABLE_PATIENCE, all).await.is_ok();
    let names: Vec<_> = waiting.iter().map(|(chain, _)| chain.as_str()).collect();
    ensure!(is_in_time, "the service has not read {} up to the head yet", names.join(" and "));
    Ok(())
}

/// The service's view of a chain on which it takes payments.
fn view(chain: Chain, system: &System) -> Option<ChainView> {
    let view = system.chains().view(chain)?;
    (view.degraded_reason.is_none() && !view.is_stale(system.clock().now())).then_some(view)
}

/// The file of the clock's offset.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    offset_secs: u64,
}

async fn bring_up_to(offset_secs: u64, chains: impl Iterator<Item = &Arc<SandboxChain>>) -> anyhow::Result<()> {
    try_join_all(chains.map(|chain| async move {
        let devchain = chain.devchain();
        let behind = i64::try_from(offset_secs)?.saturating_sub(devchain.time_offset_secs());
        if behind > 0 {
            devchain.advance_time(behind.unsigned_abs(), SPACING_SECS).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(())
}
