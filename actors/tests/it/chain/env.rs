//! Test environment: a chain with the contracts, a database with payments, a journal, and functions that start watchers
//! and settlers.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use payferry_actors::chain::{
    ChainContext, FinalityWait, NoCheckpoint, Settler, SettlerArgs, SettlerHandle, SettlerMessage, SettlerReport, Step,
    Watcher, WatcherArgs, WatcherMessage, WatcherReport, Watchlist, post_unknown_sent, wake_on_change,
};
use payferry_actors::inbox::PaymentInbox;
use payferry_devchain::{Mining, Tags};
use payferry_domain::outbound::{self, OutboundId};
use payferry_domain::payment::fixtures::{EXPIRY_SECS, at, terms};
use payferry_domain::payment::{Command, ObservedTransfer, Payment, Terms, initiate};
use payferry_domain::{
    Address, Amount, Chain, FeeBps, Finality, FinalityPolicy, OperationId, PaymentId, Timestamp, WithdrawalId,
};
use payferry_entities::{chain_tx_attempts, chain_txs, operations, payments, sendings, transfers};
use payferry_evm::{ChainClient, ChainSpec};
use payferry_journal::Journal;
use payferry_journal::chain::unknown_sent::UnknownSent;
use payferry_journal::payments::row_of;
use payferry_nodes::{Lease, LeaseName, Node, NodeConfig};
use payferry_runtime::observe::{ActorRegistry, Mailbox};
use ractor::ActorStatus;
use sea_orm::sea_query::{Condition, Expr, IntoCondition};
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};

use crate::env::{self, Coin, Options, SettlerKill, operator, operator_signer, until_some};

/// A base fee above the ceiling of every transaction of ours (Base's ceiling, unless a test sets another).
const TOO_DEAR_WEI: u64 = 30_000_000_000;
/// Initial base fee of the chains.
const USUAL_WEI: u64 = 10_000_000;

/// An environment without a service, in which a test starts a watcher and a settler.
#[derive(derive_more::Deref, derive_more::DerefMut)]
pub struct Env {
    #[deref]
    #[deref_mut]
    base: env::Env,
    node: Node,
    pub journal: Journal,
    pub watchlist: Watchlist,
    pub inbox: Arc<Inbox>,
    pub handle: SettlerHandle,
    watcher: Mutex<Option<Mailbox<WatcherMessage>>>,
    settler: Mutex<Option<Mailbox<SettlerMessage>>>,
}

impl Drop for Env {
    fn drop(&mut self) {
        // The next environment of a test would share its time with them.
        self.watcher.get_mut().take().inspect(|actor| actor.stop(None));
        self.settler.get_mut().take().inspect(|actor| actor.stop(None));
    }
}

/// Records every notification.
#[derive(Default)]
pub struct Inbox {
    pub notified: Mutex<Vec<(PaymentId, Command)>>,
    pub sendings: Mutex<Vec<(OutboundId, outbound::Command)>>,
    pub progress: Mutex<Vec<Progress>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    To(Timestamp),
    StoodStill { outage: u64, from: Timestamp, to: Timestamp },
}

impl PaymentInbox for Inbox {
    fn notify(&self, payment_id: PaymentId, command: Command) {
        self.notified.lock().push((payment_id, command));
    }

    fn notify_outbound(&self, sending_id: OutboundId, command: outbound::Command) {
        self.sendings.lock().push((sending_id, command));
    }

    fn chain_progressed(&self, _chain: Chain, block_time: Timestamp) {
        self.progress.lock().push(Progress::To(block_time));
    }

    fn chain_stalled(&self, _chain: Chain, outage: u64, from: Timestamp, to: Timestamp) {
        self.progress.lock().push(Progress::StoodStill { outage, from, to });
    }
}

