use std::time::{SystemTime, UNIX_EPOCH};

use payferry_devchain::{ChainConfig, Mining};

use crate::env::{Env, config, payee, quantity};

#[tokio::test]
async fn advancing_leaves_no_gap_wider_than_requested() {
    let since = std::time::Instant::now();
    let env = Env::new().await;
    let start = env.chain.head();
    let hash = env.transfer(payee(1), 1).await;
    let head = env.chain.advance_time(3_605, 10).await.unwrap();
    // The clock continues meanwhile, longer on a busy machine.
    let elapsed = || since.elapsed().as_secs() + 2;
    let advanced = head.timestamp - start.timestamp;
    assert!((3_605..=3_605 + elapsed()).contains(&advanced), "{advanced}");
    assert_eq!(head.number, start.number + 361);
    assert_eq!(env.receipt(hash).await.unwrap().block_number, Some(start.number + 1));
    let mut parent = start;
    for number in start.number + 1..=head.number {
        let block = env.block(number).await;
        let timestamp = quantity(&block["timestamp"]);
        assert!(timestamp >= parent.timestamp && timestamp - parent.timestamp <= 10 + elapsed(), "block {number}");
        parent.timestamp = timestamp;
    }
    assert_eq!(env.chain.time_offset_secs(), 3_605);
    let next = env.chain.mine(1).await.unwrap()[0];
    assert!(next.timestamp - head.timestamp <= elapsed());
}

#[tokio::test]
async fn a_time_jump_is_one_gap() {
    let env = Env::new().await;
    let start = env.chain.head();
    let head = env.chain.jump_time(600).await.unwrap();
    assert_eq!(head.number, start.number + 1);
    assert!((600..660).contains(&(head.timestamp - start.timestamp)));
}

#[tokio::test]
async fn timestamps_never_decrease_with_fast_blocks() {
    let mining = Mining::Interval(std::time::Duration::from_millis(5));
    let chain = payferry_devchain::Devchain::open(ChainConfig { mining, ..config() }).await.unwrap();
    let mut heads = chain.heads();
    let mut last = chain.head();
    while last.number < 100 {
        heads.changed().await.unwrap();
        let head = *heads.borrow_and_update();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(head.timestamp >= last.timestamp && head.timestamp <= now);
        last = head;
    }
}
