//! The journal with a real database.
#![allow(clippy::unwrap_used)]

mod chain;
mod constraints;
mod customers;
mod groups;
mod ledger;
mod model;
mod new_payments;
mod postgres;
mod preconditions;
mod statements;

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use payferry_domain::Chain;
use payferry_entities::{
    ChainTxStatus, Database, DatabaseFailure, DeliveryStatus, OperationStatus, chain_cursors, chain_headers,
    chain_tx_attempts, chain_txs, delivery_attempts, deposits, events, idempotency_keys, ledger_postings, operations,
    payment_transitions, payments, transfers,
};
use payferry_harness::database::{Lock, TestDatabase};
use payferry_nodes::{Lease, LeaseName};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, EntityTrait, IntoActiveModel, PaginatorTrait, RuntimeErr};
use tokio::task::JoinHandle;

use super::preconditions::Preconditions;
use super::statements::Statements;
use super::write::{Attempt, attempt};
use super::{
    ChainBatch, ChainTxOutcome, ChainTxSubmission, Consequences, DeliveryOutcome, Initiation, Journal, JournalError,
    JournalTask, JournalTransition, JournalWrite, MovedAmounts, NewEvent, OperationOutcome, Receipt, SignedOperation,
};
use crate::DELIVERY_RETRIES_MAX;

/// Faults to inject, in order; one per group.
#[derive(Default)]
pub(super) struct Faults(Mutex<VecDeque<Fault>>);

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The task panics before the group.
    Panic,
    /// The task panics after `BEGIN` and a statement.
    PanicInTransaction,
    /// The database is unavailable.
    Away,
    /// Another writer is in the way.
    Contention,
    /// The commit is made, and its response is lost.
    AnswerLost,
    /// No fault: the attempt is made.
    Nothing,
    /// Another writer changed a precondition of the first write in the group.
    FirstOvertaken,
}

impl Faults {
    pub(super) async fn strike(
        &self,
        database: &Database,
        statements: &Statements,
        writes: &[&JournalWrite],
    ) -> Option<Attempt> {
        let fault = self.0.lock().pop_front()?;
        let error = || DbErr::Conn(RuntimeErr::Internal(format!("{fault:?}")));
        match fault {
            Fault::Panic => panic!("injected fault"),
            Fault::PanicInTransaction => {
                let _transaction = database.begin().await.unwrap();
                panic!("injected fault within a transaction");
            }
            Fault::Away => Some(Attempt::Failed(DatabaseFailure::Away, error())),
            Fault::Contention => Some(Attempt::Failed(DatabaseFailure::Contention, error())),
            Fault::AnswerLost => match attempt(database, statements, writes).await {
                Attempt::Committed(_) => Some(Attempt::Unknown(error())),
                other => Some(other),
            },
            Fault::Nothing => None,
            Fault::FirstOvertaken => Some(Attempt::Lost(Preconditions {
                lost: [(0, JournalError::Conflict)].into(),
                ..Preconditions::default()
            })),
        }
    }
}

/// A separate database with one PSP and one merchant, and a journal whose task is started manually.
pub(crate) struct Env {
    pub(crate) database: Database,
    journal: Journal,
    task: JournalTask,
    test_database: Arc<TestDatabase>,
}

/// Inserts the row of [`lease`].
pub(crate) async fn add_lease(database: &Database) {
    let rows = "INSERT INTO nodes (id, name, version, config_digest, api_url, operator_url, state, joined_at, seen_at, clock_offset_ms, \
         drain_requested) VALUES ('node_test', 'test', '', '', '', '', 'ready', 0, 0, 0, false); \
         INSERT INTO leases (name, kind, owner, epoch, changed_at) VALUES ('chain:base', 'chain', 'node_test', 1, 0)";
    database.writer().execute_unprepared(rows).await.unwrap();
}

/// The lease of a chain.
pub(crate) fn lease() -> Lease {
    Lease::fixture(LeaseName::Chain(Chain::Base))
}

type Submitting = JoinHandle<Result<Receipt, JournalError>>;

impl Env {
    pub(crate) async fn new() -> Self {
        Self::on(TestDatabase::create().await).await
    }

