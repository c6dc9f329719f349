//! Live payments and wallets are found through their indexes, also while their payments change.

use payferry_migration::{Migrator, MigratorTrait};

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
            let page = if only_ids {
                live_ids(&env.database, shards, after, limit).await.unwrap()
            } else {
                load_live(&env.database, shards, after, limit).await.unwrap().iter().map(Payment::id).collect()
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

    // An unreadable row keeps no other from starting, whatever page it fills.
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
    for (columns, index) in
        [("id, version, state", "INDEX"), ("id", "COVERING INDEX"), ("id, wallet", "COVERING INDEX")]
    {
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

#[tokio::test]
async fn labels_from_before_the_migration_are_in_the_column() {
    let test_database = TestDatabase::empty().await;
    let database = Database::open(test_database.url()).await.unwrap();
    Migrator::up(database.long_timeout(), Some(17)).await.unwrap();
    database.writer().execute_unprepared("ALTER TABLE payments ADD COLUMN labels TEXT").await.unwrap();
    let env = Env::over(test_database, database).await;
    let (labelled, plain) = (env.initiated().await, env.initiated().await);
    let before = format!(
        "UPDATE payments SET state = replace(state, '\"labels\":[]', '\"labels\":[\"LATE\"]') WHERE id = '{}'",
        labelled.id()
    );
    for statement in [before.as_str(), "ALTER TABLE payments DROP COLUMN labels"] {
        env.database.writer().execute_unprepared(statement).await.unwrap();
    }
    Migrator::up(env.database.long_timeout(), None).await.unwrap();
    for (payment, labels) in [(labelled, Some(r#"["LATE"]"#)), (plain, None)] {
        let row = payments::Entity::find_by_id(payment.id().to_string()).one(env.database.reader()).await.unwrap();
        assert_eq!(row.unwrap().labels.as_deref(), labels);
    }
}

#[tokio::test]
async fn payments_from_before_the_migration_keep_their_wallets() {
    let test_database = TestDatabase::empty().await;
    let database = Database::open(test_database.url()).await.unwrap();
    Migrator::up(database.long_timeout(), Some(15)).await.unwrap();
    // Written by the current code, which knows later columns.
    for column in ["payments ADD COLUMN labels TEXT", "deliveries ADD COLUMN endpoint_id TEXT"] {
        database.writer().execute_unprepared(&format!("ALTER TABLE {column}")).await.unwrap();
    }
    let env = Env::over(test_database, database).await;
    let (live, over) = (env.initiated().await, env.initiated().await);
    let over = env.notified(&over, &Command::Cancel).await;
    for column in ["payments DROP COLUMN labels", "deliveries DROP COLUMN endpoint_id"] {
        env.database.writer().execute_unprepared(&format!("ALTER TABLE {column}")).await.unwrap();
    }
    Migrator::up(env.database.long_timeout(), None).await.unwrap();
    if env.database.backend() == DbBackend::Sqlite {
        // As if the process had ended before the migration was recorded.
        let forget = "DELETE FROM seaql_migrations WHERE version = 'm0016_wallets'";
        env.database.writer().execute_unprepared(forget).await.unwrap();
        Migrator::up(env.database.long_timeout(), None).await.unwrap();
    }
    for payment in [&live, &over] {
        assert_eq!(load(&env.database, payment.id()).await.unwrap().as_ref(), Some(payment));
    }
    let owner = |payment: &Payment| (payment.terms.wallet, payment.id());
    assert_eq!(live_wallets(&env.database).await.unwrap(), [owner(&live)]);
    let found = by_wallets(&env.database, &[over.terms.wallet], WalletScope::Over).await.unwrap();
    assert_eq!(found, [owner(&over)]);
    // References to payments still exist and are enforced.
    let notified = env.notified(&live, &Command::Cancel).await;
    assert!(!notified.is_live());
    let orphan = "INSERT INTO payment_transitions VALUES ('pay_nobody', 1, 0, '[]')";
    assert!(env.database.writer().execute_unprepared(orphan).await.is_err());
    let twice = "INSERT INTO payments SELECT * FROM payments";
    assert!(env.database.writer().execute_unprepared(twice).await.is_err());
}
