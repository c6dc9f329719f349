//! Writes payments through the journal and reads them back, on a real database.
#![allow(clippy::unwrap_used)]

#[path = "../../../fixtures/payments.rs"]
mod env;
mod live;
mod refunds;

use payferry_domain::payment::fixtures::{USDC, verdict};
use payferry_domain::payment::{Command, Decision, OutageId, Status, TransferFinality, transition};
use payferry_domain::{Amount, Finality, Hash32, OperationId};
use payferry_entities::{deliveries, events, operations};
use payferry_harness::database::query_plan;
use sea_orm::{ActiveModelTrait, ActiveValue, DbBackend, IntoActiveModel, Statement};
use serde_json::json;

use super::*;
use crate::writer::tests::{add_lease, batch, lease, outcome, submission, transfer};
use crate::writer::{ChainBatch, JournalWrite};
use env::{Env, REAL, START, observed};

impl Env {
    async fn confirmed(&self) -> Payment {
        let payment = self.initiated().await;
        let payment = self.notified(&payment, &Command::ObserveTransfer(observed(1))).await;
        let (key, revision) = (observed(1).key, 1);
        let reached = TransferFinality { key, revision, reached: Finality::Blocks(2) };
        let finalised = Command::FinaliseTransfers(vec![reached]);
        let payment = self.notified(&payment, &finalised).await;
        let screened = Command::ScreenTransfer { key, verdict: verdict(Decision::Allow) };
        let payment = self.notified(&payment, &screened).await;
        assert_eq!(payment.status, Status::Confirmed);
        payment
    }

    async fn operation(&self, payment: &Payment) -> operations::Model {
        let id = OperationId::settlement_of(payment.id()).to_string();
        operations::Entity::find_by_id(id).one(self.database.reader()).await.unwrap().unwrap()
    }
}

fn transfer_row(payment: &Payment) -> transfers::Model {
    let fact = observed(1);
    transfers::Model {
        log_index: 3,
        token_address: USDC.to_string(),
        from_address: fact.from.to_string(),
        block_time: fact.block.time.as_millis(),
        ..transfer(&fact.key.tx_hash.to_string(), &row_of(payment).unwrap(), &fact.key.block_hash.to_string(), 100)
    }
}

fn found(row: transfers::Model) -> JournalWrite {
    let batch = batch(None, &row.block_hash, 100);
    JournalWrite::ChainBatch(lease(), Box::new(ChainBatch { transfers: vec![row], ..batch }))
}

#[tokio::test]
async fn payment_reads_back_as_it_was_written() {
    let env = Env::new().await;
    add_lease(&env.database).await;
    let payment = env.initiated().await;
    assert_eq!(load(&env.database, payment.id()).await.unwrap().unwrap(), payment);
    assert!(load(&env.database, PaymentId::generate()).await.unwrap().is_none());
    let confirmed = env.confirmed().await;
    assert_eq!(load(&env.database, confirmed.id()).await.unwrap().unwrap(), confirmed);

    let row = row_of(&confirmed).unwrap();
    assert_eq!((row.version, row.status.as_str(), row.live), (i64::from(confirmed.version), "confirmed", true));
    assert_eq!((row.amount, row.amount_received), (10_000_000, 10_000_000));
    assert_eq!(row.attention, None);
    assert_eq!(row.shard, i64::from(confirmed.id().shard()));
    assert_eq!(row.wallet, confirmed.terms.wallet.to_string());

    let foreign = payments::Model { version: 99, ..row.clone() };
    assert!(matches!(payment_of(&foreign), Err(StoreError::Unreadable { .. })));
    assert!(payment_of(&payments::Model { state: "{}".to_owned(), ..row }).is_err());
}

#[tokio::test]
async fn confirmation_writes_feed_deliveries_and_operation() {
    let env = Env::new().await;
    add_lease(&env.database).await;
    let payment = env.confirmed().await;
    let mut feed = events::Entity::find().all(env.database.reader()).await.unwrap();
    feed.sort_by_key(|event| event.position);
    let names: Vec<_> = feed.iter().map(|event| (event.sequence, event.name.as_str())).collect();
    assert_eq!(names, [(1, "payment.confirmed"), (2, "payin.confirmed")]);
    assert!(feed.iter().all(|event| event.created_at == REAL.as_millis()));

    let body: serde_json::Value = serde_json::from_str(&feed[0].payload).unwrap();
    let at = START.plus_secs(90).to_string();
    let expected = json!({
        "id": feed[0].id,
        "event": "payment.confirmed",
        "payment_id": payment.id().to_string(),
        "timestamp": at,
        "created_at": at,
        "updated_at": at,
        "event_id": feed[0].id,
        "sequence": 1,
        "status": "confirmed",
        "merchant_id": env.merchant_id.to_string(),
        "reference": payment.terms.reference,
        "amount": "10.00",
        "amount_received": "10.00",
        "token": "USDC",
        "chain": "base",
        "tx_hash": observed(1).key.tx_hash.to_string(),
        "psp_amount": "9.90",
        "treasury_fee": "0.10",
        "labels": [],
        "metadata": payment.terms.metadata,
    });
    assert_eq!(body, expected);

    let queued = deliveries::Entity::find().all(env.database.reader()).await.unwrap();
    assert_eq!(queued.len(), 1, "the filter wants payment.* only");
    assert_eq!((queued[0].event_id.as_str(), queued[0].next_attempt_at), (feed[0].id.as_str(), Some(REAL.as_millis())));

    let operation = env.operation(&payment).await;
    assert_eq!((operation.status.as_str(), operation.max_fee_bps, operation.kind.as_str()), ("queued", 100, "settle"));
    assert_eq!((operation.amount, operation.psp_amount, operation.treasury_fee), (10_000_000, 9_900_000, 100_000));
}

