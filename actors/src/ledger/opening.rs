//! The ledger's beginning: what was posted by payments from before there was a ledger.
//!
//! Their transitions say all that has happened, so the pure core posts it again, under the versions that it happened in. What
//! is posted already is left alone, so that a crash in between costs nothing; when all is posted, a mark says so. Runs before
//! anything else writes.

use std::collections::BTreeMap;

use payferry_domain::Timestamp;
use payferry_domain::ledger::Account;
use payferry_domain::payment::{Event, replay_postings};
use payferry_entities::{
    Database, balances, ledger_openings, ledger_postings, payment_transitions, payments, transfers,
};
use sea_orm::sea_query::Query;
use sea_orm::{
    ActiveModelTrait, ActiveValue, ColumnTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder,
    QuerySelect,
};

use super::{change_of, rows};
use crate::payment::store::{self, StoreError};

/// Payments of one commit.
const STEP: u64 = 200;

/// Posts what is missing, once in a database's life; answers of how many payments.
pub(crate) async fn open(database: &Database, real_now: Timestamp) -> Result<u64, DbErr> {
    if ledger_openings::Entity::find().one(database.reader()).await?.is_some() {
        return Ok(0);
    }
    let mut after = String::new();
    let mut opened = 0;
    loop {
        // Without a transfer nothing was ever posted.
        let paid = Query::select().column(transfers::Column::PaymentId).from(transfers::Entity).to_owned();
        let page = payments::Entity::find()
            .filter(payments::Column::Id.gt(&after))
            .filter(payments::Column::Id.in_subquery(paid))
            .order_by_asc(payments::Column::Id)
            .limit(STEP);
        let page = page.all(database.reader()).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.id);
        opened += post(database, &page).await?;
    }
    let transaction = database.begin().await?;
    let mark = ledger_openings::Model { id: 1, opened_at: real_now.as_millis() };
    ledger_openings::Entity::insert(mark.into_active_model()).exec_without_returning(&transaction).await?;
    transaction.commit().await?;
    Ok(opened)
}

async fn post(database: &Database, page: &[payments::Model]) -> Result<u64, DbErr> {
    use payment_transitions::Column::{PaymentId, Version};
    let ids = page.iter().map(|row| row.id.as_str());
    let transitions = payment_transitions::Entity::find()
        .filter(PaymentId.is_in(ids))
        .order_by_asc(PaymentId)
        .order_by_asc(Version)
        .all(database.reader())
        .await?;
    let mut of_payment: BTreeMap<&str, Vec<&payment_transitions::Model>> = BTreeMap::new();
    for transition in &transitions {
        of_payment.entry(&transition.payment_id).or_default().push(transition);
    }
    let mut missing = Vec::new();
    let mut opened = 0;
    for row in page {
        let transitions = of_payment.remove(row.id.as_str()).unwrap_or_default();
        match postings_of(row, &transitions) {
            Ok(postings) => {
                opened += u64::from(!postings.is_empty());
                missing.extend(postings);
            }
            // It must not keep the others out of the ledger; reconciling names it.
            Err(error) => tracing::error!(payment.id = %row.id, %error, "payment {} cannot be posted", row.id),
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
    let unreadable = |error: serde_json::Error| StoreError::Unreadable {
        table: "payment_transitions",
        id: row.id.clone(),
        reason: error.to_string(),
    };
    let commits = transitions
        .iter()
        .map(|transition| Ok((serde_json::from_str(&transition.events).map_err(unreadable)?, Timestamp(transition.at))))
        .collect::<Result<Vec<(Vec<Event>, Timestamp)>, StoreError>>()?;
    let posted = replay_postings(commits.iter().map(|(events, at)| (events.as_slice(), *at)));
    let of_version = posted
        .into_iter()
        .flat_map(|(version, at, lines)| rows(&payment.terms.public_id(), version, payment.terms.psp_id, &lines, at));
    Ok(of_version.collect())
}

/// Postings and what they change of the balances, in one commit. What is posted already is left alone.
async fn write(database: &Database, missing: Vec<ledger_postings::Model>) -> Result<(), DbErr> {
    use ledger_postings::Column::Subject;
    let transaction = database.begin().await?;
    let subjects: Vec<String> = missing.iter().map(|posting| posting.subject.clone()).collect();
    let known = ledger_postings::Entity::find().filter(Subject.is_in(subjects)).all(&transaction).await?;
    let is_known = |posting: &ledger_postings::Model| {
        known.iter().any(|known| {
            (&known.subject, known.version, known.line) == (&posting.subject, posting.version, posting.line)
        })
    };
    let mut changes: BTreeMap<(String, String, String), (i64, i64, i64)> = BTreeMap::new();
    for posting in missing.into_iter().filter(|posting| !is_known(posting)) {
        let key = (posting.psp_id.clone(), posting.chain.clone(), posting.token_address.clone());
        let change = changes.entry(key).or_default();
        change.0 += change_of(&posting, Account::Psp);
        change.1 += change_of(&posting, Account::InFlight);
        change.2 = change.2.max(posting.at);
        let mut row = posting.into_active_model();
        row.position = ActiveValue::NotSet;
        ledger_postings::Entity::insert(row).exec_without_returning(&transaction).await?;
    }
    for ((psp_id, chain, token_address), (available, reserved, at)) in changes {
        let id = (psp_id.clone(), chain.clone(), token_address.clone());
        let known = balances::Entity::find_by_id(id).one(&transaction).await?;
        let is_new = known.is_none();
        let before =
            known.unwrap_or(balances::Model { psp_id, chain, token_address, available: 0, reserved: 0, updated_at: 0 });
        let balance = balances::Model {
            available: before.available + available,
            reserved: before.reserved + reserved,
            updated_at: before.updated_at.max(at),
            ..before
        };
        let balance = balance.into_active_model().reset_all();
        if is_new {
            balances::Entity::insert(balance).exec_without_returning(&transaction).await?;
        } else {
            balances::Entity::update(balance).exec(&transaction).await?;
        }
    }
    transaction.commit().await
}
