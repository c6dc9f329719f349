//! Maps errors of the layers below, which know no HTTP, to [`ApiError`].

use std::error::Error;

use payferry_domain::invariants::Violated;
use payferry_domain::payment::Rejection;
use payferry_domain::{CommandError, InitiateError, TransitionError, customer, outbound};
use payferry_entities::{ChangeError, DatabaseFailure, StoreError};
use sea_orm::{DbErr, SqlErr};

use super::{ApiError, Away, FieldError, TokenProblem};

impl From<DbErr> for ApiError {
    fn from(error: DbErr) -> Self {
        if matches!(error.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))) {
            let detail = "Another request changed the same object at the same time; try again.";
            return Self::conflict("concurrent_change", detail);
        }
        match DatabaseFailure::of(&error) {
            DatabaseFailure::Contention | DatabaseFailure::Away => {
                Self::Unavailable(Away::Database, error.to_string().into())
            }
            DatabaseFailure::Request => Self::internal(error),
        }
    }
}

impl From<TokenProblem> for ApiError {
    fn from(problem: TokenProblem) -> Self {
        Self::NotOperator(problem)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Database(error) => error.into(),
            StoreError::Unreadable { .. } => Self::internal(error),
        }
    }
}

impl From<serde_json::Error> for ApiError {
    /// For writing an answer. Reading a body has its own error.
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error)
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let (code, detail) = (rejection.code(), rejection.to_string());
        let at = |field: &str, message: &str| vec![FieldError::new(field, code, message)];
        match rejection {
            Rejection::UnknownTransfer => Self::NotFound("transfer"),
            // Such a request is invalid whatever the state of the payment.
            Rejection::RefundAddressRequired => {
                Self::Unprocessable(code, sentence(&detail), at("address", "is required"))
            }
            Rejection::RefundAddressInvalid => {
                Self::Unprocessable(code, sentence(&detail), at("address", "cannot receive a refund"))
            }
            Rejection::RefundTooLarge { .. } | Rejection::RefundSpansVaults(_) | Rejection::RefundMustBeAll { .. } => {
                Self::Conflict(code, sentence(&detail), at("amount", "is not valid for this payment"))
            }
            Rejection::ReceivedMoved { .. } => {
                Self::Conflict(code, sentence(&detail), at("expected_received", "has changed"))
            }
            _ => Self::conflict(code, sentence(&detail)),
        }
    }
}

impl From<customer::Rejection> for ApiError {
    fn from(rejection: customer::Rejection) -> Self {
        let errors = match &rejection {
            customer::Rejection::DocumentsMissing(missing) => {
                missing.iter().map(|one| FieldError::new(one.as_str(), "missing", "has not been uploaded")).collect()
            }
            _ => Vec::new(),
        };
        Self::Conflict(rejection.code(), sentence(&rejection.to_string()), errors)
    }
}

impl From<ChangeError<TransitionError<customer::Rejection>>> for ApiError {
    fn from(error: ChangeError<TransitionError<customer::Rejection>>) -> Self {
        match error {
            ChangeError::NotFound => Self::NotFound("customer"),
            ChangeError::Rejected(TransitionError::Rejected(rejection)) => rejection.into(),
            ChangeError::Rejected(TransitionError::Violated(violated)) => violated.into(),
            ChangeError::Quarantined => Self::Unavailable(Away::Customer, error.to_string().into()),
            ChangeError::Store(error) => error.into(),
        }
    }
}

impl From<Violated> for ApiError {
    fn from(violated: Violated) -> Self {
        Self::InvariantViolated(violated.to_string().into())
    }
}

impl From<InitiateError> for ApiError {
    /// `IdempotencyKeyTaken` does not get here: the idempotency module handles it first.
    fn from(error: InitiateError) -> Self {
        let reason = error.to_string();
        match error {
            InitiateError::TokenUnavailable { .. } => Self::TokenUnavailable(sentence(&reason)),
            InitiateError::ChainAway => Self::Unavailable(Away::Chain, reason.into()),
            InitiateError::ChainPaused(_) => Self::Unavailable(Away::ChainPaused, reason.into()),
            InitiateError::PspPaused => Self::psp_paused(),
            InitiateError::AboveSendLimit(_) => Self::conflict("above_send_limit", sentence(&reason)),
            InitiateError::RecipientBlocked => Self::conflict("wallet_blocked", sentence(&reason)),
            InitiateError::RecipientInReview => Self::conflict("wallet_in_review", sentence(&reason)),
            InitiateError::ScreeningAway => Self::Unavailable(Away::Screening, reason.into()),
            InitiateError::CustomerRequired => {
                Self::field("customer_id", "required", "is required by this account's settings")
            }
            InitiateError::Violated(violated) => violated.into(),
            InitiateError::IdempotencyKeyTaken => Self::IdempotencyRunning,
            InitiateError::Busy => Self::Unavailable(Away::Capacity, reason.into()),
            InitiateError::Unavailable(_) => Self::Unavailable(Away::Database, reason.into()),
            InitiateError::Unknown(_) => Self::TimedOut,
        }
    }
}

impl From<CommandError<Rejection>> for ApiError {
    fn from(error: CommandError<Rejection>) -> Self {
        match error {
            CommandError::Rejected(rejection) => rejection.into(),
            error => of_command(&error, "payment", Away::Payment),
        }
    }
}

impl From<CommandError<outbound::Rejection>> for ApiError {
    fn from(error: CommandError<outbound::Rejection>) -> Self {
        match error {
            CommandError::Rejected(rejection) => Self::conflict(rejection.code(), sentence(&rejection.to_string())),
            error => of_command(&error, "sending", Away::OutboundTransfer),
        }
    }
}

/// Maps an error other than a rejection; `what` names the kind of object.
fn of_command<R: Error + 'static>(error: &CommandError<R>, what: &'static str, quarantined: Away) -> ApiError {
    let reason = error.to_string();
    match error {
        CommandError::NotFound => ApiError::NotFound(what),
        CommandError::Violated(violated) => violated.clone().into(),
        CommandError::Quarantined => ApiError::Unavailable(quarantined, reason.into()),
        // The idempotency module handles it before, where there is a key.
        CommandError::IdempotencyKeyTaken => ApiError::IdempotencyRunning,
        CommandError::TokenUnavailable { .. } => ApiError::TokenUnavailable(sentence(&reason)),
        CommandError::Busy => ApiError::Unavailable(Away::Capacity, reason.into()),
        CommandError::InsufficientBalance => {
            ApiError::conflict("insufficient_balance", "The available balance on this chain is too small.")
        }
        CommandError::AboveDailyLimit => {
            ApiError::conflict("above_daily_limit", "The daily send limit is reached; it resets at midnight UTC.")
        }
        CommandError::AboveSendLimit(_) => ApiError::conflict("above_send_limit", sentence(&reason)),
        CommandError::Rejected(_) => ApiError::internal(reason),
        CommandError::Unavailable(_) => ApiError::Unavailable(Away::Database, reason.into()),
        CommandError::Unknown(_) => ApiError::TimedOut,
    }
}

/// Returns `text` with a capital letter and a full stop.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(letters).chain(std::iter::once('.')).collect()
}