#[tokio::test]
async fn applied_settlement_marks_its_operation_succeeded() {
    let env = Env::new().await;
    add_lease(&env.database).await;
    let payment = env.confirmed().await;
    let operation = env.operation(&payment).await;
    let receipt = env.journal.submit(submission(0, &[(&operation.id, operation.revision)])).await.unwrap();
    let mined = outcome(receipt.chain_tx_id.unwrap(), "mined", &[(&operation.id, "mined")], None);
    let receipt = env.journal.submit(mined).await.unwrap();
    let settled = Command::CompleteSettlement {
        operation: OperationId::settlement_of(payment.id()),
        revision: u32::try_from(receipt.operations[0].revision).unwrap(),
        amount: Amount::from_units(receipt.operations[0].amount),
        tx_hash: Hash32([3; 32]),
        block_time: START.plus_secs(100),
    };
    let payment = env.notified(&payment, &settled).await;
    assert_eq!(payment.status, Status::Settled);
    assert_eq!(env.operation(&payment).await.status.as_str(), "succeeded");
    let row = payments::Entity::find_by_id(payment.id().to_string()).one(env.database.reader()).await.unwrap();
    assert!(!row.unwrap().live);
}

#[tokio::test]
async fn transfer_is_unapplied_until_its_payment_has_applied_it() {
    let env = Env::new().await;
    add_lease(&env.database).await;
    let payment = env.initiated().await;
    env.journal.submit(found(transfer_row(&payment))).await.unwrap();
    let database = &env.database;
    assert_eq!(unapplied_of(database, &[payment.id()]).await.unwrap().len(), 1);
    assert_eq!(unapplied_on(database, payment.terms.chain, None, 10).await.unwrap().len(), 1);
    assert_eq!(unapplied_of(database, &[PaymentId::generate()]).await.unwrap().len(), 0);
    assert_eq!(unapplied_on(database, payment.terms.chain, None, 0).await.unwrap().len(), 0);

    let fact = Command::ObserveTransfer(observed(1));
    let payment = env.notified(&payment, &fact).await;
    assert!(unapplied_of(database, &[payment.id()]).await.unwrap().is_empty());
    let rows = transfers::Entity::find().all(database.reader()).await.unwrap();
    assert_eq!((rows[0].applied_revision, rows[0].applied_version), (1, 2));

    // The mark is lost (for example, the row was edited by hand): the fact changes nothing, and still marks its row.
    let mut lost = rows[0].clone().into_active_model();
    lost.applied_revision = ActiveValue::Set(0);
    lost.update(database.writer()).await.unwrap();
    assert_eq!(transition(&payment, &fact, START.plus_secs(95)).unwrap(), None);
    env.journal.submit(applied_write(&payment, &fact, REAL).unwrap()).await.unwrap();
    assert!(unapplied_of(database, &[payment.id()]).await.unwrap().is_empty());
    assert!(applied_write(&payment, &Command::Cancel, REAL).is_none());
}

#[tokio::test]
async fn many_payments_read_their_unapplied_transfers_with_one_query() {
    let env = Env::new().await;
    add_lease(&env.database).await;
    let (mut payments, mut rows) = (Vec::new(), Vec::new());
    for n in 0_u8..40 {
        let payment = env.initiated().await;
        if n % 2 == 0 {
            rows.push(transfers::Model { tx_hash: Hash32([n; 32]).to_string(), ..transfer_row(&payment) });
        }
        payments.push(payment.id());
    }
    let JournalWrite::ChainBatch(_, mut batch) = found(rows[0].clone()) else { unreachable!() };
    batch.transfers = rows;
    env.journal.submit(JournalWrite::ChainBatch(lease(), batch)).await.unwrap();
    let reader = Unapplied::new(env.database.clone());
    let answers = futures::future::join_all(payments.iter().map(|id| reader.of(*id))).await;
    for (n, (id, answer)) in payments.iter().zip(answers).enumerate() {
        let owners: Vec<String> = answer.unwrap().into_iter().map(|row| row.payment_id).collect();
        assert_eq!(owners, vec![id.to_string(); (n + 1) % 2]);
    }
}

#[tokio::test]
async fn request_that_reads_for_others_may_be_dropped() {
    let env = Env::new().await;
    add_lease(&env.database).await;
    let payment = env.initiated().await;
    env.journal.submit(found(transfer_row(&payment))).await.unwrap();
    let reader = Unapplied::new(env.database.clone());
    for is_reading in [false, true] {
        let mut first = Box::pin(reader.of(PaymentId::generate()));
        let mut second = Box::pin(reader.of(payment.id()));
        // The first poll of `first` takes the turn, the second starts the read.
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        if is_reading {
            let _ = futures::poll!(&mut first);
        }
        drop(first);
        assert_eq!(second.await.unwrap().len(), 1);
    }
}
