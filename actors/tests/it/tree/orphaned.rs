//! A sent withdrawal is reorged and then rejected in the new blocks. Whichever actor dies after the reorg, its money
//! returns to the PSP once.

use std::sync::Arc;
use std::time::Duration;

use payferry_actors::chain::Step;
use payferry_devchain::Dropped;
use payferry_domain::Address;
use payferry_domain::outbound::{FailureReason, OutboundId, OutboundStatus, OutboundTransfer};
use payferry_entities::{chain_tx_attempts, events, ledger_postings, operations};
use payferry_runtime::observe::ActorKind;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;

use super::money::{TOKEN, TREASURER, balance, ended, order, order_to, settle_payments, until_outbound};
use crate::env::{Env, Options, SettlerKill};

/// An account that the token does not block.
const OTHER: Address = Address([0xbf; 20]);

/// Steps of the settler after its transaction's block is reorged, with the number of repetitions: it notices, finds the
/// transaction in another block, records that, records the contract's rejection, and reports it.
const STEPS: [(Step, usize); 5] =
    [(Step::Recorded, 1), (Step::Mined, 1), (Step::Recorded, 2), (Step::Recorded, 3), (Step::Notified, 1)];

async fn operation(env: &Env, id: OutboundId) -> Option<operations::Model> {
    let row = operations::Entity::find_by_id(id.operation().to_string());
    row.one(env.database.reader()).await.unwrap()
}

async fn until_it_is(env: &Env, id: OutboundId, status: OutboundStatus) -> OutboundTransfer {
    until_outbound(env, id, status.as_str(), |outbound| outbound.status == status).await
}

/// Sends a withdrawal and pauses mining after its block.
async fn sent(env: &Env) -> OutboundId {
    settle_payments(env, 1).await;
    env.chain().devchain.pause_mining();
    let id = order(env, "1").await.unwrap().id();
    let waiting = async || env.chain().devchain.call("txpool_status", json!([])).await.unwrap()["pending"] == "0x1";
    env.until("the transaction is in the mempool", waiting).await;
    env.mine(1).await;
    env.until_some("mined", async || operation(env, id).await.filter(|row| row.status.as_str() == "mined")).await;
    env.mine(2).await;
    until_it_is(env, id, OutboundStatus::Sent).await;
    assert_eq!((env.balance(TREASURER).await, balance(env).await), (TOKEN, (8_900_000, 0)));
    id
}

/// Reorgs the block of the withdrawal; in the new blocks the token rejects the recipient.
async fn reorg_last_blocks(env: &Env, id: OutboundId) {
    env.chain().set_blacklisted(TREASURER, true).await;
    let block = u64::try_from(operation(env, id).await.unwrap().block_number.unwrap()).unwrap();
    env.chain().reorg_from(block, Dropped::Discard).await;
    env.mine(1).await;
    env.chain().devchain.resume_mining();
    assert_eq!(env.balance(TREASURER).await, 0);
}

/// Asserts that database, ledger and chain agree, and that this remains so while another withdrawal completes: a second
/// transfer or a second notification would come before that.
async fn assert_reversed_once(env: &Env, id: OutboundId) {
    let failed = until_it_is(env, id, OutboundStatus::Failed).await;
    assert_eq!(failed.failure_reason, Some(FailureReason::SendFailed));
    assert!(failed.failure.as_deref().is_some_and(|why| why.contains("token refused")), "{failed:#?}");
    assert_eq!(balance(env).await, (9_900_000, 0));
    let later = order_to(env, "1", OTHER).await.unwrap().id();
    let later = ended(env, later).await;
    assert_eq!(later.status, OutboundStatus::Sent, "{later:#?}");
    let holdings = (env.balance(TREASURER).await, env.balance(OTHER).await, env.holdings().await.0);
    assert_eq!(holdings, (0, TOKEN, 9_900_000 - TOKEN));
    assert_eq!(balance(env).await, (9_900_000 - TOKEN, 0));
    let reader = env.database.reader();
    let postings = ledger_postings::Entity::find()
        .filter(ledger_postings::Column::Subject.eq(id.to_string()))
        .order_by_asc(ledger_postings::Column::Version)
        .all(reader)
        .await
        .unwrap();
    let postings: Vec<_> = postings
        .iter()
        .map(|line| (line.kind.as_str(), line.debit.as_str(), line.credit.as_str(), line.amount))
        .collect();
    let expected = [
        ("reserved", "psp", "in_flight", TOKEN),
        ("sent", "in_flight", "external", TOKEN),
        ("sent_reversed", "external", "psp", TOKEN),
    ];
    assert_eq!(postings, expected);
    let notified = events::Entity::find()
        .filter(events::Column::PaymentId.eq(id.to_string()))
        .order_by_asc(events::Column::Sequence)
        .all(reader)
        .await
        .unwrap();
    assert_eq!(
        notified.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(),
        ["withdraw.sent", "withdraw.failed"]
    );
    let row = operation(env, id).await.unwrap();
    assert_eq!((row.status.as_str(), row.attempts), ("cancelled", 1), "{row:?}");
    // Of the settlement, the withdrawal and the later withdrawal: the same bytes were sent again, and no others.
    let attempts = chain_tx_attempts::Entity::find().order_by_asc(chain_tx_attempts::Column::Nonce).all(reader).await;
    let nonces: Vec<i64> = attempts.unwrap().into_iter().map(|attempt| attempt.nonce).collect();
    assert_eq!(nonces, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reversed_once_wherever_the_settler_dies() {
    for (step, times) in STEPS {
        let death = Arc::new(SettlerKill::default());
        let env = Env::with(Options { checkpoint: death.clone(), ..Options::default() }).await;
        let id = sent(&env).await;
        death.arm(&vec![step; times]);
        reorg_last_blocks(&env, id).await;
        env.until(&format!("killed at {step:?} {times}"), async || death.has_killed()).await;
        assert_reversed_once(&env, id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reversed_once_when_other_actors_die() {
    let mut env = Env::new().await;
    let id = sent(&env).await;
    reorg_last_blocks(&env, id).await;
    // First the process crashes before it can have applied much; then the actors that apply it crash repeatedly.
    env.restart(false).await;
    for kind in [ActorKind::Watcher, ActorKind::OutboundSupervisor, ActorKind::Settler].into_iter().cycle().take(9) {
        env.system().inject_crash(kind);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_reversed_once(&env, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reversed_once_when_reorged_during_downtime() {
    let mut env = Env::new().await;
    let id = sent(&env).await;
    env.stop(true).await;
    reorg_last_blocks(&env, id).await;
    env.start().await;
    assert_reversed_once(&env, id).await;
}
