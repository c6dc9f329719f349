//! A sent withdrawal is reorged and then rejected in the new blocks. Whichever actor dies after the reorg, its money
//! returns to the PSP once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use payferry_actors::chain::{Checkpoint, Killed, Step};
use payferry_devchain::Dropped;
use payferry_domain::Address;
use payferry_domain::sending::{FailureReason, Sending, SendingId, SendingStatus};
use payferry_entities::{chain_tx_attempts, events, ledger_postings, operations};
use payferry_harness::PATIENCE;
use payferry_journal::outbound as sendings;
use payferry_runtime::observe::ActorKind;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;

use crate::money::{TOKEN, TREASURER, balance, earn, ended, order, order_to};
use crate::world::{Options, World};

/// An account that the token does not block.
const OTHER: Address = Address([0xbf; 20]);

/// Steps of the settler after its transaction's block is reorged, with the number of repetitions: it notices, finds the
/// transaction in another block, records that, records the contract's rejection, and reports it.
const STEPS: [(Step, u32); 5] =
    [(Step::Recorded, 1), (Step::Mined, 1), (Step::Recorded, 2), (Step::Recorded, 3), (Step::Told, 1)];

/// Kills once, at the `nth` time that the step is reached after arming.
struct KillOnce {
    step: Step,
    nth: AtomicU32,
    armed: AtomicBool,
    killed: AtomicBool,
}

impl KillOnce {
    fn new((step, nth): (Step, u32)) -> Arc<Self> {
        Arc::new(Self { step, nth: nth.into(), armed: false.into(), killed: false.into() })
    }
}

impl Checkpoint for KillOnce {
    fn reached(&self, step: Step) -> Result<(), Killed> {
        let counts = self.armed.load(Ordering::Acquire) && step == self.step;
        if counts && self.nth.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.killed.store(true, Ordering::Release);
            return Err(Killed(step));
        }
        Ok(())
    }
}

async fn until<T>(world: &World, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "never {what}: {:#?}", world.system.observe());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn operation(world: &World, id: SendingId) -> Option<operations::Model> {
    let row = operations::Entity::find_by_id(id.operation().to_string());
    row.one(world.system.database().reader()).await.unwrap()
}

async fn until_it_is(world: &World, id: SendingId, status: SendingStatus) -> Sending {
    until(world, status.as_str(), async || {
        let sending = sendings::load(world.system.database(), id).await.unwrap().unwrap();
        (sending.status == status).then_some(sending)
    })
    .await
}

/// Sends a withdrawal and pauses mining after its block.
async fn sent(world: &World) -> SendingId {
    earn(world, 1).await;
    world.chain.pause_mining();
    let id = order(world, "1").await.unwrap().id();
    let waiting = async || world.chain.call("txpool_status", json!([])).await.unwrap()["pending"] == "0x1";
    until(world, "the transaction is in the mempool", async || waiting().await.then_some(())).await;
    world.chain.mine(1).await.unwrap();
    until(world, "mined", async || operation(world, id).await.filter(|row| row.status == "mined")).await;
    world.chain.mine(2).await.unwrap();
    until_it_is(world, id, SendingStatus::Sent).await;
    assert_eq!((world.balance(TREASURER).await, balance(world).await), (TOKEN, (8_900_000, 0)));
    id
}

/// Reorgs the block of the withdrawal; in the new blocks the token rejects the recipient.
async fn take_back(world: &World, id: SendingId) {
    world.bar(TREASURER).await;
    let block = u64::try_from(operation(world, id).await.unwrap().block_number.unwrap()).unwrap();
    world.chain.reorg(world.chain.head().number - block + 1, Dropped::Discard).await.unwrap();
    world.chain.mine(1).await.unwrap();
    world.chain.resume_mining();
    assert_eq!(world.balance(TREASURER).await, 0);
}

/// Asserts that database, ledger and chain agree, and that this remains so while another withdrawal completes: a second
/// transfer or a second notification would come before that.
async fn assert_reversed_once(world: &World, id: SendingId) {
    let failed = until_it_is(world, id, SendingStatus::Failed).await;
    assert_eq!(failed.failure_reason, Some(FailureReason::SendFailed));
    assert!(failed.failure.as_deref().is_some_and(|why| why.contains("token refused")), "{failed:#?}");
    assert_eq!(balance(world).await, (9_900_000, 0));
    let later = order_to(world, "1", OTHER).await.unwrap().id();
    let later = ended(world, later).await;
    assert_eq!(later.status, SendingStatus::Sent, "{later:#?}");
    let holdings = (world.balance(TREASURER).await, world.balance(OTHER).await, world.holdings().await.0);
    assert_eq!(holdings, (0, TOKEN, 9_900_000 - TOKEN));
    assert_eq!(balance(world).await, (9_900_000 - TOKEN, 0));
    let reader = world.system.database().reader();
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
    let told = events::Entity::find()
        .filter(events::Column::PaymentId.eq(id.to_string()))
        .order_by_asc(events::Column::Sequence)
        .all(reader)
        .await
        .unwrap();
    assert_eq!(told.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["withdraw.sent", "withdraw.failed"]);
    let row = operation(world, id).await.unwrap();
    assert_eq!((row.status.as_str(), row.attempts), ("cancelled", 1), "{row:?}");
    // Of the settlement, the withdrawal and the later withdrawal: the same bytes were sent again, and no others.
    let attempts = chain_tx_attempts::Entity::find().order_by_asc(chain_tx_attempts::Column::Nonce).all(reader).await;
    let nonces: Vec<i64> = attempts.unwrap().into_iter().map(|attempt| attempt.nonce).collect();
    assert_eq!(nonces, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reversed_once_wherever_the_settler_dies() {
    for place in STEPS {
        let death = KillOnce::new(place);
        let world = World::with(Options { checkpoint: Some(death.clone()), ..Options::default() }).await;
        let id = sent(&world).await;
        death.armed.store(true, Ordering::Release);
        take_back(&world, id).await;
        until(&world, &format!("killed at {place:?}"), async || death.killed.load(Ordering::Acquire).then_some(()))
            .await;
        assert_reversed_once(&world, id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reversed_once_when_other_actors_die() {
    let mut world = World::new().await;
    let id = sent(&world).await;
    take_back(&world, id).await;
    // First the process crashes before it can have applied much; then the actors that apply it crash repeatedly.
    world = world.restart(false).await;
    for kind in [ActorKind::Watcher, ActorKind::SendingDesk, ActorKind::Settler].into_iter().cycle().take(9) {
        world.system.inject_crash(kind);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_reversed_once(&world, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reversed_once_when_reorged_during_downtime() {
    let world = World::new().await;
    let id = sent(&world).await;
    world.system.clone().stop().await;
    take_back(&world, id).await;
    let world = world.go_on().await;
    assert_reversed_once(&world, id).await;
}
