//! Orders of payouts and withdrawals: one commit with the reservation, then one actor each.

use payferry_domain::sending::{self, Command, Order, Sending, SendingId};
use payferry_domain::{Address, Amount, Chain, CustomerId, OrderError, PspId, SendingCommandError, Token};
use payferry_entities::{audit_log, idempotency_keys};
use payferry_journal::payments::RowsBeside;
use payferry_journal::psps::Ceilings;
use payferry_journal::{JournalError, outbound};

use super::{COMMAND_TIMEOUT, SendingCommandError, System};
use crate::sending::{DeskMessage, Message, Told};

/// Creates the idempotency row of the response to an order.
pub type OrderAnswer = Box<dyn Fn(&Sending) -> idempotency_keys::Model + Send + Sync>;

/// Order of a payout or withdrawal. All values are validated, and the customer may be paid.
pub struct OrderSending {
    /// New id, which determines the kind.
    pub id: SendingId,
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
}

impl System {
    /// Accepts a payout or withdrawal: its amount is reserved and it is durable when this returns.
    pub async fn order_sending(&self, request: OrderSending) -> Result<Sending, OrderError> {
        let services = self.services();
        let psp = services.psps.get(request.psp_id).await.map_err(|e| OrderError::Unavailable(e.to_string()))?;
        let Ceilings { send_max, send_daily_max } = psp.ceilings;
        if request.amount > send_max {
            return Err(OrderError::AboveSendLimit { send_max });
        }
        let OrderSending { token, chain, .. } = request;
        let unavailable = OrderError::TokenUnavailable { token, chain };
        let spec = services.chains.spec(chain).ok_or_else(|| unavailable.clone())?;
        let address = spec.token_address(token).ok_or(unavailable)?;
        let order = Order {
            id: request.id,
            psp_id: request.psp_id,
            customer_id: request.customer_id,
            reference: request.reference,
            metadata: request.metadata,
            amount: request.amount,
            token,
            asset: payferry_domain::Asset { chain, address },
            to: request.to,
            finality: spec.finality,
            created_at: services.clock.now(),
        };
        let accepted = sending::accept(order);
        let rows = RowsBeside { idempotency: request.answer.map(|answer| answer(&accepted.sending)), audit: None };
        let real_now = services.clock.real_now();
        let unit = outbound::change(&accepted, rows, real_now, send_daily_max, |event| psp.wants(event))
            .map_err(|error| OrderError::Unavailable(error.to_string()))?;
        // A queued write is executed even if the caller stops waiting, and then the order needs an actor.
        let (services, live) = (services.clone(), self.sendings().live.clone());
        let made = tokio::spawn(async move {
            let written = services.journal.submit(unit).await;
            let id = accepted.sending.id();
            match &written {
                Ok(_) => live.to_desk(DeskMessage::Begin(Box::new(accepted.sending.clone()))),
                // If it exists after all, it is started.
                Err(JournalError::Unknown(_)) => live.to_desk(DeskMessage::Wake(id, Message::Resume)),
                Err(_) => {}
            }
            written.map(|_| accepted.sending)
        });
        let made = made.await.unwrap_or_else(|error| Err(JournalError::Unknown(error.to_string())));
        made.map_err(|error| match error {
            JournalError::IdempotencyKeyTaken => OrderError::IdempotencyKeyTaken,
            JournalError::InsufficientBalance => OrderError::InsufficientBalance,
            JournalError::AboveDailyLimit => OrderError::AboveDailyLimit { send_daily_max },
            JournalError::Busy => OrderError::Busy,
            JournalError::Unknown(_) => OrderError::Unknown(error.to_string()),
            other => OrderError::Unavailable(other.to_string()),
        })
    }

    /// Runs a request on a payout or withdrawal, with the audit row in the same commit; returns its new state.
    pub async fn command_sending(
        &self,
        id: SendingId,
        command: Command,
        audit: Option<audit_log::Model>,
    ) -> Result<Sending, SendingCommandError> {
        let (reply, replied) = ractor::concurrency::oneshot();
        let told = Told { command, audit, reply: Some(reply.into()) };
        self.sendings().live.to_desk(DeskMessage::Wake(id, Message::Take(Box::new(told))));
        // The command may have been received, and may still be written.
        let unknown = |what: &str| SendingCommandError::Unknown(format!("{id} {what}"));
        match tokio::time::timeout(COMMAND_TIMEOUT, replied).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unknown("was interrupted")),
            Err(_) => Err(unknown("did not respond in time")),
        }
    }
}
