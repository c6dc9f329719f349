//! Test environment: a chain with the contracts, a database with payments, a journal, and functions that start watchers
//! and settlers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::consensus::TxEip1559;
use alloy::primitives::{B256, Bytes, TxKind, U256};
use alloy::sol_types::SolCall;
use parking_lot::Mutex;
use payferry_actors::chain::{
    Checkpoint, Settler, SettlerArgs, SettlerHandle, SettlerMessage, SettlerReport, Watcher, WatcherArgs,
    WatcherMessage, WatcherReport, Watchlist, wake_on_change,
};
use payferry_actors::inbox::PaymentInbox;
use payferry_contracts::{
    CREATE2_DEPLOYER, TestUSDC, Token as TokenContract, create2_deploy_input, payferry_address, payferry_init_code,
    test_usdc_init_code,
};
use payferry_devchain::{ChainConfig, Devchain, GenesisAccount, Wallet};
use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::{Command, ObservedTransfer};
use payferry_domain::{
    Address, Chain, Finality, FinalityPolicy, MerchantId, OperationId, PaymentId, PspId, Timestamp, Token, WithdrawalId,
};
use payferry_entities::{
    Database, chain_tx_attempts, chain_txs, merchants, operations, payments, psps, sendings, transfers,
};
use payferry_evm::wallet::{OperatorSigner, Vaults, alloy_address, domain_address};
use payferry_evm::{ChainClient, ChainSpec};
use payferry_harness::PATIENCE;
use payferry_harness::database::TestDatabase;
use payferry_journal::Journal;
use payferry_journal::chain::Role;
use payferry_migration::{Migrator, MigratorTrait};
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorRegistry, Mailbox};
use sea_orm::sea_query::Expr;
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel, QueryOrder};
use serde_json::json;

pub const CHAIN_ID: u64 = 8453;
pub const GWEI: u128 = 1_000_000_000;
/// A base fee above the ceiling of every transaction of ours (Base's ceiling, unless a test sets another).
const TOO_DEAR_WEI: u64 = 30_000_000_000;
/// Initial base fee of the chains.
const USUAL_WEI: u64 = 10_000_000;

pub struct Env {
    pub chain: Devchain,
    pub owner: Wallet,
    pub operator: Wallet,
    pub spec: ChainSpec,
    pub token: Address,
    pub lookalike: Address,
    pub treasury: Address,
    pub psp: PspId,
    pub merchant: MerchantId,
    pub vaults: Vaults,
    pub database: Database,
    pub journal: Journal,
    pub watchlist: Watchlist,
    pub inbox: Arc<Inbox>,
    pub clock: Clock,
    pub handle: SettlerHandle,
    _test_database: TestDatabase,
}

/// Records every notification.
#[derive(Default)]
pub struct Inbox {
    pub notified: Mutex<Vec<(PaymentId, Command)>>,
    pub sendings: Mutex<Vec<(OutboundId, payferry_domain::outbound::Command)>>,
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

    fn notify_outbound(&self, sending_id: OutboundId, command: payferry_domain::outbound::Command) {
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
        let notified = self.notified.lock();
        let facts = notified.iter().filter(|(id, _)| *id == payment);
        let facts = facts.filter_map(|(_, command)| match command {
            Command::ObserveTransfer(fact) => Some(*fact),
            _ => None,
        });
        let mut facts: Vec<ObservedTransfer> = facts.collect();
        // A sweep may report a transfer twice.
        facts.dedup();
        facts
    }

    pub fn count(&self, of: impl Fn(&Command) -> bool) -> usize {
        self.notified.lock().iter().filter(|(_, command)| of(command)).count()
    }

    pub fn finalised(&self, payment: PaymentId) -> usize {
        let notified = self.notified.lock();
        notified
            .iter()
            .filter(|(id, command)| *id == payment && matches!(command, Command::FinaliseTransfer { .. }))
            .count()
    }
}

