//! Reaction of an aggregate's actor to a failed command.

use std::error::Error;

use payferry_domain::{CommandError, TransitionError};
use payferry_journal::JournalError;
use payferry_journal::chain::rows::LoadError;
use payferry_journal::payments::StoreError;
use payferry_journal::psps::PspError;

/// Reaction of the actor to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// None: the command was rejected and the state is unchanged.
    Nothing,
    /// Reload the row soon.
    Retry,
    /// Fail: the database refused a value or a row is unreadable, which is a defect. The supervisor decides.
    Fail,
    /// Fail and stay stopped until an operator releases it: the change would violate an invariant, which is a defect.
    Quarantine,
}

/// A failed command: the reply to its caller and the reaction of the actor.
#[derive(Debug)]
pub(crate) struct Failed<R: Error + 'static> {
    pub(crate) error: CommandError<R>,
    pub(crate) recovery: Recovery,
}

impl<R: Error + 'static> Failed<R> {
    /// The command was rejected.
    pub(crate) fn refused(error: CommandError<R>) -> Self {
        Self { error, recovery: Recovery::Nothing }
    }

    /// The row does not exist.
    pub(crate) fn gone() -> Self {
        Self { error: CommandError::Unavailable("the row does not exist".to_owned()), recovery: Recovery::Fail }
    }

    /// Other writers kept changing the row.
    pub(crate) fn contended() -> Self {
        Self::unavailable(&"other writers kept changing the row")
    }

    fn unavailable(reason: &dyn std::fmt::Display) -> Self {
        Self { error: CommandError::Unavailable(reason.to_string()), recovery: Recovery::Retry }
    }
}

impl<R: Error + 'static> From<TransitionError<R>> for Failed<R> {
    fn from(error: TransitionError<R>) -> Self {
        let recovery = match error {
            TransitionError::Rejected(_) => Recovery::Nothing,
            TransitionError::Violated(_) => Recovery::Quarantine,
        };
        Self { error: error.into(), recovery }
    }
}

impl<R: Error + 'static> From<JournalError> for Failed<R> {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::IdempotencyKeyTaken => Self::refused(CommandError::IdempotencyKeyTaken),
            JournalError::InsufficientBalance => Self::refused(CommandError::InsufficientBalance),
            JournalError::AboveDailyLimit => Self::refused(CommandError::AboveDailyLimit),
            // The write may have happened: a retry could apply it twice.
            JournalError::Unknown(_) => {
                Self { error: CommandError::Unknown(error.to_string()), recovery: Recovery::Retry }
            }
            JournalError::Refused(_) => Self { recovery: Recovery::Fail, ..Self::unavailable(&error) },
            JournalError::Conflict | JournalError::LeaseLost | JournalError::Busy | JournalError::Unavailable(_) => {
                Self::unavailable(&error)
            }
        }
    }
}

impl<R: Error + 'static> From<StoreError> for Failed<R> {
    fn from(error: StoreError) -> Self {
        let recovery = match error {
            StoreError::Database(_) => Recovery::Retry,
            StoreError::Unreadable { .. } => Recovery::Fail,
        };
        Self { recovery, ..Self::unavailable(&error) }
    }
}

impl<R: Error + 'static> From<PspError> for Failed<R> {
    fn from(error: PspError) -> Self {
        Self::unavailable(&error)
    }
}

impl<R: Error + 'static> From<LoadError> for Failed<R> {
    fn from(error: LoadError) -> Self {
        Self::unavailable(&error)
    }
}

#[cfg(test)]
mod tests {
    use payferry_domain::payment::Rejection;

    use super::*;

    #[test]
    fn unknown_outcome_differs_from_errors_without_a_write() {
        let unknown = Failed::<Rejection>::from(JournalError::Unknown("cut off".to_owned())).error;
        assert!(matches!(&unknown, CommandError::Unknown(reason) if reason.contains("cut off")), "{unknown:?}");
        let away = JournalError::Unavailable("away".to_owned());
        for failed in [away.into(), JournalError::Busy.into(), Failed::gone(), Failed::<Rejection>::contended()] {
            assert!(matches!(failed.error, CommandError::Unavailable(_)), "{failed:?}");
        }
    }
}
