//! The index and the counts agree with the rows.

use payferry_domain::customer::{CustomerKind, KycStatus};
use payferry_domain::{CustomerId, Timestamp};
use payferry_entities::customers::Model;
use payferry_entities::query_all;
use payferry_harness::database::{TestDatabase, query_plan};
use payferry_harness::short_or_long;
use payferry_httpkit::lists::{NewestKey, Page, read_counted_page};
use payferry_journal::audit::Actor;
use payferry_journal::customers::{NewCustomer, create};
use payferry_migration::{Migrator, MigratorTrait, migrate};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt, SeedableRng};
use sea_orm::{ConnectionTrait, QueryOrder, QuerySelect, QueryTrait, TransactionTrait};

use super::super::read::CustomerSummary;
use super::*;

/// Characters of emails: letters of two cases, some of which change their length in lower case, and characters with a meaning
/// in patterns, in search terms, in SQL, or for a tokenizer.
const CHARACTERS: [&str; 24] = [
    "a",
    "A",
    "b",
    "b",
    "É",
    "é",
    "ß",
    "İ",
    "Σ",
    "漢",
    "😀",
    "\u{10FFFF}",
    "@",
    ".",
    "%",
    "_",
    "'",
    "\"",
    "\\",
    "*",
    ":",
    "-",
    "(",
    "&",
];
const CUSTOMERS: i64 = 120;
const SEARCHES: usize = 300;
const SEARCHES_SHORT: usize = 60;
const PAGE: u64 = 10;

fn text(dice: &mut StdRng, chars_max: usize) -> String {
    let chars = dice.random_range(1..=chars_max);
    // A prefix of the characters, so that texts repeat often.
    let variety = dice.random_range(2..=CHARACTERS.len());
    (0..chars).map(|_| *CHARACTERS[..variety].choose(dice).unwrap()).collect()
}

async fn opened() -> (TestDatabase, Database) {
    let test_database = TestDatabase::create().await;
    let database = Database::open(test_database.url()).await.unwrap();
    (test_database, database)
}

/// Adds a PSP.
async fn add_psp(test_database: &TestDatabase) -> PspId {
    let psp_id = PspId::generate();
    test_database.add_psp(&psp_id.to_string(), &format!("merch_{psp_id}")).await;
    psp_id
}

fn customer(psp_id: PspId, email: &str, at: i64) -> Model {
    let new = NewCustomer {
        id: CustomerId::generate(),
        psp_id,
        kind: CustomerKind::Individual,
        email: email.to_owned(),
        country: "GBR".to_owned(),
        currency: "GBP".to_owned(),
        particulars: "sealed".to_owned(),
    };
    new.row(Timestamp(at))
}

async fn insert(connection: &impl ConnectionTrait, rows: &[Model]) {
    create(connection, rows, &Actor::Service, Timestamp(0)).await.unwrap();
}

fn filters(search: Option<&str>) -> CustomerFilters {
    CustomerFilters { search: search.map(str::to_owned), status: None, kyc_status: None }
}

/// Ids of the whole list, read page by page. Each page must have the right total.
async fn listed(database: &Database, psp_id: PspId, filters: impl Fn() -> CustomerFilters) -> Vec<String> {
    let order = [Column::CreatedAt, Column::Id];
    let (mut ids, mut totals) = (Vec::new(), Vec::new());
    let mut page: Page<NewestKey> = Page::at("customers", PAGE, 0);
    loop {
        let Wanted { rows, total } = Wanted::find(database, psp_id, filters()).await.unwrap();
        let key = |row: &CustomerSummary| (row.created_at.0, row.id.clone());
        let read = read_counted_page(database, rows, order, &page, key, total).await.unwrap();
        totals.push(read.total);
        page.after = read.rows.last().map(key);
        ids.extend(read.rows.into_iter().map(|row| row.id));
        if read.next_cursor.is_none() {
            break;
        }
    }
    assert!(totals.iter().all(|total| *total == ids.len() as u64), "{totals:?} instead of {}", ids.len());
    ids
}

/// Ids of the rows in the order of the list.
fn newest(rows: &[Model], is_wanted: impl Fn(&Model) -> bool) -> Vec<String> {
    let mut rows: Vec<_> = rows.iter().filter(|row| is_wanted(row)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.created_at, row.id.clone())));
    rows.into_iter().map(|row| row.id.clone()).collect()
}