impl Inbox {
    pub fn observed(&self, payment: PaymentId) -> Vec<ObservedTransfer> {
        let mut facts = self.find(|id, command| match command {
            Command::ObserveTransfer(fact) if id == payment => Some(*fact),
            _ => None,
        });
        // A sweep may report a transfer twice.
        facts.dedup();
        facts
    }

    /// Facts in the commands to payments.
    pub fn find<T>(&self, fact: impl Fn(PaymentId, &Command) -> Option<T>) -> Vec<T> {
        self.notified.lock().iter().filter_map(|(id, command)| fact(*id, command)).collect()
    }

    /// The same in the commands to outbound transfers.
    pub fn find_outbound<T>(&self, fact: impl Fn(OutboundId, &outbound::Command) -> Option<T>) -> Vec<T> {
        self.sendings.lock().iter().filter_map(|(id, command)| fact(*id, command)).collect()
    }

    pub fn count(&self, of: impl Fn(&Command) -> bool) -> usize {
        self.find(|_, command| of(command).then_some(())).len()
    }

    pub fn completed(&self) -> usize {
        self.count(|command| matches!(command, Command::CompleteSettlement { .. }))
    }

    pub fn orphaned(&self) -> usize {
        self.count(|command| matches!(command, Command::OrphanSettlement { .. }))
    }

    pub fn failed(&self) -> usize {
        self.count(|command| matches!(command, Command::FailSettlement { .. }))
    }

    pub fn finalised(&self, payment: PaymentId) -> usize {
        self.find(|id, command| (id == payment && matches!(command, Command::FinaliseTransfers(_))).then_some(())).len()
    }
}

impl Env {
    pub async fn new() -> Self {
        Self::finalized_at(Tags::default().finalized_depth).await
    }

    /// The same with a watcher.
    pub async fn watching() -> Self {
        let env = Self::new().await;
        env.watch().await;
        env
    }

    /// Creates the environment on a chain whose `finalized` block is so far below the head.
    pub async fn finalized_at(finalized_depth: u64) -> Self {
        let tags = Tags { finalized_depth, ..Tags::default() };
        let options = Options { mining: Mining::OnDemand, tags, ..Options::default() };
        let reads_often = |spec: &mut ChainSpec| {
            spec.poll_interval = Duration::from_millis(25);
            spec.batch_window = Duration::from_millis(30);
        };
        let base = env::Env::unstarted(options.tweaked(reads_often)).await;
        let node = Node::join(base.database.clone(), NodeConfig::alone(base.options.chains.clone())).await.unwrap();
        let (journal, task) = Journal::start(base.database.clone());
        tokio::spawn(task.supervise(|reason| panic!("the journal panicked: {reason}")));
        Self {
            base,
            node,
            journal,
            watchlist: Watchlist::default(),
            inbox: Arc::default(),
            handle: SettlerHandle::default(),
            watcher: Mutex::default(),
            settler: Mutex::default(),
        }
    }

    pub fn client(&self) -> ChainClient {
        self.chain().client(Duration::from_secs(2))
    }

    /// Starts a watcher and a settler.
    pub async fn start(&self) {
        self.watch().await;
        self.settle().await;
    }

    pub async fn watch(&self) {
        self.watch_with(self.client()).await;
    }

    pub async fn watch_with(&self, client: ChainClient) {
        let wake_ups = Some(wake_on_change(self.devchain.heads()));
        let (context, lease) = (ChainContext { client, ..self.context() }, self.lease());
        let args = WatcherArgs { context, lease, wake_ups };
        let watcher = ActorRegistry::default().spawn(args.spec.chain.as_str(), Watcher, args, None).await.unwrap();
        *self.watcher.lock() = Some(watcher);
    }

    pub fn context(&self) -> ChainContext {
        ChainContext {
            spec: Arc::new(self.spec.clone()),
            client: self.client(),
            database: self.database.clone(),
            journal: self.journal.clone(),
            watchlist: self.watchlist.clone(),
            inbox: self.inbox.clone(),
            clock: self.clock().clone(),
        }
    }