pub fn chain_config() -> ChainConfig {
    let ether = U256::from(10).pow(U256::from(18));
    let account = |seed: &str| GenesisAccount {
        address: Wallet::from_seed(seed).address(),
        balance: ether * U256::from(1_000),
        ..GenesisAccount::default()
    };
    ChainConfig {
        chain_id: CHAIN_ID,
        genesis: vec![account("owner"), account("operator"), account("stranger")],
        ..ChainConfig::default()
    }
}

impl Env {
    pub async fn new() -> Self {
        Self::on(chain_config()).await
    }

    /// Creates the environment on a chain with this configuration.
    pub async fn on(config: ChainConfig) -> Self {
        let chain = Devchain::open(config).await.unwrap();
        let (owner, operator) = (Wallet::from_seed("owner"), Wallet::from_seed("operator"));
        let treasury = Wallet::from_seed("treasury").address();
        let factory_code = payferry_init_code(owner.address(), operator.address(), operator.address(), treasury);
        let deploy = |code: &Bytes, to: TxKind| {
            owner.sign(TxEip1559 {
                chain_id: CHAIN_ID,
                nonce: owner.next_nonce(),
                gas_limit: 4_000_000,
                max_fee_per_gas: GWEI,
                max_priority_fee_per_gas: 1_000_000,
                to,
                input: code.clone(),
                ..TxEip1559::default()
            })
        };
        let factory_input = create2_deploy_input(B256::ZERO, &factory_code);
        for (raw, _) in [
            deploy(&factory_input, TxKind::Call(CREATE2_DEPLOYER)),
            deploy(&test_usdc_init_code(owner.address()), TxKind::Create),
            deploy(&test_usdc_init_code(owner.address()), TxKind::Create),
        ] {
            chain.send_raw(raw).await.unwrap();
        }
        chain.mine(1).await.unwrap();
        let factory = domain_address(payferry_address(&factory_code, B256::ZERO));
        let token = domain_address(owner.address().create(1));
        let lookalike = domain_address(owner.address().create(2));
        let mut spec =
            ChainSpec::new(Chain::Base, factory, domain_address(treasury), vec![(Token::Usdc, token)]).sandbox();
        spec.lookalikes = vec![lookalike];
        spec.poll_interval = Duration::from_millis(25);
        spec.batch_window = Duration::from_millis(30);

        let test_database = TestDatabase::create().await;
        let database = Database::open(test_database.url()).await.unwrap();
        Migrator::up(database.long_timeout(), None).await.unwrap();
        let (psp, merchant) = (PspId::generate(), MerchantId::generate());
        let row = psps::Model {
            id: psp.to_string(),
            name: "PSP".to_owned(),
            settings: "{}".to_owned(),
            created_at: 0,
            updated_at: 0,
        };
        row.into_active_model().insert(database.writer()).await.unwrap();
        let row = merchants::Model {
            id: merchant.to_string(),
            psp_id: psp.to_string(),
            external_id: "m".to_owned(),
            name: "Merchant".to_owned(),
            email: "m@example.com".to_owned(),
            business_id: "b".to_owned(),
            created_at: 0,
            updated_at: 0,
        };
        row.into_active_model().insert(database.writer()).await.unwrap();
        let (journal, task) = Journal::start(database.clone());
        tokio::spawn(task.supervise(|reason| panic!("the journal panicked: {reason}")));
        Self {
            chain,
            owner,
            operator,
            spec,
            token,
            lookalike,
            treasury: domain_address(treasury),
            psp,
            merchant,
            vaults: Vaults::new(factory),
            database,
            journal,
            watchlist: Watchlist::new(),
            inbox: Arc::default(),
            clock: Clock::default(),
            handle: SettlerHandle::new(),
            _test_database: test_database,
        }
    }

    pub fn client(&self) -> ChainClient {
        ChainClient::new(self.chain.transport()).with_timeout(Duration::from_secs(2))
    }

    pub async fn watch(&self) -> Mailbox<WatcherMessage> {
        self.watch_with(self.client()).await
    }

