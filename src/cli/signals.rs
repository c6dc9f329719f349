//! What asks a process to end: once in order, twice at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code after a second signal, as a shell gives it for SIGINT.
const INTERRUPTED: i32 = 130;

/// SIGINT and SIGTERM, listened for from the moment this is made.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate? })
    }

    /// The next of either.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// From here on, the next signal ends the process at once.
    pub(super) fn end_at_next(mut self) {
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(INTERRUPTED);
        });
    }
}
