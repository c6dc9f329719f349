//! What a story is played on: a running service with chains, and somebody who moves the world around it.
//!
//! A story is written once, over any [`Stage`], and is one test on each of them; see `on_every_stage`. What the PSP does
//! is not here: that is plain HTTP, the same on every stage.

mod purses;
mod sandbox;
mod serve;

use std::time::{Duration, Instant};

use payferry_actors::System;
use payferry_actors::chain::ChainView;
use payferry_domain::{Chain, Timestamp, Token};
use payferry_harness::PATIENCE;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;

pub use payferry_devchain::Dropped;
pub use purses::{Purse, Purses};
pub use sandbox::OnSandbox;
pub use serve::{Anvils, Devchains, Kind, OnAnvil, OnDevchain, Serve};

/// A running service, its chains, and whoever pays on them. Chains make blocks by themselves, unless they are paused.
pub trait Stage: Sized {
    /// A fresh one.
    async fn start() -> Self;

    /// Where the PSP reaches the service.
    fn api_url(&self) -> &str;

    /// The PSP's key.
    fn api_key(&self) -> &str;

    /// The service's supervision tree.
    fn system(&self) -> &System;

    /// Where money ends up.
    fn purses(&self) -> &Purses;

    /// Sends a real transfer to the payment's wallet; answers the transaction's hash.
    async fn pay(&self, payment_id: &str, transfer: Transfer) -> String;

    /// Mines blocks, also on a paused chain.
    async fn mine(&self, chain: Chain, blocks: u64);

    /// The chain makes no blocks by itself any more.
    async fn pause_mining(&self, chain: Chain);

    /// The chain makes blocks by itself again.
    async fn resume_mining(&self, chain: Chain);

    /// The chain replaces its last blocks by others, without their transactions.
    async fn reorg(&self, chain: Chain, depth: u64, dropped: Dropped);

    /// Moves the time of all chains on, with blocks all the way.
    async fn advance(&self, secs: u64);

    /// Moves a paused chain's time on to a moment, with blocks all the way.
    async fn advance_chain_to(&self, chain: Chain, at: Timestamp);

    /// Mines one block with what waits on a paused chain, at the second of this moment.
    async fn mine_at(&self, chain: Chain, at: Timestamp);

    /// The chain stands still for so long, and then goes on.
    async fn jump_chain(&self, chain: Chain, secs: u64);

    /// Makes the payment's actor panic; it has been dealt with when this answers.
    async fn panic(&self, payment_id: &str);

    /// Stops the service, then the chains.
    async fn stop(self);
}

/// A transfer to a payment's wallet: what is due, as it is due, unless it is said otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub struct Transfer {
    pub amount: Option<&'static str>,
    pub token: Option<Token>,
    pub chain: Option<Chain>,
    pub is_sanctioned: bool,
}

impl Transfer {
    /// What is due.
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

    /// In this token, wanted or not.
    pub fn in_token(self, token: Token) -> Self {
        Self { token: Some(token), ..self }
    }

    /// On this chain, wanted or not.
    pub fn on(self, chain: Chain) -> Self {
        Self { chain: Some(chain), ..self }
    }
}

/// A fresh stage, and the PSP's view of it.
pub async fn story<S: Stage>() -> (S, Psp) {
    let (stage, psp, _) = story_with_receiver().await;
    (stage, psp)
}

/// The same with the PSP's webhook receiver, which otherwise ends at once.
pub async fn story_with_receiver<S: Stage>() -> (S, Psp, Receiver) {
    story_on(S::start().await).await
}

/// The same on a stage that was started already.
pub async fn story_on<S: Stage>(stage: S) -> (S, Psp, Receiver) {
    let receiver = Receiver::start().await;
    // A chain that was not looked at yet takes no payments.
    for chain in Chain::ALL {
        until_read(&stage, chain, Timestamp(0)).await;
    }
    let psp = Psp::connect(stage.api_url(), stage.api_key(), &receiver).await;
    (stage, psp, receiver)
}

/// Waits until the service has read the chain up to this moment.
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
        assert!(since.elapsed() < PATIENCE, "{chain} was never read so far: {:?}", stage.system().chain_view(chain));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One test of each story per stage: `stories::exact::every_chain_and_token::on_the_sandbox`.
macro_rules! on_every_stage {
    ($($story:ident),+ $(,)?) => {
        $(
            mod $story {
                #[tokio::test(flavor = "multi_thread")]
                async fn on_the_sandbox() {
                    super::$story::<crate::stage::OnSandbox>().await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn on_devchain() {
                    super::$story::<crate::stage::OnDevchain>().await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn on_anvil() {
                    super::$story::<crate::stage::OnAnvil>().await;
                }
            }
        )+
    };
}
pub(crate) use on_every_stage;

/// The same for stories about what only `serve` can be told or only a node can say: over any [`Kind`] of node.
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
