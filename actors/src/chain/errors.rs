//! Errors of the settler's passes and their severity: one item, one account, or all of settling is blocked.
//!
//! Deliberately absent: the reaction to them (`pace`, `settler`).

use payferry_evm::client::ClientError;
use payferry_evm::fees::AboveCeiling;
use payferry_evm::pace::{BlockingError, Severity};
use payferry_evm::wallet::SignerError;
use payferry_journal::JournalError;

use super::checkpoint::Killed;
use super::operations::BadOperation;

/// Reason why a pass, or the part of it for one item, ended early. The next pass continues it.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettleError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("journal: {0}")]
    Journal(#[from] JournalError),
    #[error("database: {0}")]
    Database(#[from] sea_orm::DbErr),
    #[error(transparent)]
    Signer(#[from] SignerError),
    #[error(transparent)]
    Fees(#[from] AboveCeiling),
    #[error(transparent)]
    Operation(#[from] BadOperation),
    #[error("{0}")]
    Row(&'static str),
    #[error("{what}: {why}")]
    Item { what: String, why: String },
    #[error(transparent)]
    Killed(#[from] Killed),
}

impl SettleError {
    pub(super) fn severity(&self) -> Severity {
        match self {
            Self::Journal(JournalError::Conflict) => Severity::Overtaken,
            Self::Client(error) => severity_of_call(error),
            // These concern one account's signer or one chain's ceiling: no slower pace is needed.
            Self::Journal(JournalError::Refused(_))
            | Self::Signer(_)
            | Self::Fees(_)
            | Self::Operation(_)
            | Self::Row(_)
            | Self::Item { .. } => Severity::Item,
            Self::Journal(_) | Self::Database(_) | Self::Killed(_) => Severity::Own,
        }
    }
}

/// Some responses concern the request and not the endpoint.
pub(super) fn severity_of_call(error: &ClientError) -> Severity {
    match error {
        ClientError::AlreadyKnown
        | ClientError::NonceTooLow
        | ClientError::Underpriced(_)
        | ClientError::InsufficientFunds
        | ClientError::Reverted { .. } => Severity::Item,
        ClientError::RangeTooLarge(_)
        | ClientError::RateLimited { .. }
        | ClientError::UnknownBlock
        | ClientError::Timeout
        | ClientError::Unavailable(_)
        | ClientError::WrongChain { .. }
        | ClientError::Refused { .. }
        | ClientError::Malformed(_) => Severity::Outside,
    }
}

/// Errors of a pass so far, without kills: a kill ends the settler.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<BlockingError>);

impl Errors {
    /// Adds an error. The pass continues unless the settler is killed.
    pub(super) fn add(&mut self, error: SettleError) -> Result<(), Killed> {
        match error {
            SettleError::Killed(killed) => Err(killed),
            error => {
                self.0.push(BlockingError { severity: error.severity(), why: error.to_string() });
                Ok(())
            }
        }
    }

    /// Adds the error of a part of the pass, if any.
    pub(super) fn take(&mut self, outcome: Result<(), SettleError>) -> Result<(), Killed> {
        outcome.or_else(|error| self.add(error))
    }

    /// The blocking errors.
    pub(super) fn into_blocking_errors(self) -> Vec<BlockingError> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::checkpoint::Step;
    use payferry_evm::pace::gather;

    fn item() -> SettleError {
        SettleError::Item { what: "the receipt of 0x01".to_owned(), why: "it has no block".to_owned() }
    }

    #[test]
    fn collects_all_errors_of_a_pass_and_a_kill_ends_it() {
        let mut errors = Errors::default();
        errors.take(Ok(())).unwrap();
        errors.add(item()).unwrap();
        errors.take(Err(ClientError::Timeout.into())).unwrap();
        errors.add(AboveCeiling { required_wei: 2, l1_wei: 0, ceiling_wei: 1 }.into()).unwrap();
        errors.add(JournalError::Conflict.into()).unwrap();
        let gravities: Vec<_> = errors.0.iter().map(|error| error.severity).collect();
        assert_eq!(gravities, [Severity::Item, Severity::Outside, Severity::Item, Severity::Overtaken]);
        assert_eq!(errors.0[0].why, "the receipt of 0x01: it has no block");
        assert_eq!(gather(errors.0.clone()).unwrap().why, ClientError::Timeout.to_string());
        let killed = Killed(Step::Mined);
        assert_eq!(errors.add(killed.into()).unwrap_err(), killed);
        assert_eq!(errors.0.len(), 4);
    }

    #[test]
    fn separates_errors_of_one_item_or_account_from_general_ones() {
        let all: [(SettleError, Severity); 8] = [
            (JournalError::Refused("a value".to_owned()).into(), Severity::Item),
            (JournalError::Unavailable("away".to_owned()).into(), Severity::Own),
            (JournalError::Busy.into(), Severity::Own),
            (SignerError::Refused.into(), Severity::Item),
            (ClientError::InsufficientFunds.into(), Severity::Item),
            (ClientError::RateLimited { retry_after: None }.into(), Severity::Outside),
            (ClientError::Malformed("no fees".to_owned()).into(), Severity::Outside),
            (SettleError::Row("a sender is malformed"), Severity::Item),
        ];
        for (error, severity) in all {
            assert_eq!(error.severity(), severity, "{error}");
        }
    }
}