    pub fn lease(&self) -> Lease {
        self.node.leases().get(LeaseName::Chain(self.chain().chain)).unwrap()
    }

    /// Waits like a payment for the finality of its transfer.
    pub fn await_finality(&self, payment_id: PaymentId, seen: &ObservedTransfer, finality: Finality) {
        let (key, revision, block_number) = (seen.key, seen.revision, seen.block.number);
        let amount = seen.amount;
        self.watchlist.await_finality(FinalityWait { payment_id, key, revision, block_number, finality, amount });
    }

    pub fn settler_args(&self) -> SettlerArgs {
        SettlerArgs {
            context: self.context(),
            lease: self.lease(),
            settle_signer: operator_signer(),
            send_signer: operator_signer(),
            handle: self.handle.clone(),
            checkpoint: Arc::new(NoCheckpoint),
        }
    }

    pub async fn settle(&self) {
        self.settle_with(self.settler_args()).await;
    }

    pub async fn settle_with(&self, args: SettlerArgs) {
        let settler = ActorRegistry::default().spawn(args.spec.chain.as_str(), Settler, args, None).await.unwrap();
        *self.settler.lock() = Some(settler);
    }

    /// Starts a settler that is killed after these steps, and mines until it is dead.
    pub async fn settle_until_dead(&self, steps: &[Step]) {
        self.settle_until(steps).await;
        self.until_dead(steps[steps.len() - 1]).await;
    }

    /// Starts a settler that will be killed after these steps.
    pub async fn settle_until(&self, steps: &[Step]) {
        self.settle_with(SettlerArgs { checkpoint: SettlerKill::after(steps), ..self.settler_args() }).await;
    }

    /// Mines until the settler is dead.
    pub async fn until_dead(&self, step: Step) {
        self.mine_until(&format!("the settler died after {step:?}"), async || self.is_settler_dead()).await;
    }

    pub fn is_settler_dead(&self) -> bool {
        self.settler.lock().as_ref().is_some_and(|settler| settler.get_status() == ActorStatus::Stopped)
    }

    pub async fn stop_watcher(&self) {
        let watcher = self.watcher.lock().take().expect("a watcher runs");
        watcher.stop_and_wait(None, None).await.unwrap();
    }

    pub async fn stop_settler(&self) {
        let settler = self.settler.lock().take().expect("a settler runs");
        settler.stop_and_wait(None, None).await.unwrap();
    }

    pub async fn watcher_report(&self) -> WatcherReport {
        let watcher = self.watcher.lock().clone().expect("a watcher runs");
        ractor::call!(watcher, WatcherMessage::Observe).unwrap()
    }

    pub async fn report(&self) -> SettlerReport {
        let settler = self.settler.lock().clone().expect("a settler runs");
        ractor::call!(settler, SettlerMessage::Observe).unwrap()
    }

    /// Inserts only the row of a payment; the watcher is not notified.
    pub async fn payment(&self) -> PaymentId {
        self.payments(1).await.remove(0)
    }

    pub async fn payments(&self, count: usize) -> Vec<PaymentId> {
        let finality = FinalityPolicy::flat(Finality::Blocks(2));
        let new =
            || initiate(self.terms(PaymentId::generate(), 10_000_000, finality), at(EXPIRY_SECS)).unwrap().payment;
        let payments: Vec<Payment> = (0..count).map(|_| new()).collect();
        let rows = payments.iter().map(|payment| row_of(payment).unwrap().into_active_model());
        payments::Entity::insert_many(rows).exec(self.database.writer()).await.unwrap();
        payments.iter().map(Payment::id).collect()
    }

    pub fn terms(&self, id: PaymentId, units: i64, finality: FinalityPolicy) -> Terms {
        Terms {
            id,
            psp_id: self.psp,
            merchant_id: Some(self.merchant),
            amount: Amount::from_units(units),
            token_address: self.coin(Coin::Usdc),
            wallet: self.vault(id),
            link_token: id.to_string(),
            finality,
            ..terms()
        }
    }

