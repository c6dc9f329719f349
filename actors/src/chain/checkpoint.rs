//! Points between the steps of a settlement or a reconciliation where a test can kill the settler, or block it until the
//! process is killed or the test lets it continue.

#[cfg(feature = "faults")]
use std::{
    io::Write as _,
    str::FromStr,
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
};

use payferry_domain::named;

/// Environment variable with the step after which the settler blocks; for tests that kill the process there.
#[cfg(feature = "faults")]
pub const HOLD_AFTER: &str = "PAYFERRY_HOLD_AFTER";
/// Environment variable with the path of a file. A blocked settler continues when the file exists.
#[cfg(feature = "faults")]
pub const HOLD_UNTIL: &str = "PAYFERRY_HOLD_UNTIL";
/// Interval of looks for this file.
#[cfg(feature = "faults")]
const HOLD_POLL: std::time::Duration = std::time::Duration::from_millis(50);

named! {
    /// Step that was just completed.
    Step, "the steps of a settlement or a reconciliation" {
        /// A batch was selected; nothing is signed.
        Batched = "batched",
        /// The transaction is signed, only in memory.
        Signed = "signed",
        /// It is stored and not sent.
        Stored = "stored",
        /// It is sent.
        Broadcast = "broadcast",
        /// Its receipt was read; nothing of it is recorded.
        Mined = "mined",
        /// The outcome is recorded; the payment is not notified.
        Recorded = "recorded",
        /// The payment is notified.
        Notified = "told",
        /// A reconciliation has posted an unknown outbound transfer.
        Posted = "posted",
    }
}

/// Error that kills the settler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("killed after {0:?}")]
pub struct Killed(pub Step);

/// Hook after each step. The default never kills.
pub trait Checkpoint: Send + Sync + 'static {
    /// An error makes the actor fail at once, like a crash.
    fn reached(&self, step: Step) -> Result<(), Killed> {
        let _ = step;
        Ok(())
    }
}

/// Checkpoint that never kills.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCheckpoint;

impl Checkpoint for NoCheckpoint {}

/// Checkpoint that blocks after a step, so that the process can be killed or overtaken exactly there.
#[cfg(feature = "faults")]
#[derive(Debug)]
pub struct HoldAfter {
    step: Step,
    /// File whose existence ends the hold. Without it, the hold never ends.
    until: Option<std::path::PathBuf>,
    /// Number of times that the step may still pass.
    passes: AtomicU32,
}

/// Error: the text is not a step or has an invalid count.
#[cfg(feature = "faults")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a step: expected one of {steps}, optionally followed by :n for its n-th time", steps = Step::ALL.map(Step::as_str).join(", "))]
pub struct NoSuchStep(String);

#[cfg(feature = "faults")]
impl FromStr for HoldAfter {
    type Err = NoSuchStep;

    /// Parses a step's name, or `name:n` for the n-th time that it is reached.
    fn from_str(text: &str) -> Result<Self, NoSuchStep> {
        let (name, time) = text.split_once(':').unwrap_or((text, "1"));
        let step = name.parse().ok();
        let passes = time.parse::<u32>().ok().and_then(|time| time.checked_sub(1));
        let found = step.zip(passes).map(|(step, passes)| Self { step, until: None, passes: passes.into() });
        found.ok_or_else(|| NoSuchStep(text.to_owned()))
    }
}

#[cfg(feature = "faults")]
impl HoldAfter {
    /// The checkpoint from [`HOLD_AFTER`] and [`HOLD_UNTIL`]; none if the first variable is not set.
    pub fn from_env() -> Result<Arc<dyn Checkpoint>, NoSuchStep> {
        match std::env::var(HOLD_AFTER) {
            Ok(text) => {
                Ok(Arc::new(Self { until: std::env::var_os(HOLD_UNTIL).map(Into::into), ..text.parse::<Self>()? }))
            }
            Err(_) => Ok(Arc::new(NoCheckpoint)),
        }
    }

    /// True if this call is the one to block.
    fn holds(&self, step: Step) -> bool {
        let used = |passes: u32| passes.checked_sub(1);
        step == self.step && self.passes.fetch_update(Ordering::AcqRel, Ordering::Acquire, used).is_err()
    }
}

#[cfg(feature = "faults")]
impl Checkpoint for HoldAfter {
    fn reached(&self, step: Step) -> Result<(), Killed> {
        if self.holds(step) {
            // Not in the log, which may be off or buffered: the test waits for this line.
            let _ = writeln!(std::io::stderr().lock(), "held after {step}");
            let hold = || {
                while !self.until.as_ref().is_some_and(|file| file.exists()) {
                    std::thread::sleep(HOLD_POLL);
                }
            };
            // The other tasks of this thread continue on another one.
            tokio::task::block_in_place(hold);
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "faults"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn holds_at_the_requested_occurrence() {
        let hold: HoldAfter = "stored".parse().unwrap();
        assert!(!hold.holds(Step::Signed) && hold.holds(Step::Stored) && hold.holds(Step::Stored));
        let third: HoldAfter = "mined:3".parse().unwrap();
        let held = [Step::Mined, Step::Stored, Step::Mined, Step::Mined, Step::Mined].map(|step| third.holds(step));
        assert_eq!(held, [false, false, false, true, true]);
    }

    #[test]
    fn parses_step_names_and_rejects_other_text() {
        for step in Step::ALL {
            assert!(step.to_string().parse::<HoldAfter>().unwrap().holds(step));
        }
        for text in ["", "sunk", "mined:0", "mined:x", "mined:", ":1"] {
            assert_eq!(text.parse::<HoldAfter>().unwrap_err(), NoSuchStep(text.to_owned()));
        }
        assert!("sunk".parse::<HoldAfter>().unwrap_err().to_string().contains("batched, signed, stored"));
    }
}
