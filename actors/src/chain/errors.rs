//! Why a pass of the settler ended early, and how grave that is: whether one item, one account or all of it is held up.
//!
//! Deliberately absent: what becomes of a pass that did (`pace`, `trouble`).

use payferry_evm::client::ClientError;
use payferry_evm::fees::AboveCeiling;
use payferry_evm::pace::{Gravity, HeldUp};
use payferry_evm::wallet::SignerError;
use payferry_journal::JournalError;

use super::checkpoint::Killed;
use super::operations::BadOperation;

/// Why a pass, or the part of it that one item is, ended early. What was begun is taken up by the next one.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettleError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the journal: {0}")]
    Journal(#[from] JournalError),
    #[error("the database: {0}")]
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
    pub(super) fn gravity(&self) -> Gravity {
        match self {
            Self::Journal(JournalError::Conflict) => Gravity::Overtaken,
            Self::Client(error) => gravity_of_call(error),
            // One account's signer, one chain's ceiling: nothing is asked too often for their sake.
            Self::Journal(JournalError::Refused(_))
            | Self::Signer(_)
            | Self::Fees(_)
            | Self::Operation(_)
            | Self::Row(_)
            | Self::Item { .. } => Gravity::Item,
            Self::Journal(_) | Self::Database(_) | Self::Killed(_) => Gravity::Own,
        }
    }
}

/// Some answers are about what was asked, and not about who answers.
pub(super) fn gravity_of_call(error: &ClientError) -> Gravity {
    match error {
        ClientError::AlreadyKnown
        | ClientError::NonceTooLow
        | ClientError::Underpriced(_)
        | ClientError::InsufficientFunds
        | ClientError::Reverted(_) => Gravity::Item,
        ClientError::RangeTooLarge(_)
        | ClientError::RateLimited { .. }
        | ClientError::UnknownBlock
        | ClientError::Timeout
        | ClientError::Unavailable(_)
        | ClientError::WrongChain { .. }
        | ClientError::Refused { .. }
        | ClientError::Malformed(_) => Gravity::Outside,
    }
}

/// All that went wrong in a pass so far. A kill is none of it: it ends the settler.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<HeldUp>);

impl Errors {
    /// One more. The pass goes on unless the settler is to die.
    pub(super) fn add(&mut self, error: SettleError) -> Result<(), Killed> {
        match error {
            SettleError::Killed(killed) => Err(killed),
            error => {
                self.0.push(HeldUp { gravity: error.gravity(), why: error.to_string() });
                Ok(())
            }
        }
    }

    /// What a part of the pass came to.
    pub(super) fn take(&mut self, outcome: Result<(), SettleError>) -> Result<(), Killed> {
        outcome.or_else(|error| self.add(error))
    }

    /// What they hold up.
    pub(super) fn into_held_up(self) -> Vec<HeldUp> {
        self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::chain::checkpoint::Step;
    use payferry_evm::pace::gather;

    fn item() -> SettleError {
        SettleError::Item { what: "the receipt of 0x01".to_owned(), why: "it has no block".to_owned() }
    }

    #[test]
    fn all_errors_of_a_pass_are_kept_and_a_kill_ends_it() {
        let mut errors = Errors::default();
        errors.take(Ok(())).unwrap();
        errors.add(item()).unwrap();
        errors.take(Err(ClientError::Timeout.into())).unwrap();
        errors.add(AboveCeiling { asked_wei: 2, ceiling_wei: 1 }.into()).unwrap();
        errors.add(JournalError::Conflict.into()).unwrap();
        let gravities: Vec<_> = errors.0.iter().map(|error| error.gravity).collect();
        assert_eq!(gravities, [Gravity::Item, Gravity::Outside, Gravity::Item, Gravity::Overtaken]);
        assert_eq!(errors.0[0].why, "the receipt of 0x01: it has no block");
        assert_eq!(gather(errors.0.clone()).unwrap().why, ClientError::Timeout.to_string());
        let killed = Killed(Step::Mined);
        assert_eq!(errors.add(killed.into()).unwrap_err(), killed);
        assert_eq!(errors.0.len(), 4);
    }

    #[test]
    fn what_is_about_one_unit_or_one_account_is_told_from_what_is_about_all() {
        let all: [(SettleError, Gravity); 8] = [
            (JournalError::Refused("a value".to_owned()).into(), Gravity::Item),
            (JournalError::Unavailable("away".to_owned()).into(), Gravity::Own),
            (JournalError::Busy.into(), Gravity::Own),
            (SignerError::Refused.into(), Gravity::Item),
            (ClientError::InsufficientFunds.into(), Gravity::Item),
            (ClientError::RateLimited { retry_after: None }.into(), Gravity::Outside),
            (ClientError::Malformed("no fees".to_owned()).into(), Gravity::Outside),
            (SettleError::Row("a sender is malformed"), Gravity::Item),
        ];
        for (error, gravity) in all {
            assert_eq!(error.gravity(), gravity, "{error}");
        }
    }
}
