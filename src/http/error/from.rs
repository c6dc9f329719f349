//! What failures of the layers below mean to a caller. They know no HTTP; here it is decided once.

use std::error::Error;

use payferry_actors::customers::ChangeError;
use payferry_actors::journal::JournalError;
use payferry_actors::payment::store::StoreError;
use payferry_actors::psps::wallets::WalletError;
use payferry_actors::{CommandError, InitiateError, OrderError, SendingCommandError};
use payferry_domain::customer;
use payferry_domain::payment::Rejection;
use payferry_entities::Failure;
use sea_orm::{DbErr, SqlErr};

use super::{ApiError, Away, FieldError};
use crate::documents::DocumentError;

impl From<DbErr> for ApiError {
    fn from(error: DbErr) -> Self {
        if matches!(error.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))) {
            let detail = "Another request changed the same thing at the same moment; try again.".to_owned();
            return Self::Conflict("concurrent_change", detail, Vec::new());
        }
        match Failure::of(&error) {
            Failure::Contention | Failure::Away => Self::Unavailable(Away::Database, error.to_string().into()),
            Failure::Request => Self::internal(error),
        }
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

impl From<DocumentError> for ApiError {
    fn from(error: DocumentError) -> Self {
        let reason = error.to_string();
        match error {
            DocumentError::Busy => Self::Unavailable(Away::Capacity, reason.into()),
            DocumentError::Store(_) => Self::Unavailable(Away::Documents, reason.into()),
            DocumentError::Missing(_) | DocumentError::Sealed(..) => Self::internal(reason),
        }
    }
}

impl From<serde_json::Error> for ApiError {
    /// Of writing an answer; reading a body has its own error.
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error)
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let (code, detail) = (rejection.code(), rejection.to_string());
        let at = |field: &str, message: &str| {
            vec![FieldError { field: field.to_owned(), code: code.into(), message: message.to_owned() }]
        };
        match rejection {
            Rejection::UnknownTransfer => Self::NotFound("transfer"),
            // Whatever becomes of the payment, such a request stays wrong.
            Rejection::RefundAddressRequired => {
                Self::Unprocessable(code, sentence(&detail), at("address", "is required"))
            }
            Rejection::RefundAddressInvalid => {
                Self::Unprocessable(code, sentence(&detail), at("address", "cannot receive a refund"))
            }
            Rejection::RefundTooLarge { .. }
            | Rejection::RefundSpansVaults { .. }
            | Rejection::RefundMustBeAll { .. } => {
                Self::Conflict(code, sentence(&detail), at("amount", "does not fit"))
            }
            Rejection::ReceivedMoved { .. } => {
                Self::Conflict(code, sentence(&detail), at("expected_received", "has moved"))
            }
            _ => Self::Conflict(code, sentence(&detail), Vec::new()),
        }
    }
}

impl From<customer::Rejection> for ApiError {
    fn from(rejection: customer::Rejection) -> Self {
        let errors = match &rejection {
            customer::Rejection::DocumentsMissing(missing) => missing.iter().copied().map(missing_document).collect(),
            _ => Vec::new(),
        };
        Self::Conflict(rejection.code(), sentence(&rejection.to_string()), errors)
    }
}

fn missing_document(document: customer::Missing) -> FieldError {
    FieldError {
        field: document.as_str().to_owned(),
        code: "missing".into(),
        message: "has not been uploaded".to_owned(),
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotFound => Self::NotFound("customer"),
            ChangeError::Rejected(rejection) => rejection.into(),
            ChangeError::Unreadable(_) => Self::internal(error),
            ChangeError::Database(error) => error.into(),
        }
    }
}

impl From<WalletError> for ApiError {
    fn from(error: WalletError) -> Self {
        match error {
            WalletError::Database(error) => error.into(),
            WalletError::NoPsp(_) | WalletError::Unreadable(_) => Self::internal(error),
        }
    }
}

impl From<payferry_actors::customers::StoreError> for ApiError {
    fn from(error: payferry_actors::customers::StoreError) -> Self {
        Self::internal(error)
    }
}

impl From<JournalError> for ApiError {
    /// `IdempotencyKeyTaken` is for the idempotency module to answer before this.
    fn from(error: JournalError) -> Self {
        let reason = error.to_string();
        match error {
            JournalError::IdempotencyKeyTaken => Self::IdempotencyRunning,
            JournalError::Busy => Self::Unavailable(Away::Capacity, reason.into()),
            JournalError::Unavailable(_) => Self::Unavailable(Away::Database, reason.into()),
            JournalError::Unknown(_) => Self::TimedOut,
            JournalError::InsufficientBalance => insufficient_balance(),
            JournalError::AboveDailyLimit => above_daily_limit(),
            JournalError::Conflict | JournalError::Refused(_) => Self::internal(reason),
        }
    }
}

