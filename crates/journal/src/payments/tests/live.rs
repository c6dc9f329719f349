//! Live payments and wallets are found through their indexes, also while their payments change.

use super::*;

impl Env {
    async fn make_unreadable(&self, id: PaymentId) {
        let row = payments::Entity::find_by_id(id.to_string()).one(self.database.reader()).await.unwrap();
        let mut row = row.unwrap().into_active_model();
        row.state = ActiveValue::Set("{}".to_owned());
        row.update(self.database.writer()).await.unwrap();
    }
}

#[tokio::test]
async fn live_payments_are_read_in_pages() {
    let env = Env::new().await;
    let mut expected = Vec::new();
    for _ in 0..40 {
        expected.push(env.initiated().await.id());
    }
    let over = env.initiated().await;
    let over = env.notified(&over, &Command::Cancel).await;
    assert!(!over.is_live());
    expected.sort_unstable();

    let paged = async |shards: RangeInclusive<u8>, limit, only_ids: bool| {
        let mut ids = Vec::new();
        loop {
            let (shards, after) = (shards.clone(), ids.last().copied());
            let page: Vec<_> = if only_ids {
                let page = live_versions(&env.database, shards, after, limit).await.unwrap();
                assert!(page.iter().all(|(_, version)| (1..=2).contains(version)), "{page:?}");
                page.into_iter().map(|(id, _)| id).collect()
            } else {
                load_live(&env.database, shards, after, limit).await.unwrap().iter().map(LivePayment::id).collect()
            };
            if page.is_empty() {
                return ids;
            }
            ids.extend(page);
        }
    };
    let pages = async |shards, limit| paged(shards, limit, false).await;
    let pages_of_ids = async |shards, limit| paged(shards, limit, true).await;
    assert_eq!(pages(0..=255, 7).await, expected);
    assert_eq!(pages_of_ids(0..=255, 7).await, expected);
    let half: Vec<_> = expected.iter().copied().filter(|id| id.shard() >= 128).collect();
    assert_eq!(pages(128..=255, 7).await, half);
    for shards in [0..=15, 16..=31, 24..=40, 200..=200] {
        let within: Vec<_> = expected.iter().copied().filter(|id| shards.contains(&id.shard())).collect();
        assert_eq!(pages(shards.clone(), 2).await, within);
        assert_eq!(pages_of_ids(shards, 2).await, within);
    }

    // The state of a payment that has not changed is not read. Once it has changed, an unreadable row keeps no other from starting,
    // whatever page it fills.
    let payment = load(&env.database, expected[3]).await.unwrap().unwrap();
    let page = async || load_live(&env.database, 0..=255, Some(expected[2]), 1).await.unwrap().remove(0);
    let (created_at, expires_at) = (payment.terms.created_at, payment.expires_at);
    let initiated = InitiatedPayment { id: payment.id(), chain: payment.terms.chain, created_at, expires_at };
    assert!(matches!(page().await, LivePayment::Initiated(found) if found == initiated));
    let outage = Command::MoveDeadline { outage: OutageId(1), from: created_at, to: created_at.plus_secs(60) };
    let payment = env.notified(&payment, &outage).await;
    assert!(matches!(page().await, LivePayment::Changed(found) if *found == payment));
    env.make_unreadable(expected[3]).await;
    assert_eq!(pages_of_ids(0..=255, 1).await, expected, "an unreadable payment is still live");
    let unreadable = expected.remove(3);
    assert_eq!(pages(0..=255, 1).await, expected);
    assert!(load(&env.database, unreadable).await.is_err());
}

#[tokio::test]
async fn live_payments_and_wallets_use_their_indexes() {
    let env = Env::new().await;
    if env.database.backend() != DbBackend::Sqlite {
        return;
    }
    let plan = async |sql: &str, values: Vec<Value>| {
        query_plan(env.database.reader(), Statement::from_sql_and_values(DbBackend::Sqlite, sql, values)).await
    };
    let over = "SEARCH payments USING INDEX payments_over (wallet=?)";
    for (columns, index) in [(LIVE_COLUMNS, "INDEX"), ("id, version", "INDEX"), ("id, wallet", "COVERING INDEX")] {
        let values = vec!["".into(), 0_i64.into(), 15_i64.into(), 100_i64.into()];
        let plan = plan(&format!("SELECT {columns} {LIVE}"), values).await;
        assert_eq!(plan, [format!("SEARCH payments USING {index} payments_live (id>?)")]);
    }
    let wallets = || vec![r#"["0x00"]"#.into()];
    let plan_over = plan(&by_wallets_sql(DbBackend::Sqlite, WalletScope::Over), wallets()).await;
    assert_eq!(plan_over[0], over);
    let plan_all = plan(&by_wallets_sql(DbBackend::Sqlite, WalletScope::All), wallets()).await;
    for part in [over, "SCAN payments USING COVERING INDEX payments_live"] {
        assert!(plan_all.iter().any(|step| step == part), "{plan_all:?}");
    }
}

#[tokio::test]
async fn wallets_lead_to_their_payments() {
    let env = Env::new().await;
    let (live, over) = (env.initiated().await, env.initiated().await);
    let over = env.notified(&over, &Command::Cancel).await;
    let owner = |payment: &Payment| (payment.terms.wallet, payment.id());
    let asked = [live.terms.wallet, Address([0xee; 20]), over.terms.wallet];
    let found = async |among| {
        let mut found = by_wallets(&env.database, &asked, among).await.unwrap();
        found.sort_unstable_by_key(|(_, id)| *id);
        found
    };
    assert_eq!(found(WalletScope::All).await, [owner(&live), owner(&over)]);
    assert!(found(WalletScope::Over).await.contains(&owner(&over)));
    assert_eq!(live_wallets(&env.database).await.unwrap(), [owner(&live)]);
    assert!(by_wallets(&env.database, &[], WalletScope::All).await.unwrap().is_empty());

    // Unreadable payments may receive transfers, too.
    env.make_unreadable(live.id()).await;
    assert_eq!(live_wallets(&env.database).await.unwrap(), [owner(&live)]);
    assert_eq!(found(WalletScope::All).await, [owner(&live), owner(&over)]);
}
