//! Many payments at once in one tree.

use futures::StreamExt as _;
use payferry_domain::payment::Status;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_payments_at_once_settle_and_are_told_in_order() {
    let world = World::new().await;
    let paid: Vec<_> = futures::stream::iter(0..300)
        .map(|_| async {
            let payment = world.initiate("10").await;
            world.pay(&payment, "10").await;
            payment
        })
        .buffer_unordered(50)
        .collect()
        .await;
    for payment in &paid {
        world.until_status(payment.id(), Status::Settled).await;
    }
    assert_eq!(world.holdings().await, (300 * 9_900_000, 300 * 100_000));
    world.check_feed(&paid).await;
    while world.system.observe().payments_live > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(world.system.observe().payments_spawned, 300, "one actor each");
}