    /// Mines a block with this base fee.
    pub async fn mine_at(&self, base_fee_wei: u64) {
        self.devchain.set_next_base_fee(base_fee_wei).await.unwrap();
        self.mine(1).await;
    }

    /// Mines blocks whose base fee excludes our transactions; the next block has the usual fee.
    pub async fn pass_by(&self, blocks: u32) {
        for _ in 0..blocks {
            self.mine_at(TOO_DEAR_WEI).await;
        }
        self.devchain.set_next_base_fee(USUAL_WEI).await.unwrap();
    }

    /// Sends money to a wallet, into the mempool.
    pub async fn send_money(&self, to: Address, units: u64) {
        self.mint(self.coin(Coin::Usdc), &[to], units).await;
    }

    /// Sends money to a payment and mines it.
    pub async fn pay(&self, payment: PaymentId, units: u64) {
        self.pay_all(&[payment], units).await;
    }

    /// Sends `units` to each of many payments, mined in one block.
    pub async fn pay_all(&self, payments: &[PaymentId], units: u64) {
        let to: Vec<Address> = payments.iter().map(|id| self.vault(*id)).collect();
        self.mint(self.coin(Coin::Usdc), &to, units).await;
        self.mine(1).await;
    }

    /// Creates payments and pays them.
    pub async fn paid(&self, count: usize, units: u64) -> Vec<PaymentId> {
        let payments = self.payments(count).await;
        self.pay_all(&payments, units).await;
        payments
    }

    /// Creates paid payments and queues their settlements.
    pub async fn queued(&self, count: usize, units: u64) -> Vec<PaymentId> {
        let payments = self.paid(count, units).await;
        self.queue_settlements(&payments, units).await;
        payments
    }

    pub async fn balance(&self, of: Address) -> u64 {
        self.base.balance(of).await.try_into().unwrap()
    }

    pub async fn transfers(&self) -> Vec<transfers::Model> {
        let in_order = transfers::Entity::find().order_by_asc(transfers::Column::BlockNumber);
        in_order.order_by_asc(transfers::Column::LogIndex).all(self.database.reader()).await.unwrap()
    }

    pub async fn operations(&self) -> Vec<operations::Model> {
        operations::Entity::find()
            .order_by_asc(operations::Column::CreatedAt)
            .all(self.database.reader())
            .await
            .unwrap()
    }

    pub async fn txs(&self) -> Vec<chain_txs::Model> {
        chain_txs::Entity::find().order_by_asc(chain_txs::Column::Id).all(self.database.reader()).await.unwrap()
    }

    pub async fn attempts(&self) -> Vec<chain_tx_attempts::Model> {
        let in_order = chain_tx_attempts::Entity::find().order_by_asc(chain_tx_attempts::Column::CreatedAt);
        in_order.order_by_asc(chain_tx_attempts::Column::Nonce).all(self.database.reader()).await.unwrap()
    }

    /// Number of attempts of all transactions.
    pub async fn attempts_len(&self) -> usize {
        self.attempts().await.len()
    }

    /// The only operation.
    pub async fn operation(&self) -> operations::Model {
        self.operations().await.remove(0)
    }

    /// Queues the settlement of `units` per payment, 1 % of it for the treasury, as a payment would.
    pub async fn queue_settlements(&self, payments: &[PaymentId], units: u64) {
        let units = i64::try_from(units).unwrap();
        let row = |payment: &PaymentId| operations::Model {
            id: OperationId::settlement_of(*payment).to_string(),
            kind: "settle".to_owned(),
            payment_id: payment.to_string(),
            max_fee_bps: FeeBps::DEFAULT.get().into(),
            psp_amount: units - units / 100,
            treasury_fee: units / 100,
            ..self.operation_row(units)
        };
        self.queue(payments.iter().map(row)).await;
    }

