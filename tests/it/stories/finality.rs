//! Finality depends on the amount and on the node's answers.

use crate::prelude::*;
use crate::stage::{Serve, Stage, Transfer, story_on, until_block};

/// More blocks than either node needs for `finalized`.
const BLOCKS_MAX: u64 = 30;

/// A small amount waits for two blocks, a larger one for `safe`, the largest for `finalized`.
async fn depends_on_the_amount<const IS_ANVIL: bool>() {
    let tiers = toml::toml! {
        finality = [{ below = "1000", wait = 2 }, { below = "50000", wait = "safe" }, { wait = "finalized" }]
    };
    let stage = Serve::<IS_ANVIL>::start_with(|settings| {
        for (_, chain) in settings["chains"].as_table_mut().unwrap() {
            chain["finality"] = tiers["finality"].clone();
        }
    });
    let (stage, psp) = story_on(stage.await).await;
    let (chain, tags) = (Chain::Arbitrum, ["latest", "safe", "finalized"]);
    let mut waiting = Vec::new();
    for (amount, tag) in ["999", "1000", "50000"].into_iter().zip(tags) {
        waiting.push((psp.payment(amount, Token::Usdc, chain).await, tag));
    }
    let node = stage.node(chain);
    node.pause_mining().await;
    for (id, _) in &waiting {
        stage.pay(id, Transfer::exact()).await;
    }
    node.mine(1).await;
    let paid_in = node.head().await.number;

    let mut blocks_waited = Vec::new();
    for blocks in 1..=BLOCKS_MAX {
        node.mine(1).await;
        until_block(&stage, chain, node.head().await.number).await;
        let mut still = Vec::new();
        for (id, tag) in waiting {
            let at_tag = node.rpc("eth_getBlockByNumber", json!([tag, false])).await;
            let at_tag = u64::from_str_radix(at_tag["number"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
            if at_tag >= paid_in {
                psp.until(&id, "confirmed", |payment| payment["status"] != "pending").await;
                blocks_waited.push((tag, blocks));
            } else {
                assert_eq!(psp.read(&id).await["status"], "pending", "{tag} after {blocks} blocks");
                still.push((id, tag));
            }
        }
        waiting = still;
    }
    assert!(waiting.is_empty(), "not final in time: {waiting:?}");
    let [("latest", 1), ("safe", safe), ("finalized", finalized)] = blocks_waited[..] else {
        panic!("in another order: {blocks_waited:?}");
    };
    // Both nodes have `safe` 5 blocks behind and `finalized` 10; on the devchain both also wait for a jump.
    assert!(safe >= 5 && finalized >= 10 && (!IS_ANVIL || (safe, finalized) == (5, 10)), "{blocks_waited:?}");
    stage.stop().await;
}

mod by_amount {
    #[tokio::test(flavor = "multi_thread")]
    async fn on_devchain() {
        super::depends_on_the_amount::<false>().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn on_anvil() {
        super::depends_on_the_amount::<true>().await;
    }
}
