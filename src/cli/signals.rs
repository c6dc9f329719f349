//! What asks a process to end: once in order, twice at once.

use std::future::{Future, pending};
use std::pin::Pin;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code after a second signal, as a shell gives it for SIGINT.
const INTERRUPTED: i32 = 130;

/// SIGINT and SIGTERM, listened for from the moment this is made.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Ends when something else asks, once.
    other: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate?, other: Box::pin(pending()) })
    }

    /// The same, and the end of standard input: a process that was started by another one for itself ends with it.
    #[cfg(feature = "sandbox")]
    pub(super) fn and_end_of_stdin() -> std::io::Result<Self> {
        let (end, ended) = tokio::sync::oneshot::channel();
        // A thread of its own: reading standard input cannot be cancelled.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            let _ = end.send(());
        })?;
        let ended = async {
            if ended.await.is_err() {
                pending::<()>().await;
            }
        };
        Ok(Self { other: Box::pin(ended), ..Self::new()? })
    }

    /// The next of either.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = &mut self.other => self.other = Box::pin(pending()),
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