    /// Posts outbound transfers of the signer that the database does not know, and lifts the pause for them; returns
    /// those that were not posted before.
    pub async fn reconcile_sender(&self) -> Vec<UnknownSent> {
        let mut posted = Vec::new();
        self.mine_until("the signer is reconciled", async || {
            let (client, clock) = (self.client(), self.clock());
            let search =
                post_unknown_sent(&self.spec, &client, &self.database, clock, operator(), &NoCheckpoint, |_| {}).await;
            let Ok(search) = search else { return false };
            posted.extend(search.posted);
            search.waits.is_none()
        })
        .await;
        posted
    }

    /// Queues a withdrawal of this amount to each recipient, as withdrawals do after their screening.
    pub async fn queue_withdrawals(&self, recipients: &[Address], units: u64) {
        let row = |to: &Address| {
            let id = OutboundId::Withdrawal(WithdrawalId::generate());
            operations::Model {
                id: id.operation().to_string(),
                kind: "withdrawal".to_owned(),
                payment_id: id.to_string(),
                recipient: Some(to.to_string()),
                ..self.operation_row(units.try_into().unwrap())
            }
        };
        self.queue(recipients.iter().map(row)).await;
    }

    fn operation_row(&self, amount: i64) -> operations::Model {
        operations::Model {
            chain: "base".to_owned(),
            psp_id: self.psp.to_string(),
            token_address: self.coin(Coin::Usdc).to_string(),
            amount,
            revision: 1,
            ..operations::Model::default()
        }
    }

    async fn queue(&self, rows: impl Iterator<Item = operations::Model>) {
        let before = i64::try_from(self.operations().await.len()).unwrap();
        let rows =
            (before + 1..).zip(rows).map(|(at, row)| operations::Model { created_at: at, ..row }.into_active_model());
        operations::Entity::insert_many(rows).exec(self.database.writer()).await.unwrap();
        self.handle.nudge();
    }

    /// Changes these columns of some operations.
    pub async fn update_operations<const N: usize>(
        &self,
        which: impl IntoCondition,
        changes: [(operations::Column, Expr); N],
    ) {
        let update = operations::Entity::update_many().filter(which.into_condition());
        let update = changes.into_iter().fold(update, |update, (column, value)| update.col_expr(column, value));
        update.exec(self.database.writer()).await.unwrap();
    }

    /// Changes the amounts as if the payments were confirmed again with other money while their first transaction was
    /// in flight.
    pub async fn confirmed_anew(&self, psp_amount: i64, treasury_fee: i64) {
        let changes = [
            (operations::Column::Amount, Expr::value(psp_amount + treasury_fee)),
            (operations::Column::PspAmount, Expr::value(psp_amount)),
            (operations::Column::TreasuryFee, Expr::value(treasury_fee)),
        ];
        self.update_operations(Condition::all(), changes).await;
    }

    /// Inserts the outbound transfer of this operation as a withdrawal that was given up.
    pub async fn withdrawal_failed(&self, row: &operations::Model) {
        let row = sendings::Model {
            id: row.payment_id.clone(),
            psp_id: row.psp_id.clone(),
            kind: "withdrawal".to_owned(),
            chain: row.chain.clone(),
            token: "USDC".to_owned(),
            amount: row.amount,
            recipient: row.recipient.clone().unwrap(),
            version: 3,
            status: "failed".to_owned(),
            state: "{}".to_owned(),
            ..sendings::Model::default()
        };
        row.into_active_model().insert(self.database.writer()).await.unwrap();
    }

    /// Waits until the watcher has read the chain's head.
    pub async fn read_all(&self) {
        let head = self.devchain.head();
        let is_read = async || self.watchlist.view(Chain::Base).is_some_and(|view| view.read_hash.0 == head.hash.0);
        self.until("the head is read", is_read).await;
    }

