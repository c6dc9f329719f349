//! Consistency of statements for any postings and any periods.

use std::collections::BTreeMap;

use payferry::statements::{Format, Period, Statement, Tokens, Wanted};
use payferry_accounts::tenants::psp_row;
use payferry_domain::{Address, Amount};
use payferry_entities::{Database, ledger_postings, psps};
use payferry_harness::database::TestDatabase;
use payferry_harness::short_or_long;
use payferry_journal::psps::PspPolicies;
use payferry_migration::migrate;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sea_orm::ActiveValue;

use crate::prelude::*;

const USDC: Address = Address([0xaa; 20]);
const OTHER: Address = Address([0xbb; 20]);
/// Number of random ledgers, each with its own periods.
const SEEDS: u64 = 12;
const SEEDS_SHORT: u64 = 4;
const POSTINGS: i64 = 200;

/// A new database with its tables.
async fn opened() -> (TestDatabase, Database) {
    let test_database = TestDatabase::create().await;
    let database = Database::open(test_database.url()).await.unwrap();
    migrate(&database.long_timeout()).await.unwrap();
    (test_database, database)
}

async fn add_psp(database: &Database, id: PspId) {
    let row = psp_row(id, "P", &PspPolicies::default(), Timestamp(0));
    psps::Entity::insert(row.into_active_model()).exec_without_returning(database.writer()).await.unwrap();
}

fn units(text: &Value) -> i64 {
    let text = text.as_str().unwrap();
    let amount: Amount = text.trim_start_matches('-').parse().unwrap();
    if text.starts_with('-') { -amount.units() } else { amount.units() }
}

async fn statement(database: &Database, psp_id: PspId, from: i64, to: i64, format: Format) -> String {
    let period = Period::new(Timestamp(from), Timestamp(to)).unwrap();
    let wanted = Wanted { psp_id, period, chain: None, currency: None };
    String::from_utf8(chunks(database, wanted, format).await.concat()).unwrap()
}

async fn chunks(database: &Database, wanted: Wanted, format: Format) -> Vec<Vec<u8>> {
    let tokens = Tokens::named([(Chain::Base, USDC, Token::Usdc)]);
    let mut statement = Statement::begin(database.clone(), wanted, &tokens, format).await.unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = statement.chunk().await.unwrap() {
        chunks.push(chunk);
    }
    chunks
}

/// By chain and token.
async fn accounts(database: &Database, psp_id: PspId, from: i64, to: i64) -> BTreeMap<String, Value> {
    let text = statement(database, psp_id, from, to, Format::Json).await;
    let read: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let name = |account: &Value| format!("{} {}", account["chain"], account["token_address"]);
    read["accounts"].as_array().unwrap().iter().map(|account| (name(account), account.clone())).collect()
}

fn check(account: &Value) {
    let mut balance = units(&account["opening_balance"]);
    let mut totals: BTreeMap<String, (i64, i64, i64)> = BTreeMap::new();
    for entry in account["entries"].as_array().unwrap() {
        let side = |key: &str| entry[key].as_str().map_or(0, |_| units(&entry[key]));
        let (debit, credit) = (side("debit"), side("credit"));
        assert!((debit == 0) != (credit == 0), "{entry}");
        balance += credit - debit;
        assert_eq!(units(&entry["balance"]), balance, "{entry}");
        let total = totals.entry(entry["kind"].as_str().unwrap().to_owned()).or_default();
        *total = (total.0 + 1, total.1 + debit, total.2 + credit);
    }
    assert_eq!(units(&account["closing_balance"]), balance, "{account}");
    let notified = account["totals"].as_array().unwrap().iter().map(|total| {
        let count = total["count"].as_i64().unwrap();
        (total["kind"].as_str().unwrap().to_owned(), (count, units(&total["debit"]), units(&total["credit"])))
    });
    assert_eq!(notified.collect::<BTreeMap<_, _>>(), totals);
}

/// Random postings of all kinds, with times nearly in order.
fn posting(dice: &mut StdRng, number: i64, psp_id: PspId) -> ledger_postings::ActiveModel {
    let kinds = [
        ("received", "external", "payment"),
        ("settled", "payment", "psp"),
        ("settled", "payment", "psp"),
        ("fee", "payment", "treasury"),
        ("reserved", "psp", "in_flight"),
        ("sent", "in_flight", "external"),
        ("returned", "in_flight", "psp"),
        ("settlement_reversed", "psp", "payment"),
    ];
    let (kind, debit, credit) = kinds[dice.random_range(0..kinds.len())];
    let (chain, token) = [("base", USDC), ("base", OTHER), ("polygon", USDC)][dice.random_range(0..3)];
    let row = ledger_postings::Model {
        position: 0,
        subject: format!("pay_{number}"),
        version: 1,
        line: 0,
        psp_id: psp_id.to_string(),
        kind: kind.to_owned(),
        debit: debit.to_owned(),
        credit: credit.to_owned(),
        chain: chain.to_owned(),
        token_address: token.to_string(),
        amount: dice.random_range(1..5_000_000),
        reference: "0xhash".to_owned(),
        at: 1_000 + number * 10 + dice.random_range(-40..=0),
    };
    ledger_postings::ActiveModel { position: ActiveValue::NotSet, ..row.into_active_model() }
}