impl From<InitiateError> for ApiError {
    /// `IdempotencyKeyTaken` is for the idempotency module to answer before this.
    fn from(error: InitiateError) -> Self {
        let reason = error.to_string();
        match error {
            InitiateError::TokenUnavailable { .. } => Self::TokenUnavailable(sentence(&reason)),
            InitiateError::ChainAway { .. } => Self::Unavailable(Away::Chain, reason.into()),
            InitiateError::ChainPaused { .. } => Self::Unavailable(Away::ChainPaused, reason.into()),
            InitiateError::PspPaused => Self::psp_paused(),
            InitiateError::AboveSendLimit { .. } => Self::Conflict("above_send_limit", sentence(&reason), Vec::new()),
            InitiateError::RecipientBlocked => Self::Conflict("wallet_blocked", sentence(&reason), Vec::new()),
            InitiateError::RecipientInReview => Self::Conflict("wallet_in_review", sentence(&reason), Vec::new()),
            InitiateError::ScreeningAway => Self::Unavailable(Away::Screening, reason.into()),
            InitiateError::CustomerRequired => {
                Self::field("customer_id", "required", "is required by this account's settings")
            }
            InitiateError::IdempotencyKeyTaken => Self::IdempotencyRunning,
            InitiateError::Busy => Self::Unavailable(Away::Capacity, reason.into()),
            InitiateError::Unavailable(_) => Self::Unavailable(Away::Database, reason.into()),
            InitiateError::Unknown(_) => Self::TimedOut,
        }
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Rejected(rejection) => rejection.into(),
            error => of_command(error, "payment", Away::Payment),
        }
    }
}

impl From<SendingCommandError> for ApiError {
    fn from(error: SendingCommandError) -> Self {
        match error {
            SendingCommandError::Rejected(rejection) => {
                Self::Conflict(rejection.code(), sentence(&rejection.to_string()), Vec::new())
            }
            error => of_command(error, "sending", Away::Sending),
        }
    }
}

/// Of a command that was not rejected; `what` was to carry it out.
fn of_command<R: Error + 'static>(
    error: payferry_domain::CommandError<R>,
    what: &'static str,
    quarantined: Away,
) -> ApiError {
    use payferry_domain::CommandError as Is;
    let reason = error.to_string();
    match error {
        Is::NotFound => ApiError::NotFound(what),
        Is::Quarantined => ApiError::Unavailable(quarantined, reason.into()),
        Is::IdempotencyKeyTaken => ApiError::IdempotencyRunning,
        Is::InsufficientBalance => insufficient_balance(),
        Is::AboveDailyLimit => above_daily_limit(),
        Is::AboveSendLimit { .. } => ApiError::Conflict("above_send_limit", sentence(&reason), Vec::new()),
        Is::Rejected(_) => ApiError::internal(reason),
        Is::Unavailable(_) => ApiError::Unavailable(Away::Database, reason.into()),
        Is::Unknown(_) => ApiError::TimedOut,
    }
}

impl From<OrderError> for ApiError {
    /// `IdempotencyKeyTaken` is for the idempotency module to answer before this.
    fn from(error: OrderError) -> Self {
        let reason = error.to_string();
        match error {
            OrderError::TokenUnavailable { .. } => Self::TokenUnavailable(sentence(&reason)),
            OrderError::InsufficientBalance => insufficient_balance(),
            OrderError::AboveSendLimit { .. } => Self::Conflict("above_send_limit", sentence(&reason), Vec::new()),
            OrderError::AboveDailyLimit { .. } => above_daily_limit(),
            OrderError::IdempotencyKeyTaken => Self::IdempotencyRunning,
            OrderError::Busy => Self::Unavailable(Away::Capacity, reason.into()),
            OrderError::Unavailable(_) => Self::Unavailable(Away::Database, reason.into()),
            OrderError::Unknown(_) => Self::TimedOut,
        }
    }
}

fn insufficient_balance() -> ApiError {
    let detail = "The balance on this chain does not have that much available.";
    ApiError::Conflict("insufficient_balance", detail.to_owned(), Vec::new())
}

fn above_daily_limit() -> ApiError {
    let detail = "The ceiling of what may be sent on one day is reached; it begins anew at midnight UTC.";
    ApiError::Conflict("above_daily_limit", detail.to_owned(), Vec::new())
}

/// `text` with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(letters).chain(std::iter::once('.')).collect()
}
