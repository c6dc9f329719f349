//! An operation that its owner has given up is not signed again, whatever the chain does with its earlier transaction
//! and whichever actor dies meanwhile. It is refused, and the owner is notified once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alloy::sol_types::SolCall;
use payferry_actors::chain::{SettlerMessage, Step};
use payferry_contracts::Payferry;
use payferry_devchain::{ChainConfig, Dropped};
use payferry_domain::payment::{
    BlockRef, ChainChoice, Command, Decision, Funds, ObservedTransfer, OperationAction, OverpaymentPolicy, Payment,
    Presence, Purpose, RefundState, Requester, SettlementState, Terms, TransferKey, Verdict, initiate, transition,
};
use payferry_domain::sending;
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
use crate::world::{World, chain_config, settler_report, stop};

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
    fn vault(self, world: &World, payment: PaymentId) -> Address {
        match self {
            Self::Settlement | Self::RefundOfWallet => world.vaults.of_payment(payment),
            Self::RefundOfBalance | Self::Withdrawal => world.vaults.of_psp(world.psp),
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

fn told(payment: &Payment, command: &Command) -> Payment {
    transition(payment, command, NOW).unwrap().unwrap_or_else(|| panic!("{command:?} changes nothing")).payment
}

/// The transfer that pays 10.00, with this presence.
fn transfer(world: &World, revision: u32, presence: Presence) -> ObservedTransfer {
    ObservedTransfer {
        key: TransferKey { chain: Chain::Base, tx_hash: Hash32([1; 32]), log_index: 0 },
        revision,
        block: BlockRef { number: 1, hash: Hash32([2; 32]), time: NOW },
        first_block_time: None,
        from: Address([3; 20]),
        token_address: world.token,
        token: Some(Token::Usdc),
        amount: Amount::from_units(10_000_000),
        presence,
    }
}

/// A payment of this amount with a final and accepted transfer of 10.00.
fn paid(world: &World, id: PaymentId, amount: i64) -> Payment {
    let terms = Terms {
        id,
        psp_id: world.psp,
        purpose: Purpose::PayIn,
        merchant_id: Some(world.merchant),
        customer_id: None,
        reference: None,
        metadata: None,
        amount: Amount::from_units(amount),
        token: Token::Usdc,
        token_address: world.token,
        chain: Chain::Base,
        chain_choice: ChainChoice::Asked,
        wallet: world.vaults.of_payment(id),
        link_token: id.to_string(),
        fee_bps: FeeBps::DEFAULT,
        tolerance: Tolerance::default(),
        overpayment: OverpaymentPolicy::Hold,
        refund_to_sender: false,
        dust_floor: Amount::ZERO,
        finality: FinalityPolicy::flat(Finality::Finalized),
        created_at: NOW,
    };
    let seen = transfer(world, 1, Presence::Present);
    let payment = initiate(terms, NOW.plus_secs(1_200)).payment;
    let payment = told(&payment, &Command::ObserveTransfer(seen));
    let payment = told(&payment, &Command::ScreenTransfer { key: seen.key, revision: 1, verdict: verdict() });
    told(&payment, &Command::FinaliseTransfer { key: seen.key, revision: 1, reached: Finality::Finalized })
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
    told(&told(payment, &asked), &Command::ScreenRefund { refund_id, verdict: verdict() })
}

/// One operation that was signed once, given up by its owner, and queued again because of a later change of the chain.
struct GivenUp {
    owner: Owner,
    payment: Payment,
    operation: OperationId,
    vault: Address,
    /// Newest revision that its owner knows.
    revision: i64,
}

impl GivenUp {
    /// Creates the operation; needs a watcher and a settler. Afterwards nothing on the chain prevents it, and the
    /// settler is held back.
    async fn of(world: &World, owner: Owner, settler: &Mailbox<SettlerMessage>) -> Self {
        let id = PaymentId::generate();
        let refund_id = RefundId::generate();
        let payment = match owner {
            Owner::Settlement | Owner::Withdrawal => paid(world, id, 10_000_000),
            Owner::RefundOfWallet => refunding(&paid(world, id, 20_000_000), refund_id),
            Owner::RefundOfBalance => {
                let payment = paid(world, id, 10_000_000);
                let settled = Command::CompleteSettlement {
                    operation: OperationId::settlement_of(id),
                    revision: 1,
                    amount: Amount::from_units(10_000_000),
                    tx_hash: Hash32([4; 32]),
                    block_time: NOW,
                };
                refunding(&told(&payment, &settled), refund_id)
            }
        };
        let row = payferry_journal::payments::row_of(&payment).unwrap();
        payments::Entity::insert(row.into_active_model()).exec(world.database.writer()).await.unwrap();
        let vault = owner.vault(world, id);
        world.send_money(vault, UNITS.into()).await;
        world.chain.mine(3).await.unwrap();
        let mut given_up = Self { owner, payment, operation: OperationId::refund_of(refund_id), vault, revision: 0 };
        match owner {
            Owner::Settlement => given_up.while_it_is_on_its_way(world, settler).await,
            _ => given_up.when_the_chain_had_refused_it(world).await,
        }
        given_up
    }

    /// The payment's transfer is reorged while the settlement is in flight; then its batch reverts.
    async fn while_it_is_on_its_way(&mut self, world: &World, settler: &Mailbox<SettlerMessage>) {
        self.operation = OperationId::settlement_of(self.payment.id());
        set_paused(world, true).await;
        world.chain.mine(1).await.unwrap();
        world.queue_settlements(&[self.payment.id()], 10_000_000).await;
        world.until("it is signed", async || settler_report(settler).await.operations == 1).await;
        hold_back(world, true);
        self.told(world, &Command::ObserveTransfer(transfer(world, 2, Presence::Orphaned))).await;
        assert_eq!(self.payment.settlement.as_deref().unwrap().state, SettlementState::Withdrawn);
        world.chain.mine(1).await.unwrap();
        self.until(world, "queued").await;
        set_paused(world, false).await;
        world.chain.mine(1).await.unwrap();
    }

    /// The token rejects the recipient, and the owner gives up. A reorg removes the rejection and carries out the
    /// operation; a second reorg removes that too; then its batch reverts.
    async fn when_the_chain_had_refused_it(&mut self, world: &World) {
        let before = world.chain.head().number;
        let unbarred = nonce(world).await;
        world.blacklist(ELSEWHERE).await;
        if self.owner == Owner::Withdrawal {
            world.queue_withdrawals(&[ELSEWHERE], UNITS).await;
            self.operation = world.operations().await[0].id.parse().unwrap();
        } else {
            self.queue_refund(world).await;
        }
        self.until(world, "failed").await;
        let row = self.row(world).await;
        let (refund_id, revision) = (RefundId::from_ulid(self.operation.ulid()), u32::try_from(row.revision).unwrap());
        if self.owner == Owner::Withdrawal {
            world.withdrawal_failed(&row).await;
        } else {
            self.told(world, &Command::FailRefund { refund_id, revision, reason: "refused".to_owned() }).await;
            assert_eq!(self.payment.refunds[0].state, RefundState::Failed);
        }
        self.set_status(world, "cancelled").await;

        world.chain.reorg(world.chain.head().number - before, Dropped::Discard).await.unwrap();
        world.owner.set_nonce(unbarred);
        self.until(world, "mined").await;
        assert_eq!(world.balance(ELSEWHERE).await, UNITS);

        hold_back(world, true);
        let block = u64::try_from(self.row(world).await.block_number.unwrap()).unwrap();
        world.chain.reorg(world.chain.head().number - block + 1, Dropped::Discard).await.unwrap();
        set_paused(world, true).await;
        self.until(world, "queued").await;
        set_paused(world, false).await;
        world.chain.mine(1).await.unwrap();
    }

    async fn queue_refund(&self, world: &World) {
        let kind = if self.owner == Owner::RefundOfWallet { "send" } else { "send_psp" };
        world.queue_withdrawals(&[ELSEWHERE], UNITS).await;
        operations::Entity::update_many()
            .col_expr(operations::Column::Id, Expr::value(self.operation.to_string()))
            .col_expr(operations::Column::PaymentId, Expr::value(self.payment.id().to_string()))
            .col_expr(operations::Column::Kind, Expr::value(kind))
            .exec(world.database.writer())
            .await
            .unwrap();
    }

    /// Applies the command to the owner and stores its row.
    async fn told(&mut self, world: &World, command: &Command) {
        self.payment = told(&self.payment, command);
        let row = payferry_journal::payments::row_of(&self.payment).unwrap().into_active_model();
        payments::Entity::update(row.reset_all()).exec(world.database.writer()).await.unwrap();
    }

    async fn set_status(&self, world: &World, status: &str) {
        let row = self.row(world).await;
        operations::Entity::update_many()
            .col_expr(operations::Column::Status, Expr::value(status))
            .col_expr(operations::Column::Revision, Expr::value(row.revision + 1))
            .filter(operations::Column::Id.eq(row.id))
            .exec(world.database.writer())
            .await
            .unwrap();
    }

    async fn row(&self, world: &World) -> operations::Model {
        let row = operations::Entity::find_by_id(self.operation.to_string()).one(world.database.reader());
        row.await.unwrap().unwrap()
    }

    /// Mines until the operation has this status.
    async fn until(&mut self, world: &World, status: &str) {
        world
            .until(&format!("it is {status}"), async || {
                if self.row(world).await.status == status {
                    return true;
                }
                world.chain.mine(1).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
                false
            })
            .await;
        self.revision = self.row(world).await.revision;
    }

    /// Revisions of failure notifications since it was queued again. A repeated notification changes nothing.
    fn refusals(&self, world: &World) -> BTreeSet<u32> {
        let known = u32::try_from(self.revision).unwrap();
        let of_payment = |command: &Command| match command {
            Command::FailSettlement { revision, .. } | Command::FailRefund { revision, .. } => Some(*revision),
            _ => None,
        };
        let of_sending = |command: &sending::Command| match command {
            sending::Command::Fail { revision, .. } => Some(*revision),
            _ => None,
        };
        let payments = world.inbox.told.lock().iter().filter_map(|(_, command)| of_payment(command)).collect();
        let sendings = world.inbox.sendings.lock().iter().filter_map(|(_, command)| of_sending(command)).collect();
        let all: [Vec<u32>; 2] = [payments, sendings];
        all.into_iter().flatten().filter(|revision| *revision > known).collect()
    }

    /// Asserts that it is refused and the owner notified once, that nothing more was signed, and that the money did not
    /// move.
    async fn assert_refused(&mut self, world: &World) {
        world
            .until("it is refused and reported", async || {
                world.chain.mine(1).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
                self.row(world).await.status == "failed" && !self.refusals(world).is_empty()
            })
            .await;
        world.chain.mine(3).await.unwrap();
        world.read_all().await;
        let row = self.row(world).await;
        assert!(row.failure.as_deref().unwrap().contains("given up"), "{row:?}");
        assert_eq!(row.attempts, 1);
        let refusals: Vec<u32> = self.refusals(world).into_iter().collect();
        assert_eq!(refusals.iter().map(|revision| i64::from(*revision)).collect::<Vec<_>>(), [row.revision]);
        assert_eq!(world.txs().await.len(), 1, "nothing was signed: {:?}", world.txs().await);
        assert_eq!((world.balance(self.vault).await, world.balance(ELSEWHERE).await), (UNITS, 0));
        self.assert_known(refusals[0]);
    }

    /// Asserts that the owner already knew: a payment releases the row and does not change.
    fn assert_known(&self, revision: u32) {
        let (operation, reason) = (self.operation, "given up".to_owned());
        let told = match self.owner {
            Owner::Withdrawal => return,
            Owner::Settlement => Command::FailSettlement { operation, revision, reason },
            _ => Command::FailRefund { refund_id: RefundId::from_ulid(operation.ulid()), revision, reason },
        };
        let step = transition(&self.payment, &told, NOW).unwrap();
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
async fn world() -> World {
    World::on(ChainConfig { finalized_depth: 2_000, ..chain_config() }).await
}

/// Pauses or resumes signing and refusing of operations; signed transactions are still followed. Without it, an
/// operation that is queued again would be refused after some seconds, even if the test is not ready.
fn hold_back(world: &World, on: bool) {
    for role in Role::ALL {
        world.handle.set_paused(role, on);
    }
}

/// Pauses or resumes the contract as its owner; not mined yet, and first in its block.
async fn set_paused(world: &World, on: bool) {
    let call = Payferry::setPausedCall { settlePaused_: on, sendPaused_: on };
    world.call_as_owner(world.vaults.factory(), call.abi_encode()).await;
}

/// Next nonce of the contract's owner.
async fn nonce(world: &World) -> u64 {
    let params = json!([world.owner.address(), "pending"]);
    let nonce = world.chain.call("eth_getTransactionCount", params).await.unwrap();
    u64::from_str_radix(&nonce.as_str().unwrap()[2..], 16).unwrap()
}

#[tokio::test]
async fn given_up_operations_are_not_signed_again_and_reported_once() {
    for owner in Owner::ALL {
        let world = world().await;
        let (watcher, settler) = (world.watch().await, world.settle().await);
        let mut given_up = GivenUp::of(&world, owner, &settler).await;
        hold_back(&world, false);
        given_up.assert_refused(&world).await;
        stop(settler).await;
        stop(watcher).await;
    }
}

#[tokio::test]
async fn killed_while_refusing_a_given_up_operation() {
    for step in [Step::Recorded, Step::Told] {
        for owner in [Owner::Settlement, Owner::RefundOfWallet, Owner::Withdrawal] {
            let world = world().await;
            let (watcher, settler) = (world.watch().await, world.settle().await);
            let mut given_up = GivenUp::of(&world, owner, &settler).await;
            stop(settler).await;
            assert_eq!((given_up.row(&world).await.status.as_str(), given_up.refusals(&world).len()), ("queued", 0));
            hold_back(&world, false);
            let settler = world.settle_until(Arc::new(KillAt::first(step))).await;
            until_dead(&world, &settler, step).await;
            assert_eq!(given_up.row(&world).await.status, "failed", "{owner:?} {step:?}: it is recorded");
            assert_eq!(given_up.refusals(&world).len(), usize::from(step == Step::Told), "{owner:?} {step:?}");
            let settler = world.settle().await;
            given_up.assert_refused(&world).await;
            stop(settler).await;
            stop(watcher).await;
        }
    }
}