    async fn on(test_database: TestDatabase) -> Self {
        test_database.add_psp("psp_1", "merch_1").await;
        let database = Database::open(test_database.url()).await.unwrap();
        add_lease(&database).await;
        let (journal, task) = Journal::start(database.clone());
        Self { database, journal, task, test_database: Arc::new(test_database) }
    }

    /// Creates it with stored payments of these names. The task is stopped.
    async fn with_payments(names: impl IntoIterator<Item = impl Display>) -> (Self, Vec<payments::Model>) {
        let env = Self::new().await;
        let running = env.run();
        let mut payments = Vec::new();
        for name in names {
            payments.push(env.payment(&name.to_string()).await);
        }
        stop(running).await;
        (env, payments)
    }

    fn is_sqlite(&self) -> bool {
        self.database.backend() == DbBackend::Sqlite
    }

    /// Creates it with the task running under its supervisor.
    async fn running() -> Self {
        let env = Self::new().await;
        env.run();
        env
    }

    fn run(&self) -> JoinHandle<()> {
        tokio::spawn(self.task.clone().supervise(|_| {}))
    }

    fn fault(&self, fault: Fault) {
        self.journal.shared.faults.0.lock().push_back(fault);
    }

    async fn submit(&self, write: JournalWrite) -> Result<Receipt, JournalError> {
        self.journal.submit(write).await
    }

    /// Puts writes into the queues in this order, without waiting for their results.
    async fn queue(&self, writes: impl IntoIterator<Item = JournalWrite>) -> Vec<Submitting> {
        let mut submitting = Vec::new();
        for write in writes {
            let journal = self.journal.clone();
            let mut answer = Box::pin(async move { journal.submit(write).await });
            // The first poll puts the write into its queue.
            let first = futures::poll!(&mut answer);
            submitting.push(tokio::spawn(async move {
                match first {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => answer.await,
                }
            }));
        }
        submitting
    }

    async fn count<E: EntityTrait>(&self) -> u64
    where
        E::Model: Send + Sync,
    {
        E::find().count(self.database.reader()).await.unwrap()
    }

    async fn all<E: EntityTrait>(&self) -> Vec<E::Model> {
        E::find().all(self.database.reader()).await.unwrap()
    }

    /// Starts the task with these writes in its queues, and returns their results.
    async fn write_queued(&self, writes: impl IntoIterator<Item = JournalWrite>) -> Vec<Result<Receipt, JournalError>> {
        let submitting = self.queue(writes).await;
        self.run();
        answers(submitting).await
    }

    /// Creates a payment that is already stored.
    async fn payment(&self, name: &str) -> payments::Model {
        self.submit(initiation(name, None)).await.unwrap();
        payment_row(name)
    }
}

async fn answers(submitting: Vec<Submitting>) -> Vec<Result<Receipt, JournalError>> {
    let mut answers = Vec::new();
    for each in submitting {
        answers.push(each.await.unwrap());
    }
    answers
}

/// Stops the task of the journal.
async fn stop(running: JoinHandle<()>) {
    running.abort();
    let _ = running.await;
}

fn payment_row(name: &str) -> payments::Model {
    payments::Model {
        id: format!("pay_{name}"),
        psp_id: "psp_1".to_owned(),
        purpose: "payin".to_owned(),
        merchant_id: Some("merch_1".to_owned()),
        shard: 7,
        version: 1,
        status: "pending".to_owned(),
        live: true,
        chain: "base".to_owned(),
        token: "USDC".to_owned(),
        amount: 10_000_000,
        wallet: format!("0x{name}"),
        link_token: format!("link-{name}"),
        expires_at: 1_000,
        created_at: 1,
        updated_at: 1,
        state: r#"{"a":1}"#.to_owned(),
        ..payments::Model::default()
    }
}

fn transition_row(payment: &payments::Model) -> payment_transitions::Model {
    payment_transitions::Model {
        payment_id: payment.id.clone(),
        version: payment.version,
        at: payment.updated_at,
        events: "[]".to_owned(),
        command: Some("\"cancel\"".to_owned()),
        decided_us: Some(7),
    }
}

