//! Shutdown signals: one stops the process gracefully, and the next one during the stop ends it at once.

use std::future::{Future, pending};
use std::pin::Pin;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code after a signal during the stop: the shell's code for SIGINT.
const INTERRUPTED: i32 = 130;

/// SIGINT and SIGTERM, received from the creation of this value on.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// An additional shutdown request; completes at most once.
    other: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate?, other: Box::pin(pending()) })
    }

    /// Also treats the end of standard input as a signal: a process started by a parent ends with the parent.
    #[cfg(feature = "sandbox")]
    pub(super) fn and_end_of_stdin() -> std::io::Result<Self> {
        let (end, ended) = tokio::sync::oneshot::channel();
        // A separate thread: reading standard input cannot be cancelled.
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

    /// Waits for the next signal. The end of standard input counts as SIGINT.
    pub(super) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            () = &mut self.other => {
                self.other = Box::pin(pending());
                SignalKind::interrupt()
            }
        }
    }

    /// Makes the next signal end the process at once.
    pub(super) fn end_at_next(mut self) {
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(INTERRUPTED);
        });
    }
}
