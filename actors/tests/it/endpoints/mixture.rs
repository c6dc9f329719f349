//! Random combination: endpoints with all faults, reorgs, and payments throughout.

use std::time::Duration;

use payferry_devchain::Dropped;
use payferry_domain::payment::Payment;
use payferry_harness::endpoint::{Fault, ReportedHead, What};
use payferry_harness::short_or_long;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::behind;
use crate::env::senses::{Senses, metric};
use crate::env::{Coin, Env, Options};

const ROUNDS: usize = 25;
const ROUNDS_SHORT: usize = 10;
const REORG_DEPTH_MAX: u64 = 6;

fn fault(dice: &mut StdRng, env: &Env, victim: &Payment) -> Fault {
    let logs = ["eth_getLogs"];
    let fault = match dice.random_range(0..17) {
        0 => Fault::of(What::Closed),
        1 => Fault::of(What::Slow(Duration::from_millis(400))),
        2 => Fault::of(What::Status(429, None)),
        3 => Fault::of(What::Status(429, Some(1))),
        4 => Fault::of(What::Status(502, None)),
        5 => Fault::of(What::Error(-32_603, "internal error")),
        6 => Fault::of(What::Garbage),
        7 => Fault::of(What::Truncated),
        8 => Fault::of(What::NoBatches),
        9 => Fault::of(What::RangeMax(3, -32_005, "query returned more than 10000 results")),
        10 => Fault::of(What::MissingLogs(1)).on(logs),
        11 => Fault::of(What::MissingLogs(2)).on(logs),
        12 => Fault::of(What::DuplicateLogs).on(logs),
        13 => {
            let what =
                What::ForgedLog { contract: env.chain().coin(Coin::Usdc), to: victim.terms.wallet, units: 10_000_000 };
            Fault::of(what).on(logs)
        }
        14 => Fault::of(What::ChainId(1)),
        15 => Fault::of(What::Head(ReportedHead::Alternating(0, dice.random_range(1..9)))),
        _ => Fault::of(What::NullBlocks),
    };
    fault.one_in(dice.random_range(1..4))
}

async fn mixture(seed: u64, endpoints: usize) {
    let options = behind(endpoints).tweaked(|spec| spec.second_look_blocks = 20);
    let options = Options { timeout: Duration::from_secs(2), senses: Senses::Shared, ..options };
    let env = Env::with(options).await;
    let mut dice = StdRng::seed_from_u64(seed);
    // Never paid.
    let victim = env.initiate("10").await;
    let mut paid = Vec::new();
    for round in 0..short_or_long(ROUNDS_SHORT, ROUNDS) {
        for (index, endpoint) in (0_u64..).zip(&env.chain().endpoints) {
            endpoint.seed(seed.wrapping_add(index));
            let faults = dice.random_range(0..3);
            endpoint.show((0..faults).map(|_| fault(&mut dice, &env, &victim)).collect::<Vec<_>>());
        }
        for _ in 0..dice.random_range(1..4) {
            // No payments are created while the chain is unreadable.
            if let Ok(payment) = env.try_initiate(env.chain().chain, 1_200).await {
                env.pay(&payment, "10").await;
                paid.push(payment);
            }
        }
        env.chain().blocks(dice.random_range(1..12)).await;
        if dice.random_range(0..4) == 0 {
            let depth = dice.random_range(1..=REORG_DEPTH_MAX);
            env.chain().reorg(depth, Dropped::Remine).await;
        }
        if round % 8 == 7 {
            env.endpoint().close_connections().await;
            env.chain().blocks(5).await;
            env.endpoint().listen_again().await;
        }
    }
    assert!(!paid.is_empty());
    for endpoint in &env.chain().endpoints {
        endpoint.behave();
    }
    env.until_read_again().await;
    env.until_settled(&paid).await;
    let state = env.load(victim.id()).await;
    assert!(state.transfers.iter().all(|transfer| !transfer.counted), "{state:#?}");
    assert_eq!(state.status, payferry_domain::payment::Status::Pending);
    env.assert_true_to_chain(&paid).await;
    let settled = paid.len();
    paid.push(victim);
    env.assert_balances(&paid, settled).await;
    assert!(metric("payferry_chain_request_errors_total", &["chain=base"]) > 0);
}

cases! {
    #[tokio::test(flavor = "multi_thread")]

    mixed_errors_of_one_endpoint => mixture(1, 1);
    mixed_errors_of_one_endpoint_with_another_seed => mixture(2, 1);
    mixed_errors_of_two_endpoints => mixture(3, 2);
    mixed_errors_of_three_endpoints => mixture(4, 3);
}
