//! `/ops/operations`: on-chain operations by chain and status, newest first.

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::System;
use payferry_domain::{Amount, Chain, Timestamp};
use payferry_entities::{OperationStatus, operations};
use payferry_httpkit::extract::parameters::number;
use payferry_httpkit::lists::{CURSOR, DateTime, NewestKey, Page as ListPage};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, QueryFields, query, rule};
use sea_orm::DbErr;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Operator;
use crate::lists::deliveries::subject;
use crate::lists::{Conditions, PAGE_ROWS, ScannedPage, pages, query as link, select};
use crate::openapi::checksummed_text;
use crate::page::words::{ago, count, head, on_chain, plain, status};
use crate::page::{Failure, NavSection, Page, PageRequest, id_of, path};
use crate::query::{by, rows, soon};

/// Filter of operations. An unset field matches all.
#[derive(Debug, Clone, Copy, Default)]
struct Filter {
    status: Option<OperationStatus>,
    chain: Option<Chain>,
}

record! {
    fn of(row: operations::Model) {}

    /// An operation in a list.
    pub struct OperationLineRecord {
        id: String = row.id.clone(),
        /// The same as `id`.
        operation_id: String = row.id,
        kind: String = row.kind,
        chain: String = row.chain,
        /// queued, submitted, mined, succeeded, failed or cancelled.
        status: &'static str = row.status.as_str(),
        /// Id of the payment, payout or withdrawal.
        payment_id: String = row.payment_id,
        psp_id: String = row.psp_id,
        amount: String = Amount(row.amount).to_string(),
        token_address: String = checksummed_text(row.token_address),
        tx_hash: Option<String> = row.tx_hash,
        failure: Option<String> = row.failure,
        attempts: i64 = row.attempts,
        created_at: DateTime = DateTime(row.created_at),
        updated_at: DateTime = DateTime(row.updated_at),
    }
}

/// A page of operations.
#[derive(Serialize, ToSchema)]
pub struct OperationLines {
    /// Newest first.
    operations: Vec<OperationLineRecord>,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
}

query! {
    /// Filters of the list, and its page.
    pub struct OperationListQuery {
        /// Operations with this status.
        status: OperationStatus = rule::name(),
        /// Operations on this chain.
        chain: Chain = rule::name(),
        /// Maximum number of operations; 50 if absent.
        limit: u64 = number::<1, 200>(),
        /// The `next_cursor` of the previous page.
        cursor: String = CURSOR,
    }
}

/// List on-chain operations
///
/// Newest first.
#[utoipa::path(
    get, path = "/ops/operations", tag = "Money", operation_id = "listOperations", params(OperationListQuery),
    responses((status = 200, description = "A page of operations.", body = OperationLines), UnreadableQuery),
)]
pub(crate) async fn data(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let OperationListQuery { status, chain, limit, .. } = OperationListQuery::read(&mut query);
    let page = ListPage::<NewestKey>::of_limit("operations", query, limit.unwrap_or(PAGE_ROWS), false)?;
    let found = by(soon(), read(&operator.system, Filter { status, chain }, page.after.as_ref(), page.limit)).await?;
    let next_cursor = found.next.map(|next| page.cursor(&next)).transpose()?;
    let operations = found.rows.into_iter().map(OperationLineRecord::of).collect();
    Answer::ok(&OperationLines { operations, next_cursor })
}

/// Reads a page. Each chain and status is read in the order of its own index.
async fn read(
    system: &System,
    filter: Filter,
    after: Option<&NewestKey>,
    limit: u64,
) -> Result<ScannedPage<operations::Model, NewestKey>, DbErr> {
    let mut conditions = Conditions::default();
    if let Some((at, id)) = after {
        let (at, id) = (conditions.parameter(*at), conditions.parameter(id.as_str()));
        conditions.texts.push(format!("(created_at, id) < ({at}, {id})"));
    }
    let behind = conditions.take();
    let chains = Chain::ALL.into_iter().filter(|chain| filter.chain.is_none_or(|wanted| wanted == *chain));
    let mut parts = Vec::new();
    for chain in chains {
        for status in OperationStatus::ALL {
            if filter.status.is_none_or(|wanted| wanted == status) {
                parts.push(format!(
                    "SELECT * FROM (SELECT * FROM operations WHERE chain = '{chain}' AND status = '{status}' AND {behind} \
                     ORDER BY created_at DESC, id DESC LIMIT {}) AS part_{}",
                    limit + 1,
                    parts.len()
                ));
            }
        }
    }
    let sql = format!("{} ORDER BY created_at DESC, id DESC LIMIT {}", parts.join(" UNION ALL "), limit + 1);
    let mut found: Vec<operations::Model> = rows(system.database(), sql, conditions.values).await?;
    let size = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_next = found.len() > size;
    found.truncate(size);
    let next = found.last().filter(|_| has_next).map(|row| (row.created_at, row.id.clone()));
    Ok(ScannedPage { rows: found, next })
}

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    status: Option<String>,
    chain: Option<String>,
    /// Time and id of the last operation of the previous page.
    after: Option<String>,
}

