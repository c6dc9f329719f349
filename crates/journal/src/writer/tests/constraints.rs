//! The database accepts every state that the domain has, and nothing else.

use payferry_domain::customer::KycStatus;
use payferry_domain::outbound::{OutboundKind, OutboundStatus};
use payferry_domain::payment::{RefundRequestState, Status};
use payferry_entities::{CheckStatus, EndpointStatus, refunds, sendings};
use sea_orm::{DbBackend, Statement};

use super::*;
use crate::writer::OperationChange;

/// An environment with a row in each table that the tests change.
async fn env() -> Env {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    let mut write = transition(&payment, 1);
    write.consequences.operations.push(OperationChange::Queue(Box::new(operation("op_1", &payment))));
    env.submit(boxed(write)).await.unwrap();
    let mut found = batch(None, "0xa", 1);
    found.transfers = vec![transfer("0x1", &payment, "0xa", 1)];
    env.submit(JournalWrite::ChainBatch(lease(), Box::new(found))).await.unwrap();
    env.submit(submission(1, &[("op_1", 1)])).await.unwrap();
    let refund = refunds::Model {
        id: "re_1".to_owned(),
        payment_id: payment.id.clone(),
        psp_id: payment.psp_id.clone(),
        reference: None,
        status: "pending".to_owned(),
        created_at: 1,
    };
    refunds::Entity::insert(refund.into_active_model()).exec(env.database.writer()).await.unwrap();
    let sending = sendings::Model {
        id: "po_1".to_owned(),
        psp_id: payment.psp_id.clone(),
        kind: "payout".to_owned(),
        status: "pending".to_owned(),
        amount: 1,
        ..sendings::Model::default()
    };
    sendings::Entity::insert(sending.into_active_model()).exec(env.database.writer()).await.unwrap();
    env
}

/// Changes all rows of a table, of which there is at least one.
async fn change(env: &Env, table: &str, set: &str) -> Result<(), DbErr> {
    let changed = env.database.writer().execute_unprepared(&format!("UPDATE {table} SET {set}")).await?;
    assert!(changed.rows_affected() > 0, "no row of {table}");
    Ok(())
}

/// The values that the constraint of this column allows, in the order of the migration.
async fn allowed(env: &Env, table: &str, column: &str) -> Vec<String> {
    let backend = env.database.backend();
    let sql = match backend {
        DbBackend::Sqlite => format!("SELECT sql FROM sqlite_master WHERE name = '{table}'"),
        _ => format!(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' \
             AND conrelid = '{table}'::regclass AND pg_get_constraintdef(oid) LIKE 'CHECK (%{column}%= ANY%'"
        ),
    };
    let row = env.database.reader().query_one_raw(Statement::from_string(backend, sql)).await.unwrap().unwrap();
    let text: String = row.try_get_by_index(0).unwrap();
    let list = match backend {
        DbBackend::Sqlite => text.split(&format!("CHECK ({column} IN (")).nth(1).unwrap().split(')').next().unwrap(),
        _ => &text,
    };
    list.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

#[tokio::test]
async fn states_are_those_of_the_enums() {
    let env = env().await;
    let sets: [(&str, &str, Vec<&str>); 13] = [
        ("payments", "status", Status::ALL.map(Status::as_str).to_vec()),
        ("payments", "purpose", vec!["payin", "transfer"]),
        ("transfers", "presence", vec!["present", "orphaned"]),
        ("refunds", "status", vec!["pending_approval", "pending", "sent", "failed"]),
        ("refund_requests", "status", RefundRequestState::ALL.map(RefundRequestState::as_str).to_vec()),
        ("sendings", "kind", OutboundKind::ALL.map(OutboundKind::as_str).to_vec()),
        ("sendings", "status", OutboundStatus::ALL.map(OutboundStatus::as_str).to_vec()),
        ("customers", "kyc_status", KycStatus::ALL.map(KycStatus::as_str).to_vec()),
        ("operations", "status", OperationStatus::ALL.map(OperationStatus::as_str).to_vec()),
        ("chain_txs", "status", ChainTxStatus::ALL.map(ChainTxStatus::as_str).to_vec()),
        ("deliveries", "status", DeliveryStatus::ALL.map(DeliveryStatus::as_str).to_vec()),
        ("webhook_endpoints", "status", EndpointStatus::ALL.map(EndpointStatus::as_str).to_vec()),
        ("checks", "status", CheckStatus::ALL.map(CheckStatus::as_str).to_vec()),
    ];
    for (table, column, names) in sets {
        assert_eq!(allowed(&env, table, column).await, names, "{table}.{column}");
    }
    for (table, column) in
        [("payments", "status"), ("sendings", "status"), ("operations", "status"), ("chain_txs", "status")]
    {
        assert!(change(&env, table, &format!("{column} = 'lost'")).await.is_err(), "{table}.{column}");
    }
}

#[tokio::test]
async fn amounts_are_positive_and_the_shares_of_a_settlement_add_up() {
    let env = env().await;
    for table in ["payments", "transfers", "sendings", "operations"] {
        for amount in ["0", "-1"] {
            assert!(change(&env, table, &format!("amount = {amount}")).await.is_err(), "{table}: {amount}");
        }
    }
    assert!(change(&env, "payments", "amount_received = -1").await.is_err());
    for shares in ["psp_amount = psp_amount + 1", "treasury_fee = treasury_fee - 1", "amount = amount + 1"] {
        assert!(change(&env, "operations", shares).await.is_err(), "{shares}");
    }
    change(&env, "operations", "psp_amount = psp_amount - 1, treasury_fee = treasury_fee + 1").await.unwrap();
    assert!(change(&env, "operations", "psp_amount = amount + 1, treasury_fee = -1").await.is_err());
    change(&env, "operations", "kind = 'payout', psp_amount = 0, treasury_fee = 0").await.unwrap();
}

#[tokio::test]
async fn operation_names_a_transaction_that_exists() {
    let env = env().await;
    assert!(change(&env, "operations", "chain_tx_id = 99").await.is_err());
    assert!(env.database.writer().execute_unprepared("DELETE FROM chain_txs").await.is_err());
    change(&env, "operations", "chain_tx_id = NULL").await.unwrap();
}
