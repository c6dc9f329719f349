//! Places between the steps of a settlement where a test can make the settler die.

/// What has just been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A batch was chosen; nothing is signed.
    Batched,
    /// It is signed, and nobody knows.
    Signed,
    /// It is stored, and not sent.
    Stored,
    /// It is sent.
    Broadcast,
    /// Its receipt was seen; nothing of it is recorded.
    Mined,
    /// What became of it is recorded; nobody was told.
    Recorded,
    /// The payment was told.
    Told,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Self; 7] =
        [Self::Batched, Self::Signed, Self::Stored, Self::Broadcast, Self::Mined, Self::Recorded, Self::Told];
}

/// The settler is to die here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("killed after {0:?}")]
pub struct Killed(pub Step);

/// Asked after each step. The default never kills.
pub trait Checkpoint: Send + Sync + 'static {
    /// An error makes the actor fail at once, as a crash would.
    fn reached(&self, step: Step) -> Result<(), Killed> {
        let _ = step;
        Ok(())
    }
}

/// Never kills.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCheckpoint;

impl Checkpoint for NoCheckpoint {}