fn key_row(key: &str) -> idempotency_keys::Model {
    idempotency_keys::Model {
        psp_id: "psp_1".to_owned(),
        route: "POST /payments/initiate".to_owned(),
        key: key.to_owned(),
        request_hash: "hash".to_owned(),
        response_status: 201,
        response_body: "sealed".to_owned(),
        created_at: 1_000,
        expires_at: 2_000,
    }
}

fn initiation(name: &str, key: Option<&str>) -> JournalWrite {
    let payment = payment_row(name);
    let transition = transition_row(&payment);
    JournalWrite::Initiation(Box::new(Initiation {
        payment,
        transition,
        idempotency: key.map(key_row),
        audit: None,
        moved: None,
    }))
}

/// Returns the next version of the payment, with `announced` events.
fn transition(before: &payments::Model, announced: i64) -> JournalTransition {
    let mut payment = before.clone();
    payment.version += 1;
    payment.status = "confirmed".to_owned();
    let announcements = (0..announced).map(|n| event(before, before.version * 100 + n)).collect();
    JournalTransition {
        transition: transition_row(&payment),
        payment,
        consequences: Consequences { announcements, ..Consequences::default() },
        refunds: Vec::new(),
        refund_requests: Vec::new(),
        alarms: Vec::new(),
        ended_alarms: Vec::new(),
        applied: Vec::new(),
        is_urgent: false,
        moved: None,
    }
}

/// Returns a posting of ten units received for this version of the payment.
fn posting(payment: &payments::Model) -> ledger_postings::Model {
    ledger_postings::Model {
        subject: payment.id.clone(),
        version: payment.version,
        psp_id: payment.psp_id.clone(),
        kind: "received".to_owned(),
        debit: "external".to_owned(),
        credit: "payment".to_owned(),
        chain: "base".to_owned(),
        token_address: "0xusdc".to_owned(),
        amount: 10,
        reference: "0x1".to_owned(),
        at: 5_000,
        ..ledger_postings::Model::default()
    }
}

fn boxed(transition: JournalTransition) -> JournalWrite {
    JournalWrite::Transition(Box::new(transition))
}

