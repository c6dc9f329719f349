//! The journal with a real database.
#![allow(clippy::unwrap_used)]

mod chain;
mod customers;
mod groups;
mod ledger;
mod model;
mod new_payments;
mod postgres;
mod preconditions;
mod statements;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use payferry_domain::Chain;
use payferry_entities::{
    Database, Failure, chain_cursors, chain_headers, chain_tx_attempts, chain_txs, delivery_attempts, idempotency_keys,
    ledger_postings, merchants, operations, payment_transitions, payments, psps, transfers,
};
use payferry_harness::database::{Lock, TestDatabase};
use payferry_migration::{Migrator, MigratorTrait};
use sea_orm::{
    ActiveModelTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, IntoActiveModel, PaginatorTrait, RuntimeErr,
};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use super::statements::Statements;
use super::write::{Attempt, FailedPreconditions, attempt};
use super::{
    ChainBatch, DeliveryOutcome, Initiation, Journal, JournalError, JournalTask, JournalWrite, NewEvent, Receipt,
    SignedOperation, Submission, Transition,
};

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
            Fault::Away => Some(Attempt::Failed(Failure::Away, error())),
            Fault::Contention => Some(Attempt::Failed(Failure::Contention, error())),
            Fault::AnswerLost => match attempt(database, statements, writes).await {
                Attempt::Committed(_) => Some(Attempt::Unknown(error())),
                other => Some(other),
            },
            Fault::Nothing => None,
            Fault::FirstOvertaken => Some(Attempt::Lost(FailedPreconditions {
                lost: [(0, JournalError::Conflict)].into(),
                outdone: HashSet::new(),
            })),
        }
    }
}

/// A separate database with one PSP and one merchant, and a journal whose task is started manually.
struct Env {
    database: Database,
    journal: Journal,
    task: JournalTask,
    test_database: Arc<TestDatabase>,
}

type Submitting = JoinHandle<Result<Receipt, JournalError>>;

impl Env {
    async fn new() -> Self {
        Self::on(TestDatabase::create().await).await
    }

    async fn on(test_database: TestDatabase) -> Self {
        match test_database.file() {
            Some(file) => std::fs::write(file, template().await).unwrap(),
            None => prepare(test_database.url()).await,
        }
        let database = Database::open(test_database.url()).await.unwrap();
        let (journal, task) = Journal::start(database.clone());
        Self { database, journal, task, test_database: Arc::new(test_database) }
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

    /// Creates a payment that is already stored.
    async fn payment(&self, name: &str) -> payments::Model {
        let write = initiation(name, None);
        let JournalWrite::Initiation(initiation) = &write else { unreachable!() };
        let payment = initiation.payment.clone();
        self.submit(write).await.unwrap();
        payment
    }
}

async fn answers(submitting: Vec<Submitting>) -> Vec<Result<Receipt, JournalError>> {
    let mut answers = Vec::new();
    for each in submitting {
        answers.push(each.await.unwrap());
    }
    answers
}

/// Returns an SQLite file with schema, PSP, and merchant, which is created once and then copied.
async fn template() -> &'static [u8] {
    static TEMPLATE: OnceCell<Vec<u8>> = OnceCell::const_new();
    TEMPLATE
        .get_or_init(|| async {
            let database = TestDatabase::sqlite();
            prepare(database.url()).await;
            std::fs::read(database.file().unwrap()).unwrap()
        })
        .await
}

async fn prepare(url: &str) {
    let database = Database::open(url).await.unwrap();
    Migrator::up(database.long_timeout(), None).await.unwrap();
    psp().into_active_model().insert(database.writer()).await.unwrap();
    merchant().into_active_model().insert(database.writer()).await.unwrap();
    database.close().await.unwrap();
}

fn psp() -> psps::Model {
    psps::Model {
        id: "psp_1".to_owned(),
        name: "PSP".to_owned(),
        settings: "{}".to_owned(),
        created_at: 0,
        updated_at: 0,
    }
}

fn merchant() -> merchants::Model {
    merchants::Model {
        id: "merch_1".to_owned(),
        psp_id: "psp_1".to_owned(),
        external_id: "m".to_owned(),
        name: "Merchant".to_owned(),
        email: "m@example.com".to_owned(),
        business_id: "b".to_owned(),
        created_at: 0,
        updated_at: 0,
    }
}

fn payment_row(name: &str) -> payments::Model {
    payments::Model {
        id: format!("pay_{name}"),
        psp_id: "psp_1".to_owned(),
        purpose: "payin".to_owned(),
        merchant_id: Some("merch_1".to_owned()),
        customer_id: None,
        reference: None,
        shard: 7,
        version: 1,
        status: "pending".to_owned(),
        live: true,
        attention: None,
        chain: "base".to_owned(),
        token: "USDC".to_owned(),
        amount: 10_000_000,
        amount_received: 0,
        wallet: format!("0x{name}"),
        link_token: format!("link-{name}"),
        expires_at: 1_000,
        created_at: 1,
        updated_at: 1,
        state: r#"{"a":1}"#.to_owned(),
    }
}

