//! Endpoints that lag, lie, refuse or limit. The cursor never passes blocks that were not read.

use payferry_devchain::{Devchain, Faults};
use payferry_domain::Chain;
use payferry_domain::payment::Presence;
use payferry_evm::ChainClient;

use super::env::Env;
use crate::env::chain_config;

/// Pays during the faults, checks the effect (`reads_on`), ends the faults, and waits for the money.
async fn survives(env: &Env, name: &str, faults: Faults, reads_on: bool) {
    env.mine_and_read(6).await;
    let (payment, transfers) = (env.payment().await, env.transfers().await.len());
    env.devchain.set_faults(faults);
    let before = env.watcher_report().await.read_number;
    env.pay(payment, 5).await;
    if reads_on {
        env.read_all().await;
        assert_eq!(env.inbox.observed(payment).len(), 1, "{name}");
        assert_eq!(env.watcher_report().await.degraded_reason, None, "{name}");
    } else {
        env.until(&format!("{name}: an error"), async || env.watcher_report().await.degraded_reason.is_some()).await;
        let failures = env.watcher_report().await.failures;
        env.until(&format!("{name}: again"), async || env.watcher_report().await.failures > failures).await;
        let report = env.watcher_report().await;
        assert_eq!((report.read_number, report.blocks_orphaned), (before, 0), "{name}");
        assert!(env.inbox.observed(payment).is_empty(), "{name}");
    }
    env.devchain.set_faults(Faults::default());
    env.read_all().await;
    let facts: Vec<_> = env.inbox.observed(payment).iter().map(|fact| (fact.presence, fact.revision)).collect();
    assert_eq!(facts, [(Presence::Present, 1)], "{name}");
    assert_eq!(env.transfers().await.len(), transfers + 1, "{name}");
}

#[tokio::test]
async fn watcher_survives_each_fault() {
    let env = Env::watching().await;
    let none = Faults::default;
    for (name, faults, reads_on) in [
        ("lagging node causes no reorg", Faults { head_lag_blocks: 5, ..none() }, false),
        ("omitted logs are found through receipts", Faults { empty_logs_rate: 1.0, ..none() }, true),
        ("logs of another block are rejected", Faults { stale_log_rate: 1.0, ..none() }, false),
        ("duplicate log counts once", Faults { duplicate_log_rate: 1.0, ..none() }, true),
        ("watcher waits out rate limits", Faults { rate_limited_rate: 1.0, ..none() }, false),
        ("watcher waits out errors", Faults { error_rate: 1.0, ..none() }, false),
        ("watcher waits out lost answers", Faults { lost_answer_rate: 1.0, ..none() }, false),
    ] {
        survives(&env, name, faults, reads_on).await;
    }
}

#[tokio::test]
async fn range_limit_halves_the_step_and_skips_nothing() {
    for code in [-32_005, -32_602, -32_614] {
        let mut env = Env::new().await;
        // With one recent block, almost everything is requested by range.
        env.spec.recent_blocks = 1;
        let payments = env.payments(4).await;
        for payment in &payments {
            env.mine(30).await;
            env.pay(*payment, 5).await;
        }
        env.devchain.set_faults(Faults { logs_range_blocks_max: 7, logs_range_error_code: code, ..Faults::default() });
        env.watch().await;
        env.read_all().await;
        assert!(payments.iter().all(|payment| env.inbox.observed(*payment).len() == 1));
        let report = env.watcher_report().await;
        assert_eq!(report.read_number, Some(env.devchain.head().number));
        assert!(report.step_blocks < 20, "{report:?}");
    }
}

#[tokio::test]
async fn another_endpoint_takes_over_and_the_highest_head_counts() {
    let env = Env::new().await;
    // One absent endpoint, one broken endpoint, and one that works.
    let [away, broken] =
        [Faults { unavailable_rate: 1.0, ..Faults::default() }, Faults { error_rate: 1.0, ..Faults::default() }].map(
            async |faults| {
                let chain = Devchain::open(chain_config(Chain::Base)).await.unwrap();
                chain.set_faults(faults);
                chain
            },
        );
    let (away, broken) = (away.await, broken.await);
    let client = ChainClient::new(away.transport()).or(ChainClient::new(broken.transport())).or(env.client());
    env.watch_with(client.clone()).await;
    let payment = env.payment().await;
    env.pay(payment, 5).await;
    env.read_all().await;
    assert_eq!(env.inbox.observed(payment).len(), 1);
    env.stop_watcher().await;

    // An endpoint that answers but has stayed at its genesis.
    let behind = Devchain::open(chain_config(Chain::Base)).await.unwrap();
    let client = ChainClient::new(behind.transport()).or(env.client());
    let head = env.devchain.head().number;
    for floor in [head, head + 1] {
        assert_eq!(client.heads(true, true, None, floor).await.unwrap().latest.number, head);
    }
}
