//! `GET /readyz`: reports to load balancers if this node takes new requests: 200 or 503, without details. The operator's
//! route of the same name has the reasons.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::state::AppState;

/// Time for which a result is reused, because anyone may send any number of these requests and each result is read from
/// the database.
const READINESS_AGE_MAX: Duration = Duration::from_secs(1);

/// The last result and its time.
#[derive(Default)]
pub(super) struct LastReadiness(Mutex<Option<(bool, Instant)>>);

impl LastReadiness {
    /// Returns a result that is not older than [`READINESS_AGE_MAX`]. Concurrent calls share one read.
    async fn or_read(&self, read: impl Future<Output = bool>) -> bool {
        let mut last = self.0.lock().await;
        match *last {
            Some((is_ready, at)) if at.elapsed() < READINESS_AGE_MAX => is_ready,
            _ => {
                let is_ready = read.await;
                *last = Some((is_ready, Instant::now()));
                is_ready
            }
        }
    }
}

pub(super) async fn serve(State(app): State<AppState>) -> impl IntoResponse {
    let draining = &app.config.draining;
    // The drain takes effect at once, whatever the last result is.
    let read = async { payferry_operator::readiness(&app.system, draining).await.ready };
    let is_ready = !draining.has_begun() && app.readiness.or_read(read).await;
    (if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, [(CACHE_CONTROL, "no-store")])
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn state_is_read_once_a_second_at_most() {
        let (last, reads) = (LastReadiness::default(), Cell::new(0));
        let read = async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            reads.set(reads.get() + 1);
            reads.get() > 1
        };
        let both = tokio::join!(last.or_read(read()), last.or_read(read()));
        assert_eq!((both, reads.get()), ((false, false), 1));
        tokio::time::sleep(READINESS_AGE_MAX.saturating_sub(Duration::from_millis(1))).await;
        assert!(!last.or_read(read()).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(last.or_read(read()).await);
        assert_eq!(reads.get(), 2);
    }
}
