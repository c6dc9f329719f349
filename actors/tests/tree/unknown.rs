//! Commands of which nobody knows whether they were carried out: whoever asked is told so, and not to ask again, since a
//! refund that is asked for anew is another refund.

use payferry_actors::CommandError;
use payferry_actors::observe::ActorKind;
use payferry_domain::payment::{Command, Funds, Payment, RefundState, Requester, Status};
use payferry_domain::{Address, Amount, PaymentId, RefundId};

use crate::world::World;

/// Where refunds go; nobody else sends there.
const RETURNED_TO: Address = Address([0xad; 20]);
const RETURNED: Amount = Amount(2_000_000);

async fn a_moment() {
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
}

/// A payment of 10 tokens to which 4 were paid.
async fn underpaid(world: &World) -> PaymentId {
    let payment = world.initiate("10").await;
    world.pay(&payment, "4").await;
    world.until_status(payment.id(), Status::Mismatched).await;
    payment.id()
}

/// A refund of a part of it. Each is another one.
fn part_back() -> Command {
    Command::RequestRefund {
        refund_id: RefundId::generate(),
        amount: Some(RETURNED),
        to: Some(RETURNED_TO),
        funds: Funds::Received,
        asset: None,
        by: Requester::Psp,
    }
}

async fn is_sent_once(world: &World, id: PaymentId) {
    let is_sent = |now: &Payment| now.refunds.iter().any(|refund| refund.state == RefundState::Sent);
    let refunded = world.until(id, "refunded", is_sent).await;
    assert_eq!(refunded.refunds.len(), 1, "{:#?}", refunded.refunds);
    assert_eq!(world.balance(RETURNED_TO).await, RETURNED.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_that_is_written_though_its_actor_died_is_not_said_to_be_unmade() {
    let world = World::new().await;
    let id = underpaid(&world).await;
    let lock = world.lock_database().await;
    let system = world.system.clone();
    let asked = tokio::spawn(async move { system.command(id, part_back(), None).await });
    // It is decided and waits to be written: the actor is too busy to say anything.
    while world.system.observe_payment(id).await.is_none_or(|view| view.memory.is_some()) {
        a_moment().await;
    }
    world.system.inject_crash(ActorKind::Shard);
    let answer = asked.await.unwrap();
    assert!(matches!(answer, Err(CommandError::Unknown(_))), "{answer:?}");
    lock.release().await;
    is_sent_once(&world, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_whose_commit_fails_somehow_is_not_said_to_be_unmade() {
    let world = World::new().await;
    let id = underpaid(&world).await;
    let failing = world.test_database.fail_commits("payments").await;
    let answer = world.system.command(id, part_back(), None).await;
    assert!(matches!(answer, Err(CommandError::Unknown(_))), "{answer:?}");
    failing.end().await;
    // Whoever looks sees that it was not made, and may ask again.
    assert_eq!(world.load(id).await.refunds.len(), 0);
    world.system.command(id, part_back(), None).await.unwrap();
    is_sent_once(&world, id).await;
}
