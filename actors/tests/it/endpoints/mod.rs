//! The whole actor tree behind faulty endpoints that behave like real providers: no wrong confirmation, no lost or
//! double settlement, and the operator sees the reason.

mod agreement;
mod errors;
mod failover;
mod faults;
mod logs;
mod mixture;
mod reorganised;

use std::time::Duration;

use payferry_actors::chain::ChainView;
use payferry_devchain::Tags;
use payferry_domain::payment::{Payment, Status};
use payferry_entities::chain_cursors;
use payferry_harness::endpoint::{Endpoint, Fault};
use sea_orm::EntityTrait;

use crate::env::senses::{self, Senses, logged, metric};
use crate::env::{Env, Options};

/// Options with endpoints of each chain. The test has the log and the metrics for itself.
fn behind(endpoints: usize) -> Options {
    let tweak = |spec: &mut payferry_evm::ChainSpec| {
        spec.poll_interval = Duration::from_millis(50);
        spec.batch_window = Duration::from_millis(50);
    };
    // The `finalized` block is below every reorg of these tests.
    let tags = Tags { finalized_depth: 32, ..Tags::JUMPING };
    Options { endpoints, tags, tweaks: vec![tweak], senses: Senses::Alone, ..Options::default() }
}

impl Env {
    /// The first endpoint of the first chain.
    fn endpoint(&self) -> &Endpoint {
        &self.chain().endpoints[0]
    }

    /// The first endpoint shows this fault.
    fn show(&self, fault: Fault) {
        self.endpoint().show([fault]);
    }

    fn view(&self) -> ChainView {
        self.system().chain_view(self.chain().chain).unwrap()
    }

    fn degraded_reason(&self) -> Option<String> {
        self.system().chain_view(self.chain().chain)?.degraded_reason
    }

    async fn until_read_again(&self) {
        self.until("the chain is read again", async || self.degraded_reason().is_none()).await;
        self.until_read(self.chain()).await;
    }

    async fn until_logged(&self, words: &[&str]) {
        self.until(&format!("{words:?} is logged"), async || logged(words)).await;
    }

    /// Waits until the operator sees the problem: its kind as a metric, and a log line with these words.
    async fn until_noticed(&self, kind: &str, words: &[&str]) {
        let (chain, kind) = (format!("chain={}", self.chain().chain), format!("kind={kind}"));
        let is_shown = || metric("payferry_chain_trouble", &[&chain, &kind]) > 0 && self.degraded_reason().is_some();
        self.until(&format!("{kind} is shown"), async || is_shown()).await;
        self.until_logged(words).await;
    }

    /// Asserts that every confirmed or settled payment has its money in the current chain.
    async fn assert_true_to_chain(&self, payments: &[Payment]) {
        for payment in payments {
            let payment = self.load(payment.id()).await;
            if !matches!(payment.status, Status::Confirmed | Status::Settled) {
                continue;
            }
            let mut held = 0;
            for transfer in payment.transfers.iter().filter(|transfer| transfer.counted) {
                let receipt = self.chains[&payment.terms.chain].receipt(transfer.key.tx_hash).await;
                if receipt["blockHash"] == transfer.key.block_hash.to_string() && receipt["status"] == "0x1" {
                    held += transfer.amount.units();
                }
            }
            assert!(held >= payment.terms.amount.units(), "not in the chain: {payment:#?}\n{}", senses::log_tail());
        }
    }

    /// Asserts that this many payments of 10 were settled once each and nothing else was, that each feed is gapless,
    /// and that no log line or metric contains an endpoint's key.
    async fn assert_balances(&self, payments: &[Payment], settled: usize) {
        assert!(settled <= payments.len());
        self.assert_settled(settled).await;
        self.check_feed(payments).await;
        senses::assert_discreet();
    }

    /// Asserts that everything settles, once.
    async fn finish(&self, payments: &[Payment]) {
        self.until_settled(payments).await;
        self.assert_true_to_chain(payments).await;
        self.assert_balances(payments, payments.len()).await;
    }

    /// Recorded position of the rescan: the first block not rescanned.
    async fn second_look_from(&self) -> u64 {
        let row = chain_cursors::Entity::find_by_id(self.chain().chain.as_str());
        let row = row.one(self.database.reader()).await.unwrap().unwrap();
        u64::try_from(row.second_look_from).unwrap()
    }
}