    pub async fn watch_with(&self, client: ChainClient) -> Mailbox<WatcherMessage> {
        let args = WatcherArgs {
            spec: Arc::new(self.spec.clone()),
            client,
            database: self.database.clone(),
            journal: self.journal.clone(),
            watchlist: self.watchlist.clone(),
            inbox: self.inbox.clone(),
            clock: self.clock.clone(),
            wake_ups: Some(wake_on_change(self.chain.heads())),
        };
        Watcher::start(&ActorRegistry::default(), args, None).await.unwrap()
    }

    pub fn settler_args(&self) -> SettlerArgs {
        let signer = OperatorSigner::from_bytes(&self.operator.signer().to_bytes().0).unwrap();
        SettlerArgs {
            spec: Arc::new(self.spec.clone()),
            client: self.client(),
            database: self.database.clone(),
            journal: self.journal.clone(),
            watchlist: self.watchlist.clone(),
            inbox: self.inbox.clone(),
            clock: self.clock.clone(),
            settle_signer: signer.clone(),
            send_signer: signer,
            handle: self.handle.clone(),
            checkpoint: SettlerArgs::no_checkpoint(),
        }
    }

    pub async fn settle(&self) -> Mailbox<SettlerMessage> {
        Settler::start(&ActorRegistry::default(), self.settler_args(), None).await.unwrap()
    }

    pub async fn settle_until(&self, checkpoint: Arc<dyn Checkpoint>) -> Mailbox<SettlerMessage> {
        let args = SettlerArgs { checkpoint, ..self.settler_args() };
        Settler::start(&ActorRegistry::default(), args, None).await.unwrap()
    }

    /// Inserts only the row of a payment; the watcher is not notified.
    pub async fn payment(&self) -> PaymentId {
        let id = PaymentId::generate();
        self.payment_row(id).into_active_model().insert(self.database.writer()).await.unwrap();
        id
    }

    pub async fn payments(&self, count: usize) -> Vec<PaymentId> {
        let ids: Vec<PaymentId> = (0..count).map(|_| PaymentId::generate()).collect();
        let rows = ids.iter().map(|id| self.payment_row(*id).into_active_model());
        payments::Entity::insert_many(rows).exec(self.database.writer()).await.unwrap();
        ids
    }

    fn payment_row(&self, id: PaymentId) -> payments::Model {
        payments::Model {
            id: id.to_string(),
            psp_id: self.psp.to_string(),
            purpose: "payin".to_owned(),
            merchant_id: Some(self.merchant.to_string()),
            customer_id: None,
            reference: None,
            shard: i64::from(id.shard()),
            version: 1,
            status: "pending".to_owned(),
            live: true,
            attention: None,
            chain: "base".to_owned(),
            token: "USDC".to_owned(),
            amount: 10_000_000,
            amount_received: 0,
            wallet: self.vaults.of_payment(id).to_string(),
            link_token: id.to_string(),
            expires_at: i64::MAX,
            created_at: 0,
            updated_at: 0,
            state: json!({"terms": {"finality": FinalityPolicy::flat(Finality::Blocks(2))}}).to_string(),
        }
    }

    /// Calls a contract as the owner; not mined yet. Its tip is higher than others, so it comes first in its block.
    pub async fn call_as_owner(&self, to: Address, input: Vec<u8>) -> B256 {
        let nonce = self.owner.next_nonce();
        let (raw, hash) =
            self.owner.sign_call(CHAIN_ID, nonce, alloy_address(to), input.into(), 15_000_000, GWEI, 2_000_000);
        self.chain.send_raw(raw).await.unwrap();
        hash
    }

    /// Mines a block with this base fee.
    pub async fn mine_at(&self, base_fee_wei: u64) {
        self.chain.set_next_base_fee(base_fee_wei).await.unwrap();
        self.chain.mine(1).await.unwrap();
    }

    /// Mines blocks whose base fee excludes our transactions; the next block has the usual fee.
    pub async fn pass_by(&self, blocks: u32) {
        for _ in 0..blocks {
            self.mine_at(TOO_DEAR_WEI).await;
        }
        self.chain.set_next_base_fee(USUAL_WEI).await.unwrap();
    }

