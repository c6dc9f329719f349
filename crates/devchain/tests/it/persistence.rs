use std::path::{Path, PathBuf};

use alloy::primitives::U256;
use payferry_devchain::{ChainConfig, Devchain, DevchainOpenError, Dropped, Mining};
use serde_json::json;
use tempfile::TempDir;

use crate::env::{Env, config, on_disk, payee};

fn at(path: &Path) -> ChainConfig {
    ChainConfig { path: Some(path.into()), ..config() }
}

/// Copies the file, as a `kill -9` at this moment would leave it.
fn killed(path: &Path, name: &str) -> PathBuf {
    let copy = path.with_file_name(name);
    std::fs::copy(path, &copy).unwrap();
    copy
}

async fn started() -> (TempDir, PathBuf, Env) {
    let (folder, config) = on_disk();
    let path = config.path.clone().unwrap();
    (folder, path, Env::with(config).await)
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let (_folder, path, env) = started().await;
    let paid = env.pay(payee(1), 10).await;
    env.pay(payee(2), 20).await;
    env.chain.reorg(1, Dropped::Remine).await.unwrap();
    env.chain.set_balance(payee(3), U256::from(33)).await.unwrap();
    env.chain.advance_time(100, 10).await.unwrap();
    env.chain.jump_time(50).await.unwrap();
    let waiting = env.transfer(payee(4), 40).await;
    let head = env.chain.head();
    let logs = env.logs(&env.transfers().select(0..)).await;

    let copy = killed(&path, "killed.chain");
    env.chain.close().await;
    for path in [path, copy] {
        let again = Env::with(at(&path)).await;
        assert_eq!(again.chain.head(), head);
        assert_eq!(again.chain.time_offset_secs(), 150);
        assert_eq!(again.receipt(paid.transaction_hash).await.unwrap(), paid);
        assert_eq!(again.logs(&again.transfers().select(0..)).await, logs);
        assert_eq!(again.token_balance(payee(2), "latest").await, 20);
        assert_eq!(again.balance(payee(3)).await, 33);
        again.chain.mine(1).await.unwrap();
        assert!(again.receipt(waiting).await.unwrap().status());
        again.chain.reorg(3, Dropped::Discard).await.unwrap();
        assert_eq!(again.token_balance(payee(4), "latest").await, 0);
        let head = again.chain.head();
        drop(again);
        assert_eq!(Devchain::open(at(&path)).await.unwrap().head(), head);
    }
}

#[tokio::test]
async fn an_incomplete_record_at_the_end_is_cut_off() {
    let (folder, path, env) = started().await;
    env.pay(payee(1), 1).await;
    let length_before = std::fs::metadata(&path).unwrap().len();
    let head_before = env.chain.head();
    env.chain.mine(1).await.unwrap();
    let head_after = env.chain.head();
    let bytes = std::fs::read(&path).unwrap();
    for length in length_before..=bytes.len() as u64 {
        let torn = folder.path().join("torn.chain");
        std::fs::write(&torn, &bytes[..usize::try_from(length).unwrap()]).unwrap();
        let chain = Devchain::open(at(&torn)).await.unwrap();
        let whole = length == bytes.len() as u64;
        assert_eq!(chain.head(), if whole { head_after } else { head_before });
        chain.mine(1).await.unwrap();
        let head = chain.head();
        drop(chain);
        assert_eq!(Devchain::open(at(&torn)).await.unwrap().head(), head);
    }
    // Cut before the end of the first record: an empty chain.
    for length in [0, 4, 8, 20, 50] {
        let torn = folder.path().join("young.chain");
        std::fs::write(&torn, &bytes[..length]).unwrap();
        assert_eq!(Devchain::open(at(&torn)).await.unwrap().head().number, 0);
    }
}

#[tokio::test]
async fn damage_is_distinguished_from_an_incomplete_end() {
    let (folder, path, env) = started().await;
    env.pay(payee(1), 1).await;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[200] ^= 1;
    let harmed = folder.path().join("harmed.chain");
    std::fs::write(&harmed, &bytes).unwrap();
    assert!(matches!(Devchain::open(at(&harmed)).await, Err(DevchainOpenError::Diverged { .. })));

    assert!(matches!(Devchain::open(at(&path)).await, Err(DevchainOpenError::InUse(_))));
    let other = ChainConfig { chain_id: 1, ..at(&killed(&path, "other.chain")) };
    assert!(matches!(Devchain::open(other).await, Err(DevchainOpenError::OtherChain(_))));
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, "something else entirely, not a chain file").unwrap();
    assert!(matches!(Devchain::open(at(&foreign)).await, Err(DevchainOpenError::NotAChainFile(_))));
}

/// Every acknowledged transaction is in the file at that moment, with concurrent senders and blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn acknowledged_transactions_are_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.chain");
    let mining = Mining::Interval(std::time::Duration::from_millis(3));
    let env = Env::with(ChainConfig { mining, ..at(&path) }).await;
    let mut sends = env.transfer_many(300);
    let mut answered = Vec::new();
    while answered.len() < 200 {
        answered.push(sends.join_next().await.unwrap().unwrap());
    }
    let seen = env.chain.head();
    let copy = killed(&path, "killed.chain");
    let again = Devchain::open(at(&copy)).await.unwrap();
    assert!(again.head().number >= seen.number);
    for hash in answered {
        let tx = again.call("eth_getTransactionByHash", json!([hash])).await.unwrap();
        assert!(!tx.is_null(), "{hash} was acknowledged and is lost");
    }
}