fn event(payment: &payments::Model, sequence: i64) -> NewEvent {
    let event = events::Model {
        id: format!("evt_{}_{sequence}", payment.id),
        psp_id: payment.psp_id.clone(),
        payment_id: payment.id.clone(),
        sequence,
        name: "payment.confirmed".to_owned(),
        payload: format!(r#"{{"sequence":{sequence}}}"#),
        created_at: 5_000,
        ..events::Model::default()
    };
    NewEvent { event, deliveries: vec![(format!("whd_{}_{sequence}", payment.id), None)] }
}

fn operation(id: &str, payment: &payments::Model) -> operations::Model {
    operations::Model {
        id: id.to_owned(),
        chain: "base".to_owned(),
        kind: "settle".to_owned(),
        payment_id: payment.id.clone(),
        psp_id: payment.psp_id.clone(),
        token_address: "0xusdc".to_owned(),
        amount: 10_000_000,
        psp_amount: 9_900_000,
        treasury_fee: 100_000,
        status: OperationStatus::Queued,
        revision: 1,
        created_at: 1,
        updated_at: 1,
        ..operations::Model::default()
    }
}

fn cursor(hash: &str, block_number: i64) -> chain_cursors::Model {
    chain_cursors::Model {
        chain: "base".to_owned(),
        block_number,
        block_hash: hash.to_owned(),
        block_time: block_number * 1_000,
        epoch: 1,
        updated_at: 1,
        ..chain_cursors::Model::default()
    }
}

/// Returns a batch of blocks up to `after`, without transfers.
pub(crate) fn batch(before: Option<&str>, after: &str, block_number: i64) -> ChainBatch {
    ChainBatch {
        chain: Chain::Base,
        cursor_before: before.map(str::to_owned),
        cursor: cursor(after, block_number),
        orphaned_blocks: Vec::new(),
        headers: vec![header(after, block_number)],
        headers_keep_from: 0,
        transfers: Vec::new(),
        deposits: Vec::new(),
        outages: Vec::new(),
    }
}

fn header(hash: &str, number: i64) -> chain_headers::Model {
    chain_headers::Model {
        chain: "base".to_owned(),
        number,
        hash: hash.to_owned(),
        time: number * 1_000,
        ..chain_headers::Model::default()
    }
}

pub(crate) fn transfer(
    tx_hash: &str,
    payment: &payments::Model,
    block_hash: &str,
    block_number: i64,
) -> transfers::Model {
    transfers::Model {
        chain: "base".to_owned(),
        tx_hash: tx_hash.to_owned(),
        log_index: 0,
        payment_id: payment.id.clone(),
        token_address: "0xusdc".to_owned(),
        from_address: "0xpayer".to_owned(),
        to_address: payment.wallet.clone(),
        amount: 10_000_000,
        block_number,
        block_hash: block_hash.to_owned(),
        block_time: block_number * 1_000,
        presence: "present".to_owned(),
        revision: 77,
        applied_revision: 77,
        applied_version: 77,
        created_at: 1,
    }
}

fn attempt_row(delivery_id: &str, number: i64) -> delivery_attempts::Model {
    delivery_attempts::Model {
        delivery_id: delivery_id.to_owned(),
        number,
        at: 6_000,
        url: "https://example.com/hook".to_owned(),
        response_code: Some(500),
        response_body: Some("no".to_owned()),
        duration_ms: 12,
        ..delivery_attempts::Model::default()
    }
}

fn delivery(delivery_id: &str, number: i64) -> JournalWrite {
    JournalWrite::Deliveries(Arc::new([DeliveryOutcome {
        attempt: attempt_row(delivery_id, number),
        status: DeliveryStatus::Failed,
        retries_left: DELIVERY_RETRIES_MAX - number,
        next_attempt_at: Some(11_000),
        is_urgent: false,
    }]))
}

pub(crate) fn chain_tx(nonce: i64) -> chain_txs::Model {
    chain_txs::Model {
        chain: "base".to_owned(),
        sender: "0xsender".to_owned(),
        nonce,
        to_address: "0xcontract".to_owned(),
        input: "0x".to_owned(),
        gas_limit: 1,
        status: ChainTxStatus::Submitted,
        created_at: 1,
        updated_at: 1,
        ..chain_txs::Model::default()
    }
}

/// First attempt of the transaction with this nonce.
pub(crate) fn attempt_of(nonce: i64) -> chain_tx_attempts::Model {
    chain_tx_attempts::Model {
        tx_hash: format!("0xtx{nonce}"),
        chain: "base".to_owned(),
        sender: "0xsender".to_owned(),
        nonce,
        raw: "0x02".to_owned(),
        max_fee_per_gas: "1".to_owned(),
        max_priority_fee_per_gas: "1".to_owned(),
        created_at: 1,
    }
}

pub(crate) fn submission(nonce: i64, operations: &[(&str, i64)]) -> JournalWrite {
    JournalWrite::Submission(
        lease(),
        Box::new(ChainTxSubmission {
            chain_tx: chain_tx(nonce),
            attempt: attempt_of(nonce),
            operations: operations
                .iter()
                .map(|(id, revision)| SignedOperation { id: (*id).to_owned(), revision: *revision })
                .collect(),
        }),
    )
}

/// Outcome of a transaction and of its operations. The mined ones report `carried`.
pub(crate) fn outcome(
    chain_tx_id: i64,
    status: &str,
    operations: &[(&str, &str)],
    carried: Option<MovedAmounts>,
) -> JournalWrite {
    let mined = status == "mined" || status == "final";
    let operation = |(id, status): &(&str, &str)| {
        let mined = *status == "mined";
        OperationOutcome {
            id: (*id).to_owned(),
            status: status.parse().unwrap(),
            tx_hash: mined.then(|| "0xmined".to_owned()),
            block_number: mined.then_some(9),
            carried: carried.filter(|_| mined),
            failure: None,
            not_before: 0,
        }
    };
    JournalWrite::ChainTxOutcome(
        lease(),
        Box::new(ChainTxOutcome {
            chain_tx_id,
            status: status.parse().unwrap(),
            tx_hash: mined.then(|| "0xmined".to_owned()),
            block_number: mined.then_some(9),
            block_hash: mined.then(|| "0xblock".to_owned()),
            at: 50,
            operations: operations.iter().map(operation).collect(),
        }),
    )
}
