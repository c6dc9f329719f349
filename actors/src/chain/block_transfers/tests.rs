//! Owners of wallets are found while their payments end and become live again.
#![allow(clippy::unwrap_used)]

#[path = "../../../../crates/journal/fixtures/payments.rs"]
mod env;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use payferry_domain::payment::{Command, ObservedTransfer, Presence};
use sea_orm::DbBackend;
use tokio_util::sync::CancellationToken;

use super::*;
use env::{Env, observed};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn finds_a_wallet_while_its_payment_ends_and_becomes_live() {
    let env = Env::new().await;
    if env.database.backend() != DbBackend::Sqlite {
        return;
    }
    let (watchlist, stop) = (Watchlist::default(), CancellationToken::new());
    watchlist.set_whole();
    let initiated = env.initiated().await;
    let (wallet, id) = (initiated.terms.wallet, initiated.id());
    watchlist.watch(wallet, id);
    let looking: Vec<_> = (0..3)
        .map(|_| {
            let (database, watchlist, stop) = (env.database.clone(), watchlist.clone(), stop.clone());
            tokio::spawn(async move {
                let mut looks = 0;
                while !stop.is_cancelled() {
                    let owners = owners(&database, &watchlist, vec![wallet]).await.unwrap();
                    assert_eq!(owners.get(&wallet), Some(&id), "after {looks} looks");
                    looks += 1;
                    // A watched wallet is found without waiting.
                    tokio::task::yield_now().await;
                }
                looks
            })
        })
        .collect();
    // Alternates between ended and live again, through late transfers that are reorged; watched as `Router` does it.
    let mut payment = env.notified(&initiated, &Command::Cancel).await;
    for round in 0..80 {
        assert!(!payment.is_live());
        watchlist.retire(wallet);
        watchlist.unwatch(&watchlist.retired(Instant::now(), 1), &HashSet::new());
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        watchlist.watch(wallet, id);
        payment = env.notified(&payment, &Command::ObserveTransfer(observed(2 * round + 1))).await;
        assert!(payment.is_live());
        let orphaned = ObservedTransfer { presence: Presence::Orphaned, ..observed(2 * round + 2) };
        payment = env.notified(&payment, &Command::ObserveTransfer(orphaned)).await;
    }
    stop.cancel();
    for looks in looking {
        assert!(looks.await.unwrap() > 0);
    }
}
