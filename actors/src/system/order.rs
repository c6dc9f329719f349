//! Payouts and withdrawals: accepted in one commit with their reserve, then an actor each.

use payferry_domain::sending::{self, Command, Order, Sending, SendingId};
use payferry_domain::{Address, Amount, Chain, CustomerId, PspId, Token};
use payferry_entities::{audit_log, idempotency_keys};
use payferry_journal::payments::RowsBeside;
use payferry_journal::psps::Ceilings;
use payferry_journal::{JournalError, outbound};

use super::{COMMAND_TIMEOUT, SendingCommandError, System};
use crate::sending::{DeskMessage, Message, Told};

/// Makes the idempotency row of the answer to an order.
pub type OrderAnswer = Box<dyn Fn(&Sending) -> idempotency_keys::Model + Send + Sync>;

/// A payout or withdrawal as it is asked for. Everything in it was validated, and the customer may be paid.
pub struct OrderSending {
    /// Its new id, which says what it is.
    pub id: SendingId,
    /// Whose money.
    pub psp_id: PspId,
    /// Who is paid; a payout's alone.
    pub customer_id: Option<CustomerId>,
    /// The PSP's own reference.
    pub reference: Option<String>,
    /// The PSP's own object.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// How much.
    pub amount: Amount,
    /// In which token.
    pub token: Token,
    /// On which chain.
    pub chain: Chain,
    /// To which wallet.
    pub to: Address,
    /// Makes the idempotency row of the answer.
    pub answer: Option<OrderAnswer>,
}

/// Why an order was not accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OrderError {
    /// The chain does not run here, or does not take the token.
    #[error("{token} is not available on {chain}")]
    TokenUnavailable {
        /// The token.
        token: Token,
        /// The chain.
        chain: Chain,
    },
    /// The balance does not have it.
    #[error("the balance is too low")]
    InsufficientBalance,
    /// More than may be sent at once.
    #[error("at most {send_max} may be sent at once")]
    AboveSendLimit {
        /// The ceiling.
        send_max: Amount,
    },
    /// More than may be sent on this day.
    #[error("at most {send_daily_max} may be sent on one day")]
    AboveDailyLimit {
        /// The ceiling.
        send_daily_max: Amount,
    },
    /// The idempotency key is taken.
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    /// The journal has no room.
    #[error("too many requests wait to be written")]
    Busy,
    /// Try again.
    #[error("{0}")]
    Unavailable(String),
    /// It may or may not have been accepted.
    #[error("{0}")]
    Unknown(String),
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
        // What is queued is written whether or not the caller waits for it, and then it must be looked after.
        let (services, live) = (services.clone(), self.sendings().live.clone());
        let made = tokio::spawn(async move {
            let written = services.journal.submit(unit).await;
            let id = accepted.sending.id();
            match &written {
                Ok(_) => live.to_desk(DeskMessage::Begin(Box::new(accepted.sending.clone()))),
                // If it is there after all, it is looked after.
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

    /// Has a payout or withdrawal carry out a person's command, written down in the same commit; answers it as it is
    /// afterwards.
    pub async fn command_sending(
        &self,
        id: SendingId,
        command: Command,
        audit: Option<audit_log::Model>,
    ) -> Result<Sending, SendingCommandError> {
        let (reply, replied) = ractor::concurrency::oneshot();
        let told = Told { command, audit, reply: Some(reply.into()) };
        self.sendings().live.to_desk(DeskMessage::Wake(id, Message::Take(Box::new(told))));
        // It may have been taken in, and may yet be written.
        let unknown = |what: &str| SendingCommandError::Unknown(format!("{id} {what}"));
        match tokio::time::timeout(COMMAND_TIMEOUT, replied).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unknown("was interrupted")),
            Err(_) => Err(unknown("did not answer in time")),
        }
    }
}
