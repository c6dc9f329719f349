//! The database fails in the middle of the work: gone, silent, held, full, or cut off within a commit.
//!
//! Each test is the same story: a steady load on a service in this process, a fault, its end. While it lasts, requests
//! are refused with 503 and Retry-After, and none is answered with a success that is none; within seconds after its end
//! they succeed again, without a restart; and when the load is over everything that was acknowledged is there once,
//! settled and told.

mod commits;
mod disk;
mod gone;
mod held;
mod load;
mod site;

use std::time::{Duration, Instant};

use load::Load;
use site::Site;

/// How long the load runs after a fault.
const CALM: Duration = Duration::from_secs(2);
/// Payments made before a fault.
const WARM_UP: usize = 12;
/// How long after a fault requests succeed again; what a request took here without a fault comes on top.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

/// The story around a fault of this length.
async fn story<F>(
    site: Site,
    name: &str,
    lasting: Duration,
    begin: impl AsyncFnOnce(&Site) -> F,
    end: impl AsyncFnOnce(&Site, F),
) {
    let mut load = Load::start(&site);
    load.until_made(WARM_UP).await;
    let usual = load.slowest();

    let began = Instant::now();
    let fault = begin(&site).await;
    load.until_refused(began).await;
    site.until_ready(false).await;
    tokio::time::sleep(lasting.saturating_sub(began.elapsed())).await;
    let ended = Instant::now();
    end(&site, fault).await;

    let recovered = load.until_made_since(ended).await;
    site.until_ready(true).await;
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
    site.check(&made).await;
    site.stop().await;
}