#[tokio::test]
async fn a_search_equals_the_comparison_with_every_email() {
    let (test_database, database) = opened().await;
    let (mine, other) = (add_psp(&test_database).await, add_psp(&test_database).await);
    let mut dice = StdRng::seed_from_u64(4);
    let mut rows = Vec::new();
    for number in 0..CUSTOMERS {
        let psp_id = if number % 3 == 0 { other } else { mine };
        let mut row = customer(psp_id, &text(&mut dice, 14), number / 4);
        row.is_active = dice.random_bool(0.6);
        row.kyc_status =
            if dice.random_bool(0.5) { KycStatus::Approved } else { KycStatus::Pending }.as_str().to_owned();
        rows.push(row);
    }
    insert(database.writer(), &rows).await;
    let (mut few, mut many) = (0, 0);
    for number in 0..short_or_long(SEARCHES_SHORT, SEARCHES) {
        let search = if number % 2 == 0 {
            let email: Vec<char> = rows.choose(&mut dice).unwrap().email.chars().collect();
            let from = dice.random_range(0..email.len());
            email[from..dice.random_range(from + 1..=email.len())].iter().collect()
        } else {
            text(&mut dice, 5)
        };
        let status = [None, Some(true), Some(false)][dice.random_range(0..3)];
        let kyc_status = [None, Some(KycStatus::Approved)][dice.random_range(0..2)];
        let is_wanted = |row: &Model| {
            row.psp_id == mine.to_string()
                && row.email.to_lowercase().contains(&search.to_lowercase())
                && status.is_none_or(|is_active| row.is_active == is_active)
                && kyc_status.is_none_or(|kyc_status| row.kyc_status == kyc_status.as_str())
        };
        let read =
            listed(&database, mine, || CustomerFilters { search: Some(search.clone()), status, kyc_status }).await;
        assert_eq!(read, newest(&rows, is_wanted), "search {search:?}, status {status:?}, kyc_status {kyc_status:?}");
        if search.chars().count() >= INDEXED_CHARS_MIN {
            let matches = Matches::count(&database, mine, &search.to_lowercase()).await.unwrap();
            *if matches.are_few() { &mut few } else { &mut many } += 1;
        }
    }
    assert!(few > 10 && many > 2, "{few} searches with few matches, {many} with many");
    assert_eq!(listed(&database, mine, || filters(None)).await, newest(&rows, |row| row.psp_id == mine.to_string()));
}

/// Number of entries in the index; on PostgreSQL always 0, because it removes entries later, by itself.
async fn entries(test_database: &TestDatabase) -> usize {
    let connection = test_database.connect().await;
    if test_database.is_postgres() {
        return 0;
    }
    let table = "CREATE VIRTUAL TABLE IF NOT EXISTS vocabulary USING fts5vocab(customer_search, row)";
    connection.execute_unprepared(table).await.unwrap();
    let count = "SELECT term FROM vocabulary";
    let rows = query_all(&connection, count, []).await.unwrap();
    connection.close().await.unwrap();
    rows.len()
}

#[tokio::test]
async fn erasing_or_changing_an_email_removes_it_from_the_index() {
    let (test_database, database) = opened().await;
    let psp_id = add_psp(&test_database).await;
    let mut rows: Vec<_> =
        ["ada@example.com", "grace@example.com"].into_iter().map(|email| customer(psp_id, email, 1)).collect();
    insert(database.writer(), &rows[1..]).await;
    let before = entries(&test_database).await;
    insert(database.writer(), &rows[..1]).await;
    let ada = rows[0].id.clone();
    let execute = async |sql: String| database.writer().execute_unprepared(&sql).await;
    execute(format!("UPDATE customers SET email = '', email_search = 'erased@x.y' WHERE id = '{ada}'")).await.unwrap();
    "erased@x.y".clone_into(&mut rows[0].email_search);
    for search in ["ada@", "erased", "example", "grace"] {
        let wanted = newest(&rows, |row| row.email_search.contains(search));
        assert_eq!(listed(&database, psp_id, || filters(Some(search))).await, wanted, "{search}");
    }
    // A change of other columns, as the journal writes it, with the same email and PSP.
    execute(format!(
        "UPDATE customers SET psp_id = psp_id, email_search = email_search, version = 2 WHERE id = '{ada}'"
    ))
    .await
    .unwrap();
    assert_eq!(listed(&database, psp_id, || filters(Some("erased"))).await, std::slice::from_ref(&ada));
    let moved =
        execute(format!("UPDATE customers SET psp_id = '{}' WHERE id = '{ada}'", add_psp(&test_database).await));
    assert!(moved.await.unwrap_err().to_string().contains("a customer stays with its PSP"));

    execute(format!("DELETE FROM customers WHERE id = '{ada}'")).await.unwrap();
    assert_eq!(listed(&database, psp_id, || filters(Some("erased"))).await, Vec::<String>::new());
    assert_eq!(listed(&database, psp_id, || filters(None)).await, [rows[1].id.clone()]);
    assert_eq!(entries(&test_database).await, before);
}

