//! The whole actor tree over a real database and an in-process chain, with actors that are killed.

mod crashes;
mod many_payments;
mod money;
mod orphaned;
mod outbound;
mod payments;
mod service;
mod unknown;
mod views;
mod violations;
mod waiting;
mod waits;
mod watched;

use payferry_domain::payment::{Command, Payment, RefundOrder, Requester, Status};
use payferry_domain::{Address, Amount, Chain, PaymentId, RefundId};
use payferry_entities::{idempotency_keys, operations, payments as payment_rows};
use payferry_harness::database::{Held, Lock};
use payferry_journal::payments::unapplied_on;
use payferry_runtime::observe::{ActorKind, KindView, NodeView};
use sea_orm::{ActiveModelTrait, ActiveValue, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter};

use crate::env::Env;

/// Recipient of refunds only.
const RETURNED_TO: Address = Address([0xad; 20]);

impl Env {
    /// Number of transfers that no payment has applied.
    async fn unapplied(&self) -> usize {
        unapplied_on(&self.database, Chain::Base, None, 100).await.unwrap().len()
    }

    /// Blocks all other writers until it is released.
    async fn lock_database(&self) -> Held {
        self.test_database.lock(Lock::Writes).await
    }

    fn kind(&self, kind: ActorKind) -> KindView {
        self.system().kinds().into_iter().find(|view| view.kind == kind).unwrap()
    }

    /// The only permanent actor of this kind.
    fn node(&self, kind: ActorKind) -> NodeView {
        let root = self.system().tree().root;
        root.children.into_iter().find(|node| node.kind == kind).unwrap()
    }

    /// Waits until an outage has moved the deadlines of these payments, which are still pending.
    async fn until_extended(&self, payments: &[Payment]) {
        for payment in payments {
            let is_moved = |now: &Payment| now.expires_at > payment.expires_at;
            let moved = self.until_payment(payment.id(), "extended", is_moved).await;
            assert_eq!(moved.status, Status::Pending);
        }
    }

    async fn until_payments_live(&self, wanted: usize) {
        self.until("so many actors", async || self.system().observe().payments_live == wanted).await;
    }

    async fn until_restarts(&self, kind: ActorKind, wanted: u64) {
        let restarted = async || self.system().observe().restarts.get(&kind) == Some(&wanted);
        self.until("restarted", restarted).await;
    }

    /// Waits until the payment has an actor.
    async fn until_running(&self, id: PaymentId) {
        self.until("running", async || self.system().observe_payment(id).await.is_some()).await;
    }

    /// Waits until the payment's actor has decided and waits for the commit: it is too busy to answer.
    async fn until_busy(&self, id: PaymentId) {
        let is_busy = async || self.system().observe_payment(id).await.is_some_and(|view| view.memory.is_none());
        self.until("busy", is_busy).await;
    }

    async fn payment_row(&self, id: PaymentId) -> payment_rows::ActiveModel {
        let row = payment_rows::Entity::find_by_id(id.to_string()).one(self.database.reader()).await;
        row.unwrap().unwrap().into_active_model()
    }

    /// Sets whether the payment is live, without its actor.
    async fn set_live(&self, id: PaymentId, live: bool) {
        let row = payment_rows::ActiveModel { live: ActiveValue::Set(live), ..self.payment_row(id).await };
        row.update(self.system().database().writer()).await.unwrap();
    }

    async fn operations_of_kind(&self, kind: &str) -> Vec<operations::Model> {
        let of_kind = operations::Entity::find().filter(operations::Column::Kind.eq(kind));
        of_kind.all(self.database.reader()).await.unwrap()
    }
}

/// Requests a partial refund; each call is a new refund.
fn refund(tokens: &str) -> Command {
    let (amount, to) = (Some(tokens.parse::<Amount>().unwrap()), Some(RETURNED_TO));
    Command::RequestRefund(Box::new(RefundOrder {
        amount,
        to,
        ..RefundOrder::new(RefundId::generate(), Requester::Psp)
    }))
}

/// Row of an idempotency key with the answer to an initiation.
fn idempotency_key(payment: &Payment, key: &str) -> idempotency_keys::Model {
    idempotency_keys::Model {
        psp_id: payment.terms.psp_id.to_string(),
        route: "POST /payments/initiate".to_owned(),
        key: key.to_owned(),
        request_hash: String::new(),
        response_status: 201,
        response_body: String::new(),
        created_at: 0,
        expires_at: i64::MAX,
    }
}
