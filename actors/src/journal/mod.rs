//! The group-commit writer: every write of the payment side goes through it, as typed units.

mod unit;

pub use unit::{
    AppliedTransfer, ChainBatch, ChainTxOutcome, DeliveryOutcome, Initiation, NewEvent, OperationChange,
    OperationOutcome, Receipt, SignedOperation, Submission, Transition, Unit,
};

use tokio::sync::{mpsc, oneshot};

/// Why a unit was not written, or not known to be.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// A gate was lost: somebody else moved the row (version, cursor, nonce, operation). Reload and decide again.
    #[error("the row has moved on")]
    Conflict,
    /// The idempotency key is taken: read the answer kept with it.
    #[error("the idempotency key was used before")]
    IdempotencyKeyTaken,
    /// The queue is full; nothing was written.
    #[error("the journal's queue is full")]
    Busy,
    /// The database is away or refused; nothing was written.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The commit was sent and no answer came: it may or may not have happened. Reload.
    #[error("the outcome of the commit is unknown: {0}")]
    Unknown(String),
    /// This unit alone is bad (a constraint, a value the database refuses); nothing of it was written.
    #[error("the database refused the unit: {0}")]
    Refused(String),
}

/// A unit on its way, with the place its answer goes.
pub(crate) type Submitted = (Unit, oneshot::Sender<Result<Receipt, JournalError>>);

/// Handle to the journal. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Journal {
    transitions: mpsc::Sender<Submitted>,
    initiations: mpsc::Sender<Submitted>,
}

impl Journal {
    /// Writes `unit` and answers after its commit.
    pub async fn submit(&self, unit: Unit) -> Result<Receipt, JournalError> {
        let (answer, answered) = oneshot::channel();
        let queue = match unit {
            Unit::Initiation(_) => &self.initiations,
            _ => &self.transitions,
        };
        queue
            .send((unit, answer))
            .await
            .map_err(|_| JournalError::Unavailable("the journal has stopped".to_owned()))?;
        answered
            .await
            .unwrap_or_else(|_| Err(JournalError::Unknown("the journal stopped before it answered".to_owned())))
    }
}
