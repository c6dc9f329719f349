//! Orders of payouts and withdrawals: one commit with the reservation, then one actor each.

use payferry_domain::outbound::{self, Command, Order, OutboundId, OutboundTransfer};
use payferry_domain::{Address, Amount, Asset, Chain, CommandError, CustomerId, OrderError, PspId, Token};
use payferry_entities::{audit_log, idempotency_keys};
use payferry_journal::JournalError;
use payferry_journal::outbound as store;
use payferry_journal::payments::RequestRows;
use payferry_journal::psps::Ceilings;
use payferry_journal::violations;
use payferry_runtime::request::traceparent;

use super::{System, run};

/// Creates the idempotency row of the response to an order.
pub type OrderAnswer = Box<dyn Fn(&OutboundTransfer) -> idempotency_keys::Model + Send + Sync>;

/// Order of a payout or withdrawal. All values are validated, and the customer may be paid.
pub struct OutboundOrder {
    /// New id, which determines the kind.
    pub id: OutboundId,
    /// Ordering PSP.
    pub psp_id: PspId,
    /// Paid customer; only for a payout.
    pub customer_id: Option<CustomerId>,
    /// The PSP's own reference.
    pub reference: Option<String>,
    /// The PSP's own object.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Amount.
    pub amount: Amount,
    /// Token.
    pub token: Token,
    /// Chain.
    pub chain: Chain,
    /// Recipient wallet.
    pub to: Address,
    /// Creates the idempotency row of the response.
    pub answer: Option<OrderAnswer>,
    /// Audit entry of the request.
    pub audit: Option<audit_log::Model>,
}

impl System {
    /// Accepts a payout or withdrawal: its amount is reserved and it is durable when this returns.
    pub async fn order_outbound(&self, request: OutboundOrder) -> Result<OutboundTransfer, OrderError> {
        let services = self.services();
        let psp = services.psps.get(request.psp_id).await.map_err(|e| OrderError::Unavailable(e.to_string()))?;
        let Ceilings { send_max, send_daily_max, .. } = psp.ceilings;
        let OutboundOrder { token, chain, .. } = request;
        let unavailable = OrderError::TokenUnavailable { token, chain };
        let spec = services.chains.spec(chain).ok_or_else(|| unavailable.clone())?;
        let asset = Asset { chain, address: spec.token_address(token).ok_or(unavailable)? };
        let send_max = services.chains.send_max(send_max, asset);
        if request.amount > send_max {
            return Err(OrderError::AboveSendLimit(send_max));
        }
        let order = Order {
            id: request.id,
            psp_id: request.psp_id,
            customer_id: request.customer_id,
            reference: request.reference,
            metadata: request.metadata,
            amount: request.amount,
            token,
            asset,
            to: request.to,
            finality: spec.finality,
            traceparent: traceparent(),
            created_at: services.clock.now(),
        };
        let accepted = outbound::accept(order)
            .inspect_err(|violated| violations::report(request.id, violated))
            .map_err(OrderError::Violated)?;
        let idempotency = request.answer.map(|answer| answer(&accepted.outbound));
        let rows = RequestRows { idempotency, audit: request.audit, ..RequestRows::default() };
        let real_now = services.clock.real_now();
        let write = store::change(&accepted, rows, real_now, send_daily_max, |event| psp.destinations_of(event))
            .map_err(|error| OrderError::Unavailable(error.to_string()))?;
        let created = self.outbound().create(accepted.outbound, accepted.effects, write, ()).await;
        created.map_err(|error| match error {
            JournalError::IdempotencyKeyTaken => OrderError::IdempotencyKeyTaken,
            JournalError::InsufficientBalance => OrderError::InsufficientBalance,
            JournalError::AboveDailyLimit => OrderError::AboveDailyLimit,
            JournalError::Busy => OrderError::Busy,
            JournalError::Unknown(_) => OrderError::Unknown(error.to_string()),
            other => OrderError::Unavailable(other.to_string()),
        })
    }

    /// Runs a request on a payout or withdrawal, with the audit row in the same commit; returns its new state.
    pub async fn command_outbound(
        &self,
        id: OutboundId,
        command: Command,
        audit: Option<audit_log::Model>,
    ) -> Result<OutboundTransfer, CommandError<outbound::Rejection>> {
        run(self.outbound(), id, command, audit, &id.to_string()).await
    }
}