#[tokio::test]
async fn a_database_with_customers_is_migrated() {
    let test_database = TestDatabase::empty().await;
    let database = Database::open(test_database.url()).await.unwrap();
    Migrator::up(&database.long_timeout(), Some(3)).await.unwrap();
    let psps = [add_psp(&test_database).await, add_psp(&test_database).await, add_psp(&test_database).await];
    let email = |number: i64| format!("Customer{number}@É{}.example", number % 7);
    let row = |number: i64| customer(psps[usize::from(number % 5 == 0)], &email(number), number);
    let rows: Vec<_> = (0..200).map(row).chain([customer(psps[0], "é", 300)]).collect();
    insert(database.writer(), &rows).await;
    assert_eq!(
        migrate(&database.long_timeout()).await.unwrap(),
        [
            "m0004_customer_search",
            "m0005_console",
            "m0006_left_nodes",
            "m0007_traces",
            "m0008_checkout",
            "m0009_refund_requests"
        ]
    );
    for psp_id in psps {
        let owner = psp_id.to_string();
        assert_eq!(listed(&database, psp_id, || filters(None)).await, newest(&rows, |row| row.psp_id == owner));
        for search in ["OMER17", "@é3.", "customer", "é"] {
            let wanted = newest(&rows, |row| row.psp_id == owner && row.email_search.contains(&search.to_lowercase()));
            assert_eq!(listed(&database, psp_id, || filters(Some(search))).await, wanted, "{search}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creations_of_one_psp_are_counted() {
    const WRITERS: u64 = 6;
    const BATCHES: u64 = 8;
    const BATCH: u64 = 5;
    let test_database = TestDatabase::create().await;
    let psp_id = add_psp(&test_database).await;
    let writer = async |number: u64| {
        // Connections of its own, like another process.
        let database = Database::open(test_database.url()).await.unwrap();
        for batch in 0..BATCHES {
            let email = format!("writer{number}@example.com");
            let rows: Vec<_> = (0..BATCH).map(|_| customer(psp_id, &email, 1)).collect();
            let transaction = database.begin().await.unwrap();
            insert(&transaction, &rows).await;
            // Every fourth transaction is lost.
            if batch % 4 == 3 { transaction.rollback().await } else { transaction.commit().await }.unwrap();
        }
        database.close().await.unwrap();
    };
    futures::future::join_all((0..WRITERS).map(writer)).await;
    let database = Database::open(test_database.url()).await.unwrap();
    let each = BATCH * BATCHES * 3 / 4;
    for (search, total) in [(None, WRITERS * each), (Some("writer3@"), each)] {
        assert_eq!(listed(&database, psp_id, || filters(search)).await.len() as u64, total, "{search:?}");
    }
}

/// A list without a search reads one page, and a search with few matches reads these, for any number of customers.
#[tokio::test]
async fn lists_and_searches_read_through_indexes() {
    let (test_database, database) = opened().await;
    let mut psps = Vec::new();
    for _ in 0..5 {
        psps.push(add_psp(&test_database).await);
    }
    let psp_id = psps[0];
    let owned = psps.iter().cycle().zip(0..2_000);
    let rows: Vec<_> =
        owned.map(|(psp_id, number)| customer(*psp_id, &format!("customer{number}@example.com"), number)).collect();
    let transaction = database.long_timeout().begin().await.unwrap();
    for some in rows.chunks(500) {
        insert(&transaction, some).await;
    }
    transaction.commit().await.unwrap();
    if test_database.is_postgres() {
        database.writer().execute_unprepared("ANALYZE customers").await.unwrap();
    }
    let backend = database.backend();
    let plan = async |filters| {
        let wanted = Wanted::find(&database, psp_id, filters).await.unwrap();
        let page = wanted.rows.order_by_desc(Column::CreatedAt).order_by_desc(Column::Id).limit(51);
        query_plan(database.reader(), page.build(backend)).await.join("\n")
    };
    let search = Some("omer1230@".to_owned());
    let (list, found) = if test_database.is_postgres() {
        (["customers"].as_slice(), ["on customers_search", "customers_pkey"].as_slice())
    } else {
        (
            ["customers USING INDEX customers_list (psp_id=?)"].as_slice(),
            ["customer_search VIRTUAL TABLE INDEX", "customers USING INDEX sqlite_autoindex_customers_1 (id=?)"]
                .as_slice(),
        )
    };
    for (filters, steps) in [
        (filters(None), list),
        // It matches most customers.
        (filters(Some("customer")), list),
        (CustomerFilters { search: search.clone(), status: None, kyc_status: None }, found),
        (CustomerFilters { search: search.clone(), status: Some(true), kyc_status: Some(KycStatus::Pending) }, found),
    ] {
        if test_database.is_postgres() && steps == list {
            // The planner of PostgreSQL reads a small table as a whole.
            continue;
        }
        let plan = plan(filters).await;
        assert!(steps.iter().all(|step| plan.contains(step)), "{steps:?} in {plan}");
        assert!(!plan.contains("SCAN customers") && !plan.contains("Seq Scan"), "{plan}");
        assert_eq!(plan.contains("Sort") || plan.contains("TEMP B-TREE"), steps == found, "{plan}");
    }
}