fn transition_row(payment: &payments::Model) -> payment_transitions::Model {
    payment_transitions::Model {
        payment_id: payment.id.clone(),
        version: payment.version,
        at: payment.updated_at,
        events: "[]".to_owned(),
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
    JournalWrite::Initiation(Box::new(Initiation { payment, transition, idempotency: key.map(key_row), moved: None }))
}

/// Returns the next version of the payment, with `announced` events.
fn transition(before: &payments::Model, announced: i64) -> Transition {
    let mut payment = before.clone();
    payment.version += 1;
    payment.status = "confirmed".to_owned();
    let announcements = (0..announced).map(|n| event(before, before.version * 100 + n)).collect();
    Transition {
        transition: transition_row(&payment),
        payment,
        announcements,
        operations: Vec::new(),
        postings: Vec::new(),
        reserve: None,
        applied: Vec::new(),
        idempotency: None,
        audit: None,
        moved: None,
    }
}

/// Returns a posting of ten units received for this version of the payment.
fn posting(payment: &payments::Model) -> ledger_postings::Model {
    ledger_postings::Model {
        position: 0,
        subject: payment.id.clone(),
        version: payment.version,
        line: 0,
        psp_id: payment.psp_id.clone(),
        kind: "received".to_owned(),
        debit: "external".to_owned(),
        credit: "payment".to_owned(),
        chain: "base".to_owned(),
        token_address: "0xusdc".to_owned(),
        amount: 10,
        reference: "0x1".to_owned(),
        at: 5_000,
    }
}

fn boxed(transition: Transition) -> JournalWrite {
    JournalWrite::Transition(Box::new(transition))
}

fn event(payment: &payments::Model, sequence: i64) -> NewEvent {
    NewEvent {
        id: format!("evt_{}_{sequence}", payment.id),
        psp_id: payment.psp_id.clone(),
        payment_id: payment.id.clone(),
        sequence,
        name: "payment.confirmed".to_owned(),
        payload: format!(r#"{{"sequence":{sequence}}}"#),
        created_at: 5_000,
        delivery_id: Some(format!("whd_{}_{sequence}", payment.id)),
    }
}

fn operation(id: &str, payment: &payments::Model) -> operations::Model {
    operations::Model {
        id: id.to_owned(),
        chain: "base".to_owned(),
        number: -1,
        kind: "settle".to_owned(),
        payment_id: payment.id.clone(),
        psp_id: payment.psp_id.clone(),
        token_address: "0xusdc".to_owned(),
        amount: 10_000_000,
        psp_amount: 9_900_000,
        treasury_fee: 100_000,
        recipient: None,
        status: "queued".to_owned(),
        chain_tx_id: None,
        tx_hash: None,
        block_number: None,
        failure: None,
        revision: 0,
        attempts: 0,
        not_before: 0,
        created_at: 1,
        updated_at: 1,
    }
}

fn cursor(hash: &str, block_number: i64) -> chain_cursors::Model {
    chain_cursors::Model {
        chain: "base".to_owned(),
        block_number,
        block_hash: hash.to_owned(),
        block_time: block_number * 1_000,
        second_look_from: 0,
        epoch: 1,
        updated_at: 1,
    }
}

/// Returns a batch of blocks up to `after`, without transfers.
fn batch(before: Option<&str>, after: &str, block_number: i64) -> ChainBatch {
    ChainBatch {
        chain: Chain::Base,
        cursor_before: before.map(str::to_owned),
        cursor: cursor(after, block_number),
        orphaned_blocks: Vec::new(),
        headers: vec![header(after, block_number)],
        headers_keep_from: 0,
        transfers: Vec::new(),
    }
}

fn header(hash: &str, number: i64) -> chain_headers::Model {
    chain_headers::Model {
        chain: "base".to_owned(),
        number,
        hash: hash.to_owned(),
        parent_hash: String::new(),
        time: number * 1_000,
    }
}

fn transfer(tx_hash: &str, payment: &payments::Model, block_hash: &str, block_number: i64) -> transfers::Model {
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
        error: None,
    }
}

fn delivery(delivery_id: &str, number: i64) -> JournalWrite {
    JournalWrite::Delivery(Box::new(DeliveryOutcome {
        attempt: attempt_row(delivery_id, number),
        status: "failed",
        retries_left: 3 - number,
        next_attempt_at: Some(11_000),
    }))
}

fn submission(nonce: i64, operations: &[(&str, i64)]) -> JournalWrite {
    JournalWrite::Submission(Box::new(Submission {
        chain_tx: chain_txs::Model {
            id: 0,
            chain: "base".to_owned(),
            sender: "0xsender".to_owned(),
            nonce,
            to_address: "0xcontract".to_owned(),
            input: "0x".to_owned(),
            gas_limit: 1,
            status: "submitted".to_owned(),
            tx_hash: None,
            block_number: None,
            block_hash: None,
            created_at: 1,
            updated_at: 1,
        },
        attempt: chain_tx_attempts::Model {
            tx_hash: format!("0xtx{nonce}"),
            chain: "base".to_owned(),
            sender: "0xsender".to_owned(),
            nonce,
            raw: "0x02".to_owned(),
            max_fee_per_gas: "1".to_owned(),
            max_priority_fee_per_gas: "1".to_owned(),
            created_at: 1,
        },
        operations: operations
            .iter()
            .map(|(id, revision)| SignedOperation { id: (*id).to_owned(), revision: *revision })
            .collect(),
    }))
}
