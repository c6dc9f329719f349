//! An endpoint on a branch of its own, which returns blocks, logs and receipts that agree with each other.

use payferry_devchain::Devchain;
use payferry_domain::{Amount, Chain, Finality};
use payferry_evm::ChainClient;

use super::env::Env;
use crate::env::chain_config;

/// Amount from which two endpoints must agree, in base units.
const LARGE: u64 = 10_000_000;

#[tokio::test]
async fn transfer_of_a_forging_endpoint_is_held_and_confirmed_once_two_endpoints_agree() {
    let mut env = Env::new().await;
    env.spec.agree_from = Amount::from_tokens(10);
    // The watcher reads the first endpoint. The second one has other blocks.
    let other = Devchain::open(chain_config(Chain::Base)).await.unwrap();
    other.mine(200).await.unwrap();
    env.watch_with(env.client().or(ChainClient::new(other.transport()))).await;
    let (large, small) = (env.payment().await, env.payment().await);
    env.pay(large, LARGE).await;
    env.pay(small, LARGE - 1).await;
    env.read_all().await;
    for payment in [large, small] {
        env.await_finality(payment, &env.inbox.observed(payment)[0], Finality::Blocks(2));
    }
    env.mine_and_read(3).await;
    env.until("the small one is final", async || env.inbox.finalised(small) == 1).await;
    env.until("the large one is held", async || !env.watchlist.held(Chain::Base).is_empty()).await;
    let held = env.watchlist.held(Chain::Base);
    assert_eq!((held.len(), held[0].payment_id), (1, large));
    assert_eq!(held[0].reason, "endpoint 1 contradicts it: its block has another hash");
    env.mine_and_read(20).await;
    assert_eq!(env.inbox.finalised(large), 0);

    env.stop_watcher().await;
    env.watch_with(env.client().or(env.client())).await;
    env.until("the large one is final", async || env.inbox.finalised(large) == 1).await;
    assert!(env.watchlist.held(Chain::Base).is_empty());
}
