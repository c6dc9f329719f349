//! Rows of refunds, which are written with their payment.

use std::collections::BTreeMap;

use payferry_domain::payment::{RefundOrder, Requester};
use payferry_domain::{Address, RefundId};
use payferry_entities::refunds;
use sea_orm::QueryOrder;

use super::*;

async fn rows(env: &Env) -> Vec<refunds::Model> {
    refunds::Entity::find().order_by_asc(refunds::Column::Id).all(env.database.reader()).await.unwrap()
}

#[tokio::test]
async fn refunds_have_rows() {
    let env = Env::new().await;
    let payment = env.confirmed().await;
    let operation = OperationId::settlement_of(payment.id());
    let payment = env
        .notified(&payment, &Command::FailSettlement { operation, revision: 1, reason: "reverted".to_owned() })
        .await;
    let order = |reference: &str, hold| RefundOrder {
        to: Some(Address([0xad; 20])),
        hold,
        reference: Some(reference.to_owned()),
        ..RefundOrder::new(RefundId::generate(), Requester::Psp)
    };
    let (rejected, held) = (order("first", true), order("second", true));
    let payment = env.notified(&payment, &Command::RequestRefund(Box::new(rejected.clone()))).await;
    let row = rows(&env).await.remove(0);
    let expected = refunds::Model {
        id: rejected.id.to_string(),
        payment_id: payment.id().to_string(),
        psp_id: payment.terms.psp_id.to_string(),
        reference: Some("first".to_owned()),
        status: "pending_approval".to_owned(),
        created_at: payment.refunds[0].requested_at.as_millis(),
    };
    assert_eq!(row, expected);
    let payment = env.notified(&payment, &Command::DecideRefund { refund_id: rejected.id, approve: false }).await;
    env.notified(&payment, &Command::RequestRefund(Box::new(held))).await;
    let written = rows(&env).await;
    let statuses: BTreeMap<_, _> =
        written.iter().map(|row| (row.reference.as_deref().unwrap(), row.status.as_str())).collect();
    assert_eq!(statuses, BTreeMap::from([("first", "failed"), ("second", "pending_approval")]));
}
