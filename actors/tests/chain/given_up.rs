//! An operation that its owner has given up is not signed again, whatever the chain does with its earlier transaction
//! and whichever actor dies meanwhile. It is refused, and the owner is notified once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alloy::sol_types::SolCall;
use payferry_actors::chain::{SettlerMessage, Step};
use payferry_contracts::Payferry;
use payferry_devchain::{ChainConfig, Dropped};
use payferry_domain::outbound;
use payferry_domain::payment::{
    BlockRef, ChainChoice, Command, Decision, Funds, ObservedTransfer, OperationAction, OverpaymentPolicy, Payment,
    Presence, Purpose, RefundState, Requester, SettlementState, Terms, TransferKey, Verdict, initiate, transition,
};
use payferry_domain::{
    Address, Amount, Chain, FeeBps, Finality, FinalityPolicy, Hash32, OperationId, PaymentId, RefundId, Timestamp,
    Token, Tolerance,
};
use payferry_entities::{operations, payments};
use payferry_journal::chain::Role;
use payferry_runtime::observe::Mailbox;
use sea_orm::sea_query::Expr;
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter};
use serde_json::json;

use crate::crash::{KillAt, until_dead};
use crate::env::{Env, chain_config, settler_report, stop};

const UNITS: u64 = 10_000_000;
const NOW: Timestamp = Timestamp(1_732_000_000_000);
/// An account without a role in the tests.
const ELSEWHERE: Address = Address([2; 20]);

/// Owner of the operation that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A payment whose transfer is reorged gives up its settlement.
    Settlement,
    /// A payment gives up a refund from its wallet.
    RefundOfWallet,
    /// A settled payment gives up a refund from the PSP's vault.
    RefundOfBalance,
    /// A withdrawal gives itself up.
    Withdrawal,
}

impl Owner {
    const ALL: [Self; 4] = [Self::Settlement, Self::RefundOfWallet, Self::RefundOfBalance, Self::Withdrawal];

    /// Returns the vault with the money.
    fn vault(self, env: &Env, payment: PaymentId) -> Address {
        match self {
            Self::Settlement | Self::RefundOfWallet => env.vaults.of_payment(payment),
            Self::RefundOfBalance | Self::Withdrawal => env.vaults.of_psp(env.psp),
        }
    }
}

fn verdict() -> Verdict {
    Verdict {
        decision: Decision::Allow,
        by_operator: false,
        risk_level: None,
        score: None,
        flags: Vec::new(),
        provider: "list".to_owned(),
        provider_ref: None,
        list_version: None,
        plain_sender: Some(true),
        checked_at: NOW,
    }
}

fn notified(payment: &Payment, command: &Command) -> Payment {
    transition(payment, command, NOW).unwrap().unwrap_or_else(|| panic!("{command:?} changes nothing")).payment
}

/// The transfer that pays 10.00, with this presence.
fn transfer(env: &Env, revision: u32, presence: Presence) -> ObservedTransfer {
    ObservedTransfer {
        key: TransferKey { chain: Chain::Base, tx_hash: Hash32([1; 32]), log_index: 0 },
        revision,
        block: BlockRef { number: 1, hash: Hash32([2; 32]), time: NOW },
        first_block_time: None,
        from: Address([3; 20]),
        token_address: env.token,
        token: Some(Token::Usdc),
        amount: Amount::from_units(10_000_000),
        presence,
    }
}

/// A payment of this amount with a final and accepted transfer of 10.00.
fn paid(env: &Env, id: PaymentId, amount: i64) -> Payment {
    let terms = Terms {
        id,
        psp_id: env.psp,
        purpose: Purpose::PayIn,
        merchant_id: Some(env.merchant),
        customer_id: None,
        reference: None,
        metadata: None,
        amount: Amount::from_units(amount),
        token: Token::Usdc,
        token_address: env.token,
        chain: Chain::Base,
        chain_choice: ChainChoice::Asked,
        wallet: env.vaults.of_payment(id),
        link_token: id.to_string(),
        fee_bps: FeeBps::DEFAULT,
        tolerance: Tolerance::default(),
        overpayment: OverpaymentPolicy::Hold,
        refund_to_sender: false,
        dust_floor: Amount::ZERO,
        finality: FinalityPolicy::flat(Finality::Finalized),
        created_at: NOW,
    };
    let seen = transfer(env, 1, Presence::Present);
    let payment = initiate(terms, NOW.plus_secs(1_200)).payment;
    let payment = notified(&payment, &Command::ObserveTransfer(seen));
    let payment = notified(&payment, &Command::ScreenTransfer { key: seen.key, revision: 1, verdict: verdict() });
    notified(&payment, &Command::FinaliseTransfer { key: seen.key, revision: 1, reached: Finality::Finalized })
}

