//! Database failures during work: unreachable, silent, locked, full, or disconnected within a commit.
//!
//! Each test has the same steps: a steady load on a service in this process, a fault, and its end. During the fault,
//! requests are refused with 503 and Retry-After, and no success is reported wrongly. Within seconds after its end,
//! requests succeed again without a restart. Afterwards everything acknowledged exists once, settled and announced.

mod commits;
mod disk;
mod fixture;
mod gone;
mod held;
mod load;

use std::time::{Duration, Instant};

use fixture::Fixture;
use load::Load;

/// Time for which the load runs after a fault.
const CALM: Duration = Duration::from_secs(2);
/// Payments created before a fault.
const WARM_UP: usize = 12;
/// Maximum time after a fault until requests succeed again, in addition to the longest request without a fault.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

/// Runs the test steps with a fault of this duration.
async fn story<F>(
    fixture: Fixture,
    name: &str,
    lasting: Duration,
    begin: impl AsyncFnOnce(&Fixture) -> F,
    end: impl AsyncFnOnce(&Fixture, F),
) {
    let mut load = Load::start(&fixture);
    load.until_made(WARM_UP).await;
    let usual = load.slowest();

    let began = Instant::now();
    let fault = begin(&fixture).await;
    load.until_refused(began).await;
    fixture.until_ready(false).await;
    tokio::time::sleep(lasting.saturating_sub(began.elapsed())).await;
    let ended = Instant::now();
    end(&fixture, fault).await;

    let recovered = load.until_made_since(ended).await;
    fixture.until_ready(true).await;
    tokio::time::sleep(CALM).await;
    let made = load.stop().await;
    println!(
        "{name} for {:.1?}: recovered within {recovered:.2?} (a request took up to {usual:.2?} before), {} payments, {} \
         refusals",
        ended - began,
        made.made.len(),
        made.refused,
    );
    assert!(recovered <= RECOVERY_MAX + usual, "{name}: no success for {recovered:?} after the end");
    fixture.check(&made).await;
    fixture.stop().await;
}
