//! An operation that its owner has given up is not signed again, whatever the chain does with its earlier transaction
//! and whichever actor dies meanwhile. It is refused, and the owner is notified once.

use std::collections::BTreeSet;

use payferry_actors::chain::Step;
use payferry_devchain::Dropped;
use payferry_domain::outbound;
use payferry_domain::payment::fixtures::{EXPIRY_SECS, START, Tx, at, hash, tx, verdict};
use payferry_domain::payment::{
    Command, Decision, OperationAction, Payment, RefundOrder, RefundState, Requester, SettlementState, initiate,
    transition,
};
use payferry_domain::{Address, Amount, Finality, FinalityPolicy, OperationId, PaymentId, RefundId};
use payferry_entities::{operations, payments};
use payferry_journal::chain::Role;
use payferry_journal::payments::row_of;
use sea_orm::sea_query::{Condition, Expr};
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel};

use super::env::Env;
use crate::env::Coin;

const UNITS: u64 = 10_000_000;
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
            Self::Settlement | Self::RefundOfWallet => env.vault(payment),
            Self::RefundOfBalance | Self::Withdrawal => env.psp_vault(),
        }
    }
}

fn notified(payment: &Payment, command: &Command) -> Payment {
    transition(payment, command, START).unwrap().unwrap_or_else(|| panic!("{command:?} changes nothing")).payment
}

/// The transfer that pays 10.00.
fn paying(env: &Env) -> Tx {
    let mut tx = tx(1);
    tx.0.token_address = env.coin(Coin::Usdc);
    tx
}

/// A payment of this amount with a final and accepted transfer of 10.00.
fn paid(env: &Env, id: PaymentId, amount: i64) -> Payment {
    let terms = env.terms(id, amount, FinalityPolicy::flat(Finality::Finalized));
    let paying = paying(env);
    let payment = initiate(terms, at(EXPIRY_SECS)).unwrap().payment;
    let arrives = [paying.seen(), paying.screened(Decision::Allow), paying.finalised()];
    arrives.iter().fold(payment, |payment, command| notified(&payment, command))
}