/// The payment with a refund of 10.00 that may be sent.
fn refunding(payment: &Payment, refund_id: RefundId) -> Payment {
    let asked = Command::RequestRefund {
        refund_id,
        amount: None,
        to: Some(ELSEWHERE),
        funds: Funds::Received,
        asset: None,
        by: Requester::Psp,
    };
    notified(&notified(payment, &asked), &Command::ScreenRefund { refund_id, verdict: verdict() })
}

/// One operation that was signed once, given up by its owner, and queued again because of a later change of the chain.
struct AbandonedOperation {
    owner: Owner,
    payment: Payment,
    operation: OperationId,
    vault: Address,
    /// Newest revision that its owner knows.
    revision: i64,
}

impl AbandonedOperation {
    /// Creates the operation; needs a watcher and a settler. Afterwards nothing on the chain prevents it, and the
    /// settler is held back.
    async fn of(env: &Env, owner: Owner, settler: &Mailbox<SettlerMessage>) -> Self {
        let id = PaymentId::generate();
        let refund_id = RefundId::generate();
        let payment = match owner {
            Owner::Settlement | Owner::Withdrawal => paid(env, id, 10_000_000),
            Owner::RefundOfWallet => refunding(&paid(env, id, 20_000_000), refund_id),
            Owner::RefundOfBalance => {
                let payment = paid(env, id, 10_000_000);
                let settled = Command::CompleteSettlement {
                    operation: OperationId::settlement_of(id),
                    revision: 1,
                    amount: Amount::from_units(10_000_000),
                    tx_hash: Hash32([4; 32]),
                    block_time: NOW,
                };
                refunding(&notified(&payment, &settled), refund_id)
            }
        };
        let row = payferry_journal::payments::row_of(&payment).unwrap();
        payments::Entity::insert(row.into_active_model()).exec(env.database.writer()).await.unwrap();
        let vault = owner.vault(env, id);
        env.send_money(vault, UNITS.into()).await;
        env.chain.mine(3).await.unwrap();
        let mut given_up = Self { owner, payment, operation: OperationId::refund_of(refund_id), vault, revision: 0 };
        match owner {
            Owner::Settlement => given_up.while_it_is_on_its_way(env, settler).await,
            _ => given_up.when_the_chain_had_refused_it(env).await,
        }
        given_up
    }

    /// The payment's transfer is reorged while the settlement is in flight; then its batch reverts.
    async fn while_it_is_on_its_way(&mut self, env: &Env, settler: &Mailbox<SettlerMessage>) {
        self.operation = OperationId::settlement_of(self.payment.id());
        set_paused(env, true).await;
        env.chain.mine(1).await.unwrap();
        env.queue_settlements(&[self.payment.id()], 10_000_000).await;
        env.until("it is signed", async || settler_report(settler).await.operations == 1).await;
        hold_back(env, true);
        self.notified(env, &Command::ObserveTransfer(transfer(env, 2, Presence::Orphaned))).await;
        assert_eq!(self.payment.settlement.as_deref().unwrap().state, SettlementState::Withdrawn);
        env.chain.mine(1).await.unwrap();
        self.until(env, "queued").await;
        set_paused(env, false).await;
        env.chain.mine(1).await.unwrap();
    }