/// Postings of a long statement, which is read in pages of some thousands.
const LONG: i64 = 10_000;

#[tokio::test]
async fn long_statement_is_streamed_in_consistent_parts() {
    let (_database, database) = opened().await;
    let mine = PspId::generate();
    add_psp(&database, mine).await;
    let mut dice = StdRng::seed_from_u64(7);
    for first in (0..LONG).step_by(500) {
        let rows: Vec<_> = (first..first + 500).map(|number| posting(&mut dice, number, mine)).collect();
        ledger_postings::Entity::insert_many(rows).exec_without_returning(database.writer()).await.unwrap();
    }
    let [from, to] = [2_000, LONG * 9].map(Timestamp);
    let period = Period::new(from, to).unwrap();
    let wanted = Wanted { psp_id: mine, period, chain: Some(Chain::Base), currency: Some(Token::Usdc) };
    let chunks = chunks(&database, wanted, Format::Json).await;
    let text = chunks.concat();
    let read: Value = serde_json::from_slice(&text).unwrap();
    let accounts = read["accounts"].as_array().unwrap();
    assert_eq!(accounts.len(), 1);
    check(&accounts[0]);
    let entries = accounts[0]["entries"].as_array().unwrap().len();
    assert!(entries > 1_000 && chunks.len() > 5, "{entries} entries in {} chunks", chunks.len());
    assert!(chunks.iter().all(|chunk| chunk.len() < text.len() / 2), "no chunk contains everything");
}

#[tokio::test]
async fn closing_equals_next_opening_and_excludes_other_psps() {
    let (_database, database) = opened().await;
    for seed in 0..short_or_long(SEEDS_SHORT, SEEDS) {
        let mut dice = StdRng::seed_from_u64(seed);
        let (mine, other) = (PspId::generate(), PspId::generate());
        for id in [mine, other] {
            add_psp(&database, id).await;
        }
        let mut rows = Vec::new();
        for number in 0..POSTINGS {
            let owner = if dice.random_bool(0.7) { mine } else { other };
            let number = i64::try_from(seed).unwrap() * POSTINGS + number;
            rows.push(posting(&mut dice, number, owner));
        }
        let [first, last] = [0, POSTINGS - 1].map(|n| 1_000 + (i64::try_from(seed).unwrap() * POSTINGS + n) * 10);
        ledger_postings::Entity::insert_many(rows).exec_without_returning(database.writer()).await.unwrap();
        let end = last + 1;
        let whole = accounts(&database, mine, 0, end).await;
        assert_eq!(whole.len(), 3, "seed {seed}");
        let mut cuts: Vec<i64> = (0..4).map(|_| dice.random_range(first..end)).chain([0, end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut parts: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let mut before: Option<BTreeMap<String, Value>> = None;
        for cut in cuts.windows(2) {
            let part = accounts(&database, mine, cut[0], cut[1]).await;
            for (name, account) in &part {
                check(account);
                let opening =
                    before.as_ref().and_then(|before| before.get(name)).map_or(0, |one| units(&one["closing_balance"]));
                assert_eq!(units(&account["opening_balance"]), opening, "seed {seed}: {name}");
                let positions =
                    account["entries"].as_array().unwrap().iter().map(|entry| entry["position"].as_i64().unwrap());
                parts.entry(name.clone()).or_default().extend(positions);
            }
            before = Some(part);
        }
        for (name, account) in &whole {
            check(account);
            assert_eq!(
                account["closing_balance"],
                before.as_ref().unwrap()[name]["closing_balance"],
                "seed {seed}: {name}"
            );
            let mut positions = parts.remove(name).unwrap();
            positions.sort_unstable();
            let all = account["entries"].as_array().unwrap().iter().map(|entry| entry["position"].as_i64().unwrap());
            assert_eq!(positions, all.collect::<Vec<_>>(), "seed {seed}: every entry is in one period");
        }
        // Comparison with the whole ledger for the same vaults.
        let kept: Vec<ledger_postings::Model> = ledger_postings::Entity::find().all(database.reader()).await.unwrap();
        for (name, account) in &whole {
            let of = |row: &&ledger_postings::Model| {
                row.psp_id == mine.to_string()
                    && account["chain"] == row.chain
                    && account["token_address"].as_str().unwrap().eq_ignore_ascii_case(&row.token_address)
            };
            let side = |account: &str| matches!(account, "psp" | "in_flight");
            let held: i64 = kept
                .iter()
                .filter(of)
                .map(|row| row.amount * (i64::from(side(&row.credit)) - i64::from(side(&row.debit))))
                .sum();
            assert_eq!(units(&account["closing_balance"]), held, "seed {seed}: {name}");
        }
        // The same as a table.
        let table = statement(&database, mine, 0, end, Format::Csv).await;
        let mut table = csv::Reader::from_reader(table.as_bytes());
        let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
        let entries: usize = whole.values().map(|account| account["entries"].as_array().unwrap().len()).sum();
        assert_eq!(rows.iter().filter(|row| &row[0] == "entry").count(), entries);
        assert_eq!(rows.iter().filter(|row| &row[0] == "closing").count(), 3);
    }
}
