//! A transfer of a large payment counts only when two endpoints agree on it.

use payferry_domain::Amount;
use payferry_domain::payment::Status;
use payferry_harness::endpoint::{Fault, ReportedHead, What};

use super::behind;
use crate::env::Env;
use crate::env::senses::{logged_times, metric};

/// Tests that a large payment waits while the second endpoint has this fault, and a smaller one does not.
async fn is_held(fault: impl FnOnce(&Env) -> Fault, reason: &str) {
    let env = Env::with(behind(2).tweaked(|spec| spec.agree_from = Amount::from_tokens(10))).await;
    env.chain().endpoints[1].show([fault(&env)]);
    let (large, small) = (env.initiate("10").await, env.initiate("9").await);
    env.pay(&large, "10").await;
    env.pay(&small, "9").await;
    env.until_status(small.id(), Status::Settled).await;
    let held = || env.system().chains().held_transfers();
    env.until("it is held", async || !held().is_empty()).await;
    assert_eq!((held().len(), held()[0].payment_id), (1, large.id()));
    assert!(held()[0].reason.contains(reason), "{:?}", held());
    env.until("it is an alarm", async || metric("payferry_chain_held_transfers", &["chain=base"]) == 1).await;
    env.chain().blocks(20).await;
    assert_eq!(env.load(large.id()).await.status, Status::Pending);

    env.chain().endpoints[1].behave();
    env.until_status(large.id(), Status::Settled).await;
    assert!(held().is_empty());
    assert_eq!(metric("payferry_chain_held_transfers", &["chain=base"]), 0);
    assert_eq!(metric("payferry_chain_disagreements_total", &["chain=base"]), 1);
    let words = ["a transfer is held until two endpoints of base agree on it", &large.id().to_string()];
    assert_eq!(logged_times(&words), 1);
    env.assert_true_to_chain(&[large, small]).await;
}

cases! {
    #[tokio::test(flavor = "multi_thread")]

    large_payment_waits_for_an_endpoint_that_is_away => is_held(|_| Fault::of(What::Closed), "endpoint 1 does not confirm it");
    large_payment_waits_for_an_endpoint_that_lags =>
        is_held(|env| Fault::of(What::Head(ReportedHead::At(env.view().read_number))), "does not know the block");
}