/// The payment with a refund of 10.00 that may be sent.
fn refunding(payment: &Payment, refund_id: RefundId) -> Payment {
    let order = RefundOrder { to: Some(ELSEWHERE), ..RefundOrder::new(refund_id, Requester::Psp) };
    let asked = Command::RequestRefund(Box::new(order));
    notified(&notified(payment, &asked), &Command::ScreenRefund { refund_id, verdict: verdict(Decision::Allow) })
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
    async fn of(env: &Env, owner: Owner) -> Self {
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
                    tx_hash: hash(4),
                    block_time: START,
                };
                refunding(&notified(&payment, &settled), refund_id)
            }
        };
        let row = row_of(&payment).unwrap();
        payments::Entity::insert(row.into_active_model()).exec(env.database.writer()).await.unwrap();
        let vault = owner.vault(env, id);
        env.send_money(vault, UNITS).await;
        env.mine(3).await;
        let mut given_up = Self { owner, payment, operation: OperationId::refund_of(refund_id), vault, revision: 0 };
        match owner {
            Owner::Settlement => given_up.while_it_is_on_its_way(env).await,
            _ => given_up.when_the_chain_had_refused_it(env).await,
        }
        given_up
    }

    /// The payment's transfer is reorged while the settlement is in flight; then its batch reverts.
    async fn while_it_is_on_its_way(&mut self, env: &Env) {
        self.operation = OperationId::settlement_of(self.payment.id());
        env.queue_settlements(&[self.payment.id()], UNITS).await;
        env.until_signed(1).await;
        env.set_contract_paused(true, true).await;
        hold_back(env, true);
        self.notified(env, &paying(env).rev(2).gone().seen()).await;
        assert_eq!(self.payment.settlement.as_deref().unwrap().state, SettlementState::Withdrawn);
        env.mine(1).await;
        self.until(env, "queued").await;
        env.set_contract_paused(false, false).await;
        env.mine(1).await;
    }

    /// The token rejects the recipient, and the owner has given up. A reorg removes the rejection and carries out the
    /// operation; a second reorg removes that too; then its batch reverts.
    async fn when_the_chain_had_refused_it(&mut self, env: &Env) {
        let before = env.devchain.head().number;
        if self.owner == Owner::Withdrawal {
            env.queue_withdrawals(&[ELSEWHERE], UNITS).await;
            self.operation = env.operation().await.id.parse().unwrap();
        } else {
            self.queue_refund(env).await;
        }
        // The simulation does not see the rejection, which is mined first in the same block.
        env.until_signed(1).await;
        env.set_blacklisted(ELSEWHERE, true).await;
        env.mine_until("it is rejected", async || env.txs().await.iter().any(|tx| tx.status.as_str() == "mined")).await;
        let row = self.row(env).await;
        let (refund_id, revision) = (RefundId::from_ulid(self.operation.ulid()), u32::try_from(row.revision).unwrap());
        if self.owner == Owner::Withdrawal {
            env.withdrawal_failed(&row).await;
        } else {
            self.notified(env, &Command::FailRefund { refund_id, revision, reason: "refused".to_owned() }).await;
            assert_eq!(self.payment.refunds[0].state, RefundState::Failed);
        }
        self.set_status(env, "cancelled").await;

        env.reorg(env.devchain.head().number - before, Dropped::Discard).await;
        self.until(env, "mined").await;
        assert_eq!(env.balance(ELSEWHERE).await, UNITS);

        hold_back(env, true);
        let block = u64::try_from(self.row(env).await.block_number.unwrap()).unwrap();
        env.reorg_from(block, Dropped::Discard).await;
        env.set_contract_paused(true, true).await;
        self.until(env, "queued").await;
        env.set_contract_paused(false, false).await;
        env.mine(1).await;
    }

    async fn queue_refund(&self, env: &Env) {
        let kind = if self.owner == Owner::RefundOfWallet { "send" } else { "send_psp" };
        env.queue_withdrawals(&[ELSEWHERE], UNITS).await;
        let changes = [
            (operations::Column::Id, Expr::value(self.operation.to_string())),
            (operations::Column::PaymentId, Expr::value(self.payment.id().to_string())),
            (operations::Column::Kind, Expr::value(kind)),
            (operations::Column::MaxFeeBps, Expr::value(i64::from(self.payment.terms.fee_bps.get()))),
        ];
        env.update_operations(Condition::all(), changes).await;
    }

    /// Applies the command to the owner and stores its row.
    async fn notified(&mut self, env: &Env, command: &Command) {
        self.payment = notified(&self.payment, command);
        let row = row_of(&self.payment).unwrap().into_active_model();
        payments::Entity::update(row.reset_all()).exec(env.database.writer()).await.unwrap();
    }

    async fn set_status(&self, env: &Env, status: &str) {
        let row = self.row(env).await;
        let changes = [
            (operations::Column::Status, Expr::value(status)),
            (operations::Column::Revision, Expr::value(row.revision + 1)),
        ];
        env.update_operations(operations::Column::Id.eq(row.id), changes).await;
    }

    async fn row(&self, env: &Env) -> operations::Model {
        let row = operations::Entity::find_by_id(self.operation.to_string()).one(env.database.reader());
        row.await.unwrap().unwrap()
    }

    /// Mines until the operation has this status.
    async fn until(&mut self, env: &Env, status: &str) {
        env.mine_until(&format!("it is {status}"), async || self.row(env).await.status.as_str() == status).await;
        self.revision = self.row(env).await.revision;
    }

    /// Revisions of failure notifications since it was queued again. A repeated notification changes nothing.
    fn refusals(&self, env: &Env) -> BTreeSet<u32> {
        let known = u32::try_from(self.revision).unwrap();
        let mut revisions = env.inbox.find(|_, command| match command {
            Command::FailSettlement { revision, .. } | Command::FailRefund { revision, .. } => Some(*revision),
            _ => None,
        });
        revisions.extend(env.inbox.find_outbound(|_, command| match command {
            outbound::Command::Fail { revision, .. } => Some(*revision),
            _ => None,
        }));
        revisions.into_iter().filter(|revision| *revision > known).collect()
    }

    /// Asserts that it is refused and the owner notified once, that nothing more was signed, and that the money did not
    /// move.
    async fn assert_refused(&mut self, env: &Env) {
        env.mine_until("it is refused and reported", async || {
            self.row(env).await.status.as_str() == "failed" && !self.refusals(env).is_empty()
        })
        .await;
        env.mine_and_read(3).await;
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
        let step = transition(&self.payment, &notified, START).unwrap();
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
    Env::finalized_at(2_000).await
}

/// Pauses or resumes signing and refusing of operations; signed transactions are still followed. Without it, an
/// operation that is queued again would be refused after some seconds, even if the test is not ready.
fn hold_back(env: &Env, on: bool) {
    for role in Role::ALL {
        env.handle.set_paused(role, on);
    }
}

#[tokio::test]
async fn given_up_operations_are_not_signed_again_and_reported_once() {
    for owner in Owner::ALL {
        let env = env().await;
        env.start().await;
        let mut given_up = AbandonedOperation::of(&env, owner).await;
        hold_back(&env, false);
        given_up.assert_refused(&env).await;
    }
}

#[tokio::test]
async fn killed_while_refusing_a_given_up_operation() {
    for step in [Step::Recorded, Step::Notified] {
        for owner in [Owner::Settlement, Owner::RefundOfWallet, Owner::Withdrawal] {
            let env = env().await;
            env.start().await;
            let mut given_up = AbandonedOperation::of(&env, owner).await;
            env.stop_settler().await;
            assert_eq!((given_up.row(&env).await.status.as_str(), given_up.refusals(&env).len()), ("queued", 0));
            hold_back(&env, false);
            env.settle_until_dead(&[step]).await;
            assert_eq!(given_up.row(&env).await.status.as_str(), "failed", "{owner:?} {step:?}: it is recorded");
            assert_eq!(given_up.refusals(&env).len(), usize::from(step == Step::Notified), "{owner:?} {step:?}");
            env.settle().await;
            given_up.assert_refused(&env).await;
        }
    }
}
