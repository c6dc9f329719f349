//! Stages of the end-to-end stories: a running service with chains, and control over its environment.
//!
//! A story is written once for any [`Stage`] and is one test on each of them; see `on_every_stage`. The PSP's actions
//! are not here: they are plain HTTP, the same on every stage.

mod sandbox;
mod serve;

use std::ops::Deref;
use std::time::{Duration, Instant};

use payferry_actors::System;
use payferry_actors::chain::ChainView;
use payferry_domain::{Chain, Timestamp, Token};
use payferry_harness::PATIENCE;
use payferry_harness::node::SPACING_SECS;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;

pub use payferry_devchain::Dropped;
pub use sandbox::OnSandbox;
pub use serve::{Anvils, Devchains, Kind, OnAnvil, OnDevchain, Serve};

/// A running service, its chains and their payers. Chains mine automatically, unless paused.
pub trait Stage: Sized {
    /// Starts a new stage.
    async fn start() -> Self;

    /// Client with the key of the PSP, without a merchant.
    fn psp(&self) -> &Psp;

    /// The service's supervision tree.
    fn system(&self) -> &System;

    /// On-chain balances of the PSP's vault and of the treasury, in base units.
    async fn holdings(&self, chain: Chain, token: Token) -> (i64, i64);

    /// Sends a real transfer to the payment's wallet; returns the transaction hash.
    async fn pay(&self, payment_id: &str, transfer: Transfer) -> String;

    /// Mines blocks, also on a paused chain.
    async fn mine(&self, chain: Chain, blocks: u64);

    /// Stops automatic mining.
    async fn pause_mining(&self, chain: Chain);

    /// Resumes automatic mining.
    async fn resume_mining(&self, chain: Chain);

    /// Reorgs the chain's last blocks; `dropped` says what happens to their transactions.
    async fn reorg(&self, chain: Chain, depth: u64, dropped: Dropped);

    /// Advances the time of all chains, with blocks in between.
    async fn advance(&self, secs: u64);

    /// Advances a paused chain's time to this time, with blocks in between.
    async fn advance_chain_to(&self, chain: Chain, at: Timestamp) {
        // To the second: otherwise the node's clock would advance during the call.
        let (mut head, to) = (self.head_secs(chain).await, seconds(at));
        while head < to {
            head = to.min(head + SPACING_SECS);
            self.mine_at(chain, Timestamp::from_secs(head.try_into().unwrap())).await;
        }
    }

    /// Time of the chain's newest block, in seconds.
    async fn head_secs(&self, chain: Chain) -> u64;

    /// Mines one block with the waiting transactions of a paused chain, at the second of this time.
    async fn mine_at(&self, chain: Chain, at: Timestamp);

    /// Halts the chain for this long; then it continues.
    async fn jump_chain(&self, chain: Chain, secs: u64);

    /// Makes the payment's actor panic and waits until its supervisor has handled it.
    async fn panic(&self, payment_id: &str);

    /// Stops the service, then the chains.
    async fn stop(self);
}

/// A transfer to a payment's wallet; the defaults are the due amount, token and chain.
#[derive(Debug, Clone, Copy, Default)]
pub struct Transfer {
    pub amount: Option<&'static str>,
    pub token: Option<Token>,
    pub chain: Option<Chain>,
    pub is_sanctioned: bool,
}

impl Transfer {
    /// The due amount.
    pub fn exact() -> Self {
        Self::default()
    }

    /// Another amount.
    pub fn of(amount: &'static str) -> Self {
        Self { amount: Some(amount), ..Self::default() }
    }

    /// From a payer on the sanctions list.
    pub fn sanctioned(self) -> Self {
        Self { is_sanctioned: true, ..self }
    }

    /// In this token, expected or not.
    pub fn in_token(self, token: Token) -> Self {
        Self { token: Some(token), ..self }
    }

    /// On this chain, expected or not.
    pub fn on(self, chain: Chain) -> Self {
        Self { chain: Some(chain), ..self }
    }
}

/// The PSP's client, with its webhook receiver.
pub struct Client {
    psp: Psp,
    pub receiver: Receiver,
}

impl Deref for Client {
    type Target = Psp;

    fn deref(&self) -> &Psp {
        &self.psp
    }
}

/// Plays a story on a new stage.
pub async fn play<S: Stage>(story: impl AsyncFnOnce(&S, &Client)) {
    let (stage, psp, receiver) = story_on(S::start().await).await;
    story(&stage, &Client { psp, receiver }).await;
    stage.stop().await;
}

/// Starts a stage with the PSP's client and its webhook receiver.
pub async fn story_with_receiver<S: Stage>() -> (S, Psp, Receiver) {
    story_on(S::start().await).await
}

/// Like [`story_with_receiver`], on a stage that is already running.
pub async fn story_on<S: Stage>(stage: S) -> (S, Psp, Receiver) {
    let receiver = Receiver::start().await;
    // A chain that was not polled yet accepts no payments.
    for chain in Chain::ALL {
        until_read(&stage, chain, Timestamp(0)).await;
    }
    let psp = Psp::connect(&stage.psp().url, &stage.psp().api_key, &receiver).await;
    (stage, psp, receiver)
}

fn seconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_millis() / 1_000).unwrap()
}

/// Waits until the service has read the chain up to this time.
pub async fn until_read<S: Stage>(stage: &S, chain: Chain, at: Timestamp) {
    until_view(stage, chain, |view| view.read_time >= at).await;
}

/// Waits until the service has read the chain up to this block.
pub async fn until_block<S: Stage>(stage: &S, chain: Chain, number: u64) {
    until_view(stage, chain, |view| view.read_number >= number).await;
}

async fn until_view<S: Stage>(stage: &S, chain: Chain, wanted: impl Fn(&ChainView) -> bool) {
    let since = Instant::now();
    while !stage.system().chain_view(chain).is_some_and(|view| wanted(&view)) {
        assert!(since.elapsed() < PATIENCE, "{chain} was not read in time: {:?}", stage.system().chain_view(chain));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Defines one test of each story per stage: `stories::exact::every_chain_and_token::on_the_sandbox`.
macro_rules! on_every_stage {
    ($($story:ident),+ $(,)?) => {
        $(
            mod $story {
                #[tokio::test(flavor = "multi_thread")]
                async fn on_the_sandbox() {
                    crate::stage::play::<crate::stage::OnSandbox>(super::$story).await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn on_devchain() {
                    crate::stage::play::<crate::stage::OnDevchain>(super::$story).await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn on_anvil() {
                    crate::stage::play::<crate::stage::OnAnvil>(super::$story).await;
                }
            }
        )+
    };
}
pub(crate) use on_every_stage;

/// Defines tests over any [`Kind`] of node, for stories that need configuration of `serve` or answers of a node.
macro_rules! on_every_node {
    ($($story:ident),+ $(,)?) => {
        $(
            mod $story {
                #[tokio::test(flavor = "multi_thread")]
                async fn on_devchain() {
                    super::$story::<crate::stage::Devchains>().await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn on_anvil() {
                    super::$story::<crate::stage::Anvils>().await;
                }
            }
        )+
    };
}
pub(crate) use on_every_node;