    /// Mines these blocks, and waits until the watcher has read them.
    pub async fn mine_and_read(&self, blocks: u64) {
        self.mine(blocks).await;
        self.read_all().await;
    }

    /// Starts a watcher that reads a transfer to a new payment.
    pub async fn seen(&self) -> PaymentId {
        self.watch().await;
        self.pay_another().await
    }

    /// Creates a payment, pays it, and waits until the watcher has read that.
    pub async fn pay_another(&self) -> PaymentId {
        let payment = self.payment().await;
        self.pay(payment, 5).await;
        self.read_all().await;
        payment
    }

    pub async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let state = async || {
            let view = self.watchlist.view(Chain::Base);
            let view = view.map(|view| (view.read_number, view.head_number, view.degraded_reason));
            let operations = self.operations().await;
            let (head, some, txs) = (self.devchain.head(), &operations[..operations.len().min(5)], self.txs().await);
            format!("chain {head:?}, view {view:?}, operations {some:?}, txs {txs:?}")
        };
        until_some(what, async || condition().await.then_some(()), state).await;
    }

    /// Mines until the condition holds.
    pub async fn mine_until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        self.until(what, async || {
            self.mine(1).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            condition().await
        })
        .await;
    }

    /// Mines until all operations have this status.
    pub async fn mine_until_all(&self, status: &str) {
        let have_it = async || self.operations().await.iter().all(|row| row.status.as_str() == status);
        self.mine_until(&format!("all operations are {status}"), have_it).await;
    }

    /// Mines until some operation has this status.
    pub async fn mine_until_some(&self, status: &str) {
        let has_it = async || self.operations().await.iter().any(|row| row.status.as_str() == status);
        self.mine_until(&format!("an operation is {status}"), has_it).await;
    }

    /// Waits until the settler has checked its open transactions this many times.
    pub async fn settler_passes(&self, passes: u64) {
        let settler = self.settler.lock().clone().expect("a settler runs");
        let messages = || settler.actor_metrics().figures().messages;
        let before = messages();
        self.until("the settler passes", async || messages() >= before + passes).await;
    }

    pub async fn until_signed(&self, operations: u64) {
        self.until("they are signed", async || self.report().await.operations == operations).await;
    }

    /// Stops the settler when it has signed this many operations.
    pub async fn sign_and_stop(&self, operations: u64) {
        self.until_signed(operations).await;
        self.stop_settler().await;
    }

    /// Lets blocks pass until the transaction was replaced twice, with at least an eighth more each time.
    pub async fn until_raised_twice(&self) {
        self.until("its fee was raised twice", async || {
            self.pass_by(1).await;
            self.attempts_len().await >= 3
        })
        .await;
        let mut attempts = self.attempts().await;
        attempts.sort_by_key(|attempt| attempt.created_at);
        let fees: Vec<u128> = attempts.iter().map(|attempt| attempt.max_fee_per_gas.parse().unwrap()).collect();
        assert!(fees.windows(2).all(|pair| pair[1] * 8 >= pair[0] * 9), "{fees:?}");
    }

    /// Creates paid payments, starts a watcher and a settler, and queues the settlements.
    pub async fn settling(&self, count: usize, units: u64) -> Vec<PaymentId> {
        let payments = self.paid(count, units).await;
        self.start().await;
        self.queue_settlements(&payments, units).await;
        payments
    }

    /// Mines until all operations are mined, and asserts that each of these payments was settled once.
    pub async fn settle_all_once(&self, payments: usize, units: u64) {
        self.mine_until_all("mined").await;
        self.assert_settled_once(payments, units).await;
    }

    /// Asserts all balances: each payment was settled once.
    pub async fn assert_settled_once(&self, payments: usize, units: u64) {
        let payments = payments as u64;
        assert_eq!(self.balance(self.spec.treasury).await, payments * (units / 100));
        assert_eq!(self.balance(self.psp_vault()).await, payments * (units - units / 100));
    }
}
