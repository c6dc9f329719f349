//! Stages of the end-to-end stories: a running service with chains, and control over its environment.
//!
//! A story is written once for any [`Stage`] and is one test on each of them; see `on_every_stage`. The PSP's actions
//! are not here: they are plain HTTP, the same on every stage.

mod sandbox;
mod serve;

use std::ops::Deref;

use payferry_actors::System;
use payferry_actors::chain::ChainView;
use payferry_devchain::DevWallet;
use payferry_domain::{Chain, PaymentId, Timestamp, Token};
use payferry_harness::node::Node;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{eventually, expect};
use payferry_runtime::observe::{ActorKind, LOG_ENTRIES_MAX};
use reqwest::Method;
use serde_json::Value;

use crate::conformance::Document;

pub use sandbox::{OnSandbox, sandbox_over};
pub use serve::{OnAnvil, OnDevchain, Serve};

/// A running service, its chains and their payers. Chains mine automatically, unless paused.
pub trait Stage: Sized {
    /// Starts a new stage.
    async fn start() -> Self;

    /// Client with the key of the PSP, without a merchant.
    fn psp(&self) -> &Psp;

    /// The service's supervision tree.
    fn system(&self) -> &System;

    /// The node of a chain.
    fn node(&self, chain: Chain) -> &Node;

    /// On-chain balances of the PSP's vault and of the treasury, in base units.
    async fn holdings(&self, chain: Chain, token: Token) -> (i64, i64);

    /// A payer's account, which holds tokens.
    fn payer(&self) -> DevWallet;

    /// Sends a real transfer to the payment's wallet; returns the transaction hash.
    async fn pay(&self, payment_id: &str, transfer: Transfer) -> String;

    /// Advances the time of all chains, with blocks in between.
    async fn advance(&self, secs: u64);

    /// Makes the payment's actor panic and waits until its supervisor has handled it.
    async fn panic(&self, payment_id: &str) {
        let system = self.system();
        let incidents = || system.log().latest_of(ActorKind::Payment, payment_id, LOG_ENTRIES_MAX).len();
        let before = incidents();
        system.inject_panic(payment_id.parse::<PaymentId>().unwrap());
        eventually(format!("{payment_id} panics"), async || expect(incidents(), |now| *now != before)).await;
    }

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

/// Plays a story on a new stage. Each event in the feed is as the document describes it.
pub async fn play<S: Stage>(story: impl AsyncFnOnce(&S, &Client)) {
    let (stage, psp) = story_on(S::start().await).await;
    story(&stage, &psp).await;
    let document = Document::new(psp.ok(Method::GET, "/openapi.json", Value::Null).await);
    for event in psp.feed().await {
        document.assert_describes(&event);
    }
    stage.stop().await;
}

/// Makes the PSP's client on a running stage.
pub async fn story_on<S: Stage>(stage: S) -> (S, Client) {
    let receiver = Receiver::start().await;
    // A chain that was not polled yet accepts no payments.
    for chain in Chain::ALL {
        until_read(&stage, chain, Timestamp(0)).await;
    }
    let psp = Psp::connect(&stage.psp().url, &stage.psp().api_key, &receiver).await;
    (stage, Client { psp, receiver })
}

/// Unix seconds, as nodes use them.
pub fn seconds(at: Timestamp) -> u64 {
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
    let look = async || match stage.system().chain_view(chain) {
        Some(view) if wanted(&view) => Ok(()),
        view => Err(format!("{view:?}")),
    };
    eventually(format!("{chain} is read"), look).await;
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