    /// The token rejects the recipient, and the owner gives up. A reorg removes the rejection and carries out the
    /// operation; a second reorg removes that too; then its batch reverts.
    async fn when_the_chain_had_refused_it(&mut self, env: &Env) {
        let before = env.chain.head().number;
        let unbarred = nonce(env).await;
        env.blacklist(ELSEWHERE).await;
        if self.owner == Owner::Withdrawal {
            env.queue_withdrawals(&[ELSEWHERE], UNITS).await;
            self.operation = env.operations().await[0].id.parse().unwrap();
        } else {
            self.queue_refund(env).await;
        }
        self.until(env, "failed").await;
        let row = self.row(env).await;
        let (refund_id, revision) = (RefundId::from_ulid(self.operation.ulid()), u32::try_from(row.revision).unwrap());
        if self.owner == Owner::Withdrawal {
            env.withdrawal_failed(&row).await;
        } else {
            self.notified(env, &Command::FailRefund { refund_id, revision, reason: "refused".to_owned() }).await;
            assert_eq!(self.payment.refunds[0].state, RefundState::Failed);
        }
        self.set_status(env, "cancelled").await;

        env.chain.reorg(env.chain.head().number - before, Dropped::Discard).await.unwrap();
        env.owner.set_nonce(unbarred);
        self.until(env, "mined").await;
        assert_eq!(env.balance(ELSEWHERE).await, UNITS);

        hold_back(env, true);
        let block = u64::try_from(self.row(env).await.block_number.unwrap()).unwrap();
        env.chain.reorg(env.chain.head().number - block + 1, Dropped::Discard).await.unwrap();
        set_paused(env, true).await;
        self.until(env, "queued").await;
        set_paused(env, false).await;
        env.chain.mine(1).await.unwrap();
    }

    async fn queue_refund(&self, env: &Env) {
        let kind = if self.owner == Owner::RefundOfWallet { "send" } else { "send_psp" };
        env.queue_withdrawals(&[ELSEWHERE], UNITS).await;
        operations::Entity::update_many()
            .col_expr(operations::Column::Id, Expr::value(self.operation.to_string()))
            .col_expr(operations::Column::PaymentId, Expr::value(self.payment.id().to_string()))
            .col_expr(operations::Column::Kind, Expr::value(kind))
            .exec(env.database.writer())
            .await
            .unwrap();
    }

    /// Applies the command to the owner and stores its row.
    async fn notified(&mut self, env: &Env, command: &Command) {
        self.payment = notified(&self.payment, command);
        let row = payferry_journal::payments::row_of(&self.payment).unwrap().into_active_model();
        payments::Entity::update(row.reset_all()).exec(env.database.writer()).await.unwrap();
    }

    async fn set_status(&self, env: &Env, status: &str) {
        let row = self.row(env).await;
        operations::Entity::update_many()
            .col_expr(operations::Column::Status, Expr::value(status))
            .col_expr(operations::Column::Revision, Expr::value(row.revision + 1))
            .filter(operations::Column::Id.eq(row.id))
            .exec(env.database.writer())
            .await
            .unwrap();
    }

    async fn row(&self, env: &Env) -> operations::Model {
        let row = operations::Entity::find_by_id(self.operation.to_string()).one(env.database.reader());
        row.await.unwrap().unwrap()
    }

    /// Mines until the operation has this status.
    async fn until(&mut self, env: &Env, status: &str) {
        env.until(&format!("it is {status}"), async || {
            if self.row(env).await.status == status {
                return true;
            }
            env.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            false
        })
        .await;
        self.revision = self.row(env).await.revision;
    }

    /// Revisions of failure notifications since it was queued again. A repeated notification changes nothing.
    fn refusals(&self, env: &Env) -> BTreeSet<u32> {
        let known = u32::try_from(self.revision).unwrap();
        let of_payment = |command: &Command| match command {
            Command::FailSettlement { revision, .. } | Command::FailRefund { revision, .. } => Some(*revision),
            _ => None,
        };
        let of_outbound = |command: &outbound::Command| match command {
            outbound::Command::Fail { revision, .. } => Some(*revision),
            _ => None,
        };
        let payments = env.inbox.notified.lock().iter().filter_map(|(_, command)| of_payment(command)).collect();
        let sendings = env.inbox.sendings.lock().iter().filter_map(|(_, command)| of_outbound(command)).collect();
        let all: [Vec<u32>; 2] = [payments, sendings];
        all.into_iter().flatten().filter(|revision| *revision > known).collect()
    }