    /// Sends money to a wallet, into the mempool.
    pub async fn send_money(&self, to: Address, units: u128) -> B256 {
        let to = alloy_address(to);
        self.call_as_owner(self.token, TokenContract::mintCall { to, value: U256::from(units) }.abi_encode()).await
    }

    /// Sends money to a payment and mines it.
    pub async fn pay(&self, payment: PaymentId, units: u128) -> B256 {
        let hash = self.send_money(self.vaults.of_payment(payment), units).await;
        self.chain.mine(1).await.unwrap();
        hash
    }

    /// Sends `units` to each of many payments, mined in one block.
    pub async fn pay_all(&self, payments: &[PaymentId], units: u64) {
        for some in payments.chunks(250) {
            let to = some.iter().map(|id| alloy_address(self.vaults.of_payment(*id))).collect();
            let values = vec![U256::from(units); some.len()];
            self.call_as_owner(self.token, TokenContract::mintBatchCall { to, values }.abi_encode()).await;
        }
        self.chain.mine(1).await.unwrap();
    }

    pub async fn blacklist(&self, account: Address) {
        let input = TestUSDC::blacklistCall { account: alloy_address(account) }.abi_encode();
        self.call_as_owner(self.token, input).await;
        self.chain.mine(1).await.unwrap();
    }

    pub async fn balance(&self, of: Address) -> u64 {
        let input = Bytes::from(TokenContract::balanceOfCall { account: alloy_address(of) }.abi_encode());
        let answer = self.chain.call("eth_call", json!([{"to": self.token, "input": input}, "latest"])).await.unwrap();
        let answer: Bytes = serde_json::from_value(answer).unwrap();
        U256::from_be_slice(&answer).to()
    }

    pub async fn transfers(&self) -> Vec<transfers::Model> {
        let in_order = transfers::Entity::find().order_by_asc(transfers::Column::BlockNumber);
        in_order.order_by_asc(transfers::Column::LogIndex).all(self.database.reader()).await.unwrap()
    }

    pub async fn operations(&self) -> Vec<operations::Model> {
        operations::Entity::find().order_by_asc(operations::Column::Number).all(self.database.reader()).await.unwrap()
    }

    pub async fn txs(&self) -> Vec<chain_txs::Model> {
        chain_txs::Entity::find().order_by_asc(chain_txs::Column::Id).all(self.database.reader()).await.unwrap()
    }

    pub async fn attempts(&self) -> Vec<chain_tx_attempts::Model> {
        let in_order = chain_tx_attempts::Entity::find().order_by_asc(chain_tx_attempts::Column::CreatedAt);
        in_order.order_by_asc(chain_tx_attempts::Column::Nonce).all(self.database.reader()).await.unwrap()
    }

    /// Queues the settlement of `units` per payment, 1 % of it for the treasury, as a payment would.
    pub async fn queue_settlements(&self, payments: &[PaymentId], units: i64) {
        let before = i64::try_from(self.operations().await.len()).unwrap();
        let rows = (before + 1..).zip(payments).map(|(number, payment)| {
            let row = operations::Model {
                id: OperationId::settlement_of(*payment).to_string(),
                chain: "base".to_owned(),
                number,
                kind: "settle".to_owned(),
                payment_id: payment.to_string(),
                psp_id: self.psp.to_string(),
                token_address: self.token.to_string(),
                amount: units,
                psp_amount: units - units / 100,
                treasury_fee: units / 100,
                recipient: None,
                status: "queued".to_owned(),
                chain_tx_id: None,
                tx_hash: None,
                block_number: None,
                failure: None,
                revision: 1,
                attempts: 0,
                not_before: 0,
                created_at: 0,
                updated_at: 0,
            };
            row.into_active_model()
        });
        operations::Entity::insert_many(rows).exec(self.database.writer()).await.unwrap();
        self.handle.nudge();
    }

    /// Changes the amounts as if the payments were confirmed again with other money while their first transaction was
    /// in flight.
    pub async fn confirmed_anew(&self, psp_amount: i64, treasury_fee: i64) {
        operations::Entity::update_many()
            .col_expr(operations::Column::Amount, Expr::value(psp_amount + treasury_fee))
            .col_expr(operations::Column::PspAmount, Expr::value(psp_amount))
            .col_expr(operations::Column::TreasuryFee, Expr::value(treasury_fee))
            .exec(self.database.writer())
            .await
            .unwrap();
    }

