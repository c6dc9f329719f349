//! Opens the ledger: posts the payments that are older than the ledger.
//!
//! Their transitions contain all events, so the pure domain can create the postings again, with the versions of that
//! time. Existing postings are not touched, so a crash in between does no harm. When everything is posted, a marker is
//! set. This runs before any other write.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use payferry_domain::Timestamp;
use payferry_domain::payment::{Event, replay};
use payferry_entities::{
    Database, Transaction, balances, ledger_openings, ledger_postings, payment_transitions, payments, transfers,
};
use sea_orm::sea_query::Query;
use sea_orm::{
    ActiveValue, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder,
    QuerySelect, Statement,
};

use crate::payments::{self as store, StoreError};
use crate::postings::{balance_changes, rows};

/// Payments per commit.
const STEP: u64 = 200;
/// Postings per statement. Each binds about a dozen values; SQLite allows 32,766.
const POSTINGS_MAX: usize = 1_000;

/// Result of a page.
#[derive(Default)]
struct Opened {
    /// Payments with new postings.
    payments: u64,
    /// Payments that could not be posted.
    failed: u64,
}

/// Creates the missing postings, once per database; returns the number of payments. If a payment fails, everything is
/// tried again at the next start.
pub async fn open(database: &Database, real_now: Timestamp) -> Result<u64, DbErr> {
    if ledger_openings::Entity::find().one(database.reader()).await?.is_some() {
        return Ok(0);
    }
    let mut after = String::new();
    let mut opened = Opened::default();
    loop {
        // Payments without a transfer have no postings.
        let paid = Query::select().column(transfers::Column::PaymentId).from(transfers::Entity).to_owned();
        let page = payments::Entity::find()
            .filter(payments::Column::Id.gt(&after))
            .filter(payments::Column::Id.in_subquery(paid))
            .order_by_asc(payments::Column::Id)
            .limit(STEP);
        let page = page.all(database.long_timeout()).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.id);
        let of_page = post(database, &page).await?;
        opened.payments += of_page.payments;
        opened.failed += of_page.failed;
        tracing::debug!(payments = opened.payments, "older payments were posted to the ledger up to {after}");
    }
    if opened.failed == 0 {
        let transaction = database.begin().await?;
        let mark = ledger_openings::Model { id: 1, opened_at: real_now.as_millis() };
        ledger_openings::Entity::insert(mark.into_active_model()).exec_without_returning(&transaction).await?;
        transaction.commit().await?;
    }
    Ok(opened.payments)
}

async fn post(database: &Database, page: &[payments::Model]) -> Result<Opened, DbErr> {
    use payment_transitions::Column::{PaymentId, Version};
    let ids = page.iter().map(|row| row.id.as_str());
    let transitions = payment_transitions::Entity::find()
        .filter(PaymentId.is_in(ids))
        .order_by_asc(PaymentId)
        .order_by_asc(Version)
        .all(database.long_timeout())
        .await?;
    let mut of_payment: BTreeMap<&str, Vec<&payment_transitions::Model>> = BTreeMap::new();
    for transition in &transitions {
        of_payment.entry(&transition.payment_id).or_default().push(transition);
    }
    let mut missing = Vec::new();
    let mut opened = Opened::default();
    for row in page {
        let transitions = of_payment.remove(row.id.as_str()).unwrap_or_default();
        match postings_of(row, &transitions) {
            Ok(postings) => {
                opened.payments += u64::from(!postings.is_empty());
                missing.extend(postings);
            }
            // A failing payment must not block the others.
            Err(error) => {
                opened.failed += 1;
                tracing::error!(payment.id = %row.id, %error, "payment {} cannot be posted to the ledger", row.id);
            }
        }
    }
    if !missing.is_empty() {
        write(database, missing).await?;
    }
    Ok(opened)
}

fn postings_of(
    row: &payments::Model,
    transitions: &[&payment_transitions::Model],
) -> Result<Vec<ledger_postings::Model>, StoreError> {
    let payment = store::payment_of(row)?;
    let unreadable = |reason: &dyn fmt::Display| StoreError::unreadable("payment_transitions", &row.id, reason);
    if !(1..).map(i64::from).zip(transitions).all(|(version, transition)| transition.version == version)
        || i64::try_from(transitions.len()) != Ok(row.version)
    {
        return Err(unreadable(&"transitions are missing"));
    }
    let commits = transitions
        .iter()
        .map(|transition| {
            let events = serde_json::from_str(&transition.events).map_err(|error| unreadable(&error))?;
            Ok((events, Timestamp(transition.at)))
        })
        .collect::<Result<Vec<(Vec<Event>, Timestamp)>, StoreError>>()?;
    let replayed = replay(commits.iter().map(|(events, at)| (events.as_slice(), *at)));
    let posted = replayed.map(|(_, posted)| posted).unwrap_or_default();
    let of_version = posted
        .into_iter()
        .flat_map(|(version, at, lines)| rows(&payment.terms.public_id(), version, payment.terms.psp_id, &lines, at));
    Ok(of_version.collect())
}

/// Writes postings and their changes of the balances in one commit. Existing postings are skipped.
async fn write(database: &Database, missing: Vec<ledger_postings::Model>) -> Result<(), DbErr> {
    use ledger_postings::Column::Subject;
    let transaction = database.begin().await?;
    let subjects: BTreeSet<&str> = missing.iter().map(|posting| posting.subject.as_str()).collect();
    let known = ledger_postings::Entity::find().filter(Subject.is_in(subjects)).all(&transaction).await?;
    let known: HashSet<_> = known.into_iter().map(|known| (known.subject, known.version, known.line)).collect();
    let is_new =
        |posting: &ledger_postings::Model| !known.contains(&(posting.subject.clone(), posting.version, posting.line));
    let missing: Vec<_> = missing.into_iter().filter(is_new).collect();
    change_balances(&transaction, &missing).await?;
    for part in missing.chunks(POSTINGS_MAX) {
        let rows = part.iter().map(|posting| {
            let mut row = posting.clone().into_active_model();
            row.position = ActiveValue::NotSet;
            row
        });
        ledger_postings::Entity::insert_many(rows).exec_without_returning(&transaction).await?;
    }
    transaction.commit().await
}

/// Adds the changes instead of setting values, because an earlier process may still change the balances.
async fn change_balances(transaction: &Transaction, postings: &[ledger_postings::Model]) -> Result<(), DbErr> {
    for change in balance_changes(postings) {
        let sql = "INSERT INTO balances (psp_id, chain, token_address, available, reserved, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (psp_id, chain, token_address) DO UPDATE SET
                available = balances.available + excluded.available,
                reserved = balances.reserved + excluded.reserved";
        let balances::Model { psp_id, chain, token_address, available, reserved, updated_at } = change;
        let keys = [psp_id.into(), chain.into(), token_address.into()];
        let values = keys.into_iter().chain([available.into(), reserved.into(), updated_at.into()]);
        let backend = ConnectionTrait::get_database_backend(transaction);
        transaction.execute_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
    }
    Ok(())
}