    /// Asserts that it is refused and the owner notified once, that nothing more was signed, and that the money did not
    /// move.
    async fn assert_refused(&mut self, env: &Env) {
        env.until("it is refused and reported", async || {
            env.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.row(env).await.status == "failed" && !self.refusals(env).is_empty()
        })
        .await;
        env.chain.mine(3).await.unwrap();
        env.read_all().await;
        let row = self.row(env).await;
        assert!(row.failure.as_deref().unwrap().contains("given up"), "{row:?}");
        assert_eq!(row.attempts, 1);
        let refusals: Vec<u32> = self.refusals(env).into_iter().collect();
        assert_eq!(refusals.iter().map(|revision| i64::from(*revision)).collect::<Vec<_>>(), [row.revision]);
        assert_eq!(env.txs().await.len(), 1, "nothing was signed: {:?}", env.txs().await);
        assert_eq!((env.balance(self.vault).await, env.balance(ELSEWHERE).await), (UNITS, 0));
        self.assert_known(refusals[0]);
    }

    /// Asserts that the owner already knew: a payment releases the row and does not change.
    fn assert_known(&self, revision: u32) {
        let (operation, reason) = (self.operation, "given up".to_owned());
        let notified = match self.owner {
            Owner::Withdrawal => return,
            Owner::Settlement => Command::FailSettlement { operation, revision, reason },
            _ => Command::FailRefund { refund_id: RefundId::from_ulid(operation.ulid()), revision, reason },
        };
        let step = transition(&self.payment, &notified, NOW).unwrap();
        if self.owner == Owner::Settlement {
            let step = step.unwrap();
            let actions: Vec<_> = step.operations.iter().map(|operation| operation.action).collect();
            assert_eq!(actions, [OperationAction::Cancel]);
            assert_eq!(step.payment.settlement.as_deref().unwrap().state, SettlementState::Withdrawn);
            assert_eq!((step.payment.status, step.announcements.len()), (self.payment.status, 0));
        } else {
            assert!(step.is_none(), "{step:?}");
        }
    }
}

/// The finality depth is so large that even with a slow settler every block can still be reorged.
async fn env() -> Env {
    Env::on(ChainConfig { finalized_depth: 2_000, ..chain_config() }).await
}

/// Pauses or resumes signing and refusing of operations; signed transactions are still followed. Without it, an
/// operation that is queued again would be refused after some seconds, even if the test is not ready.
fn hold_back(env: &Env, on: bool) {
    for role in Role::ALL {
        env.handle.set_paused(role, on);
    }
}

/// Pauses or resumes the contract as its owner; not mined yet, and first in its block.
async fn set_paused(env: &Env, on: bool) {
    let call = Payferry::setPausedCall { settlePaused_: on, sendPaused_: on };
    env.call_as_owner(env.vaults.factory(), call.abi_encode()).await;
}

/// Next nonce of the contract's owner.
async fn nonce(env: &Env) -> u64 {
    let params = json!([env.owner.address(), "pending"]);
    let nonce = env.chain.call("eth_getTransactionCount", params).await.unwrap();
    u64::from_str_radix(&nonce.as_str().unwrap()[2..], 16).unwrap()
}

#[tokio::test]
async fn given_up_operations_are_not_signed_again_and_reported_once() {
    for owner in Owner::ALL {
        let env = env().await;
        let (watcher, settler) = (env.watch().await, env.settle().await);
        let mut given_up = AbandonedOperation::of(&env, owner, &settler).await;
        hold_back(&env, false);
        given_up.assert_refused(&env).await;
        stop(settler).await;
        stop(watcher).await;
    }
}

#[tokio::test]
async fn killed_while_refusing_a_given_up_operation() {
    for step in [Step::Recorded, Step::Notified] {
        for owner in [Owner::Settlement, Owner::RefundOfWallet, Owner::Withdrawal] {
            let env = env().await;
            let (watcher, settler) = (env.watch().await, env.settle().await);
            let mut given_up = AbandonedOperation::of(&env, owner, &settler).await;
            stop(settler).await;
            assert_eq!((given_up.row(&env).await.status.as_str(), given_up.refusals(&env).len()), ("queued", 0));
            hold_back(&env, false);
            let settler = env.settle_until(Arc::new(KillAt::first(step))).await;
            until_dead(&env, &settler, step).await;
            assert_eq!(given_up.row(&env).await.status, "failed", "{owner:?} {step:?}: it is recorded");
            assert_eq!(given_up.refusals(&env).len(), usize::from(step == Step::Notified), "{owner:?} {step:?}");
            let settler = env.settle().await;
            given_up.assert_refused(&env).await;
            stop(settler).await;
            stop(watcher).await;
        }
    }
}
