//! Outbound transfers and the ledger in the whole tree: crashes, and data older than the ledger.

use std::time::{Duration, Instant};

use payferry_actors::{OrderError, OrderSending};
use payferry_domain::payment::Status;
use payferry_domain::sending::{Sending, SendingId, SendingStatus};
use payferry_domain::{Address, Chain, Token, WithdrawalId};
use payferry_entities::{balances, ledger_openings, ledger_postings, operations};
use payferry_harness::PATIENCE;
use payferry_journal::outbound as sendings;
use payferry_runtime::observe::ActorKind;
use sea_orm::{ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, QueryFilter, QueryOrder};

use crate::world::World;

pub const TOKEN: i64 = 1_000_000;
pub const TREASURER: Address = Address([0xbe; 20]);

/// Settles payments of 10 tokens each, of which 9.9 go to the PSP.
pub async fn earn(world: &World, count: usize) {
    let mut paid = Vec::new();
    for _ in 0..count {
        let payment = world.initiate("10").await;
        world.pay(&payment, "10").await;
        paid.push(payment.id());
    }
    for id in paid {
        world.until_status(id, Status::Settled).await;
    }
}

pub async fn order(world: &World, tokens: &str) -> Result<Sending, OrderError> {
    order_to(world, tokens, TREASURER).await
}

pub async fn order_to(world: &World, tokens: &str, to: Address) -> Result<Sending, OrderError> {
    let request = OrderSending {
        id: SendingId::Withdrawal(WithdrawalId::generate()),
        psp_id: world.psp,
        customer_id: None,
        reference: None,
        metadata: None,
        amount: tokens.parse().unwrap(),
        token: Token::Usdc,
        chain: Chain::Base,
        to,
        answer: None,
    };
    world.system.order_sending(request).await
}

pub async fn ended(world: &World, id: SendingId) -> Sending {
    let since = Instant::now();
    loop {
        let sending = sendings::load(world.system.database(), id).await.unwrap().unwrap();
        if !sending.is_live() {
            return sending;
        }
        assert!(since.elapsed() < PATIENCE, "it never ends: {sending:#?} {:#?}", world.system.observe());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Available and reserved balance.
pub async fn balance(world: &World) -> (i64, i64) {
    let rows = balances::Entity::find().all(world.system.database().reader()).await.unwrap();
    assert_eq!(rows.len(), 1);
    (rows[0].available, rows[0].reserved)
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_are_sent_once_when_actors_die() {
    let world = World::new().await;
    earn(&world, 3).await;
    let kinds = [
        ActorKind::SendingDesk,
        ActorKind::Settler,
        ActorKind::Screening,
        ActorKind::Watcher,
        ActorKind::WebhookSender,
    ];
    let mut ordered = Vec::new();
    for round in 0..15_u64 {
        world.system.inject_crash(kinds[usize::try_from(round).unwrap() % kinds.len()]);
        ordered.push(order(&world, "1").await.unwrap().id());
        tokio::time::sleep(Duration::from_millis(9 * (round % 6))).await;
    }
    for id in &ordered {
        assert_eq!(ended(&world, *id).await.status, SendingStatus::Sent);
    }
    assert_eq!(world.balance(TREASURER).await, 15 * TOKEN);
    assert_eq!(balance(&world).await, (3 * 9_900_000 - 15 * TOKEN, 0));
    assert_eq!(world.holdings().await.0, 3 * 9_900_000 - 15 * TOKEN);
    let sent = operations::Entity::find().filter(operations::Column::Kind.eq("withdrawal"));
    let sent = sent.all(world.system.database().reader()).await.unwrap();
    assert_eq!(sent.len(), 15);
    assert!(sent.iter().all(|row| row.status == "succeeded"), "{sent:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_in_progress_continue_after_an_abrupt_end() {
    let mut world = World::new().await;
    earn(&world, 1).await;
    let mut ordered = Vec::new();
    for _ in 0..3 {
        for _ in 0..3 {
            ordered.push(order(&world, "1").await.unwrap().id());
        }
        world = world.restart(false).await;
    }
    for id in &ordered {
        assert_eq!(ended(&world, *id).await.status, SendingStatus::Sent);
    }
    assert_eq!(world.balance(TREASURER).await, 9 * TOKEN);
    assert_eq!(balance(&world).await, (900_000, 0));
    assert!(matches!(order(&world, "1").await, Err(OrderError::InsufficientBalance)));
}

async fn postings(world: &World) -> Vec<ledger_postings::Model> {
    use ledger_postings::Column::{Line, Subject, Version};
    let all = ledger_postings::Entity::find().order_by_asc(Subject).order_by_asc(Version).order_by_asc(Line);
    let mut all = all.all(world.system.database().reader()).await.unwrap();
    for posting in &mut all {
        posting.position = 0;
    }
    all
}

/// Restores the state of a database from before the ledger existed.
async fn forget_the_ledger(world: &World) {
    let writer = world.system.database().writer();
    let triggers: &[&str] = match writer.get_database_backend() {
        DbBackend::Sqlite => &["DROP TRIGGER ledger_postings_no_delete", "DROP TRIGGER ledger_postings_no_update"],
        _ => &["DROP TRIGGER ledger_postings_append_only ON ledger_postings"],
    };
    let tables = ["DELETE FROM ledger_postings", "DELETE FROM balances", "DELETE FROM ledger_openings"];
    for sql in triggers.iter().chain(&tables) {
        writer.execute_unprepared(sql).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settlements_older_than_the_ledger_are_on_the_balance() {
    let world = World::new().await;
    earn(&world, 3).await;
    let short = world.initiate("10").await;
    world.pay(&short, "4").await;
    world.until_status(short.id(), Status::Mismatched).await;
    let open = world.initiate("10").await;
    let (posted, had) = (postings(&world).await, balance(&world).await);
    assert_eq!((posted.len(), had), (3 * 3 + 1, (3 * 9_900_000, 0)));

    world.system.clone().stop().await;
    forget_the_ledger(&world).await;
    let world = world.go_on().await;
    assert_eq!((postings(&world).await, balance(&world).await), (posted.clone(), had));
    // Payments in progress continue in their state.
    world.pay(&short, "6").await;
    world.pay(&open, "10").await;
    for id in [short.id(), open.id()] {
        world.until_status(id, Status::Settled).await;
    }
    assert_eq!(balance(&world).await, (5 * 9_900_000, 0));
    let marks = ledger_openings::Entity::find().all(world.system.database().reader()).await.unwrap();
    assert_eq!(marks.len(), 1);
    let posted = postings(&world).await;
    let world = world.restart(true).await;
    assert_eq!((postings(&world).await, balance(&world).await), (posted, (5 * 9_900_000, 0)), "once is enough");
    order(&world, "49.5").await.unwrap();
}