impl Wanted {
    fn here(&self, after: Option<&NewestKey>) -> String {
        fn set(value: Option<&String>) -> Option<&str> {
            value.map(String::as_str).filter(|value| !value.is_empty())
        }
        let after = after.map(|(at, id)| format!("{at}.{id}"));
        let pairs =
            [("status", set(self.status.as_ref())), ("chain", set(self.chain.as_ref())), ("after", after.as_deref())];
        format!("{}{}", path("operations"), link(&pairs))
    }
}

/// `/ops/view/operations`: the list.
pub(crate) async fn show(
    operator: Operator,
    Query(wanted): Query<Wanted>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let filter = Filter {
        status: given(&wanted.status).map(|name| id_of("status of an operation", &name)).transpose()?,
        chain: given(&wanted.chain).map(|chain| id_of("chain", &chain)).transpose()?,
    };
    let after = given(&wanted.after).map(|after| {
        let key = after.split_once('.').and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
        key.ok_or_else(|| Failure::not_found("page", after))
    });
    let found = by(soon(), read(&operator.system, filter, after.transpose()?.as_ref(), PAGE_ROWS)).await?;
    let body = body(&wanted, &found, operator.system.clock().real_now());
    Ok(request.answer(&Page::still("Operations", NavSection::Overview, body)))
}

fn body(wanted: &Wanted, found: &ScannedPage<operations::Model, NewestKey>, now: Timestamp) -> Markup {
    let next = found.next.as_ref().map(|next| wanted.here(Some(next)));
    html! {
        p.crumbs { a href="/ops" { "Overview" } span { "operations" } }
        div.title { h1 { "Operations" } p { "Transfers out of vaults, newest first." } }
        form.filters method="get" action=(path("operations")) {
            (select("status", "Status", wanted.status.as_deref(), &OperationStatus::ALL.map(OperationStatus::as_str)))
            (select("chain", "Chain", wanted.chain.as_deref(), &Chain::ALL.map(Chain::as_str)))
            div { button { "Filter" } " " a.button.quiet href=(path("operations")) { "All" } }
        }
        section.panel aria-labelledby="list" {
            header { h2 #list { "Operations" } }
            @if found.rows.is_empty() { p.none { "No operations." } } @else { (table(&found.rows, now)) }
            (pages("operations", &wanted.here(None), wanted.after.as_ref().is_none_or(String::is_empty), next.as_deref(), found.rows.len()))
        }
    }
}

fn table(rows: &[operations::Model], now: Timestamp) -> Markup {
    html! {
        table {
            (head(&[("", "Operation"), ("", "For"), ("", "Status"), ("n", "Amount"), ("wide", "Transaction"), ("n wide", "Attempts"), ("n", "Created")]))
            tbody {
                @for row in rows {
                    tr id=(row.id) {
                        th scope="row" { (plain(&row.kind)) " on " (row.chain) br; small.mono { (row.id) } }
                        td { (subject(&row.payment_id)) }
                        td { (status(row.status.as_str())) @if let Some(failure) = &row.failure { br; small { (failure) } } }
                        td.n { (Amount(row.amount)) }
                        td.wide { @match &row.tx_hash { Some(hash) => (on_chain(&row.chain, hash)), None => "–" } }
                        td.n.wide { (count(row.attempts)) }
                        td.n { (ago(Timestamp(row.created_at), now)) }
                    }
                }
            }
        }
    }
}