    /// Inserts the outbound transfer of this operation as a withdrawal that was given up.
    pub async fn withdrawal_failed(&self, row: &operations::Model) {
        let row = sendings::Model {
            id: row.payment_id.clone(),
            psp_id: row.psp_id.clone(),
            kind: "withdrawal".to_owned(),
            customer_id: None,
            reference: None,
            chain: row.chain.clone(),
            token: "USDC".to_owned(),
            amount: row.amount,
            recipient: row.recipient.clone().unwrap(),
            version: 3,
            status: "failed".to_owned(),
            live: false,
            in_review: false,
            created_at: 0,
            updated_at: 0,
            state: "{}".to_owned(),
        };
        row.into_active_model().insert(self.database.writer()).await.unwrap();
    }

    /// Queues a withdrawal of this amount to each recipient, as withdrawals do after their screening.
    pub async fn queue_withdrawals(&self, recipients: &[Address], units: u64) {
        let before = i64::try_from(self.operations().await.len()).unwrap();
        let rows = (before + 1..).zip(recipients).map(|(number, to)| {
            let id = OutboundId::Withdrawal(WithdrawalId::generate());
            let row = operations::Model {
                id: id.operation().to_string(),
                chain: "base".to_owned(),
                number,
                kind: "withdrawal".to_owned(),
                payment_id: id.to_string(),
                psp_id: self.psp.to_string(),
                token_address: self.token.to_string(),
                amount: units.try_into().unwrap(),
                psp_amount: 0,
                treasury_fee: 0,
                recipient: Some(to.to_string()),
                status: "queued".to_owned(),
                chain_tx_id: None,
                tx_hash: None,
                block_number: None,
                failure: None,
                revision: 1,
                attempts: 0,
                not_before: 0,
                created_at: 0,
                updated_at: 0,
            };
            row.into_active_model()
        });
        operations::Entity::insert_many(rows).exec(self.database.writer()).await.unwrap();
        self.handle.nudge();
    }

    /// Waits until the watcher has read the chain's head.
    pub async fn read_all(&self) {
        let head = self.chain.head();
        self.until("the head is read", async || {
            self.watchlist.view(Chain::Base).is_some_and(|view| view.read_hash.0 == head.hash.0)
        })
        .await;
    }

    pub async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !condition().await {
            if started.elapsed() > PATIENCE {
                let view = self.watchlist.view(Chain::Base);
                let view = view.map(|view| (view.read_number, view.head_number, view.trouble));
                panic!(
                    "waited too long until {what}; chain {:?}, view {view:?}, operations {:?}, txs {:?}",
                    self.chain.head(),
                    self.operations().await.iter().take(5).collect::<Vec<_>>(),
                    self.txs().await
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Mines until all operations have this status.
    pub async fn mine_until_all(&self, status: &str) {
        self.until(&format!("all operations are {status}"), async || {
            self.chain.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.operations().await.iter().all(|row| row.status == status)
        })
        .await;
    }

    /// Asserts all balances: each payment was settled once.
    pub async fn assert_settled_once(&self, payments: usize, units: u64) {
        let payments = payments as u64;
        assert_eq!(self.balance(self.treasury).await, payments * (units / 100));
        assert_eq!(self.balance(self.vaults.of_psp(self.psp)).await, payments * (units - units / 100));
    }
}

pub async fn report(watcher: &Mailbox<WatcherMessage>) -> WatcherReport {
    ractor::call!(watcher, WatcherMessage::Observe).unwrap()
}

pub async fn settler_report(settler: &Mailbox<SettlerMessage>) -> SettlerReport {
    ractor::call!(settler, SettlerMessage::Observe).unwrap()
}

pub async fn stop<M>(actor: Mailbox<M>) {
    actor.stop_and_wait(None, None).await.unwrap();
}

pub const SETTLE: Role = Role::Settle;
