//! One payout or withdrawal, with the deliveries of its events.

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;
use futures::try_join;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::words::{ago, exact, head, panel, status};
use serde::Deserialize;

use crate::api::{At, segment};
use crate::deliveries::NOTICES;
use crate::page::{NavSection, cursor_pages, notice};
use crate::payment::PaymentQuery;
use crate::session::Session;

/// Path of the page of a payout or withdrawal, without its id.
pub(crate) const PATH: &str = "/dashboard/outbound";

/// A payout or withdrawal.
#[derive(Debug, Deserialize)]
pub(crate) struct Outbound {
    id: String,
    status: String,
    customer_id: Option<String>,
    reference: Option<String>,
    amount: String,
    currency: String,
    chain: String,
    address: String,
    kyt_verdict: String,
    tx_hash: Option<String>,
    failure: Option<String>,
    created_at: At,
    finished_at: Option<At>,
}

/// `/dashboard/outbound/{outbound_id}`.
pub(crate) async fn show(session: Session, Path(id): Path<String>, Query(shown): Query<PaymentQuery>) -> Response {
    session.answer(read(&session, &id, &shown).await)
}

async fn read(session: &Session, id: &str, shown: &PaymentQuery) -> Result<Response, ApiError> {
    let is_payout = id.starts_with("po_");
    let (folder, what) = if is_payout { ("payouts", "payout") } else { ("withdrawals", "withdrawal") };
    let record = format!("/{folder}/{}", segment(id, what)?);
    let (outbound, log) = try_join!(session.api.get::<Outbound>(&record), session.delivery_log(id, &shown.deliveries))?;
    let body = html! {
        p.crumbs { a href="/dashboard/balances" { "Balances" } span { @if is_payout { "Payout" } @else { "Withdrawal" } } }
        div.title { h1.mono { (id) } (status(&outbound.status)) }
        (notice(shown.done.as_deref(), &NOTICES))
        div.grid.two {
            (session.log_panel(&log, &format!("{PATH}/{id}"), shown.deliveries.is_empty()))
            (facts(session, &outbound))
        }
    };
    Ok(session.page(StatusCode::OK, id, NavSection::Balances, &body))
}

fn facts(session: &Session, outbound: &Outbound) -> Markup {
    let body = html! {
        dl.facts {
            dt { "Amount" } dd { (outbound.amount) " " (outbound.currency) }
            dt { "Chain" } dd { (outbound.chain) }
            dt { "To" } dd { (session.whole_on_chain(&outbound.chain, &outbound.address)) }
            @if let Some(id) = &outbound.customer_id { dt { "Customer" } dd.mono { (id) } }
            @if let Some(reference) = &outbound.reference { dt { "Reference" } dd { (reference) } }
            dt { "Screening" } dd { (status(&outbound.kyt_verdict)) }
            @if let Some(hash) = &outbound.tx_hash { dt { "Transaction" } dd { (session.whole_on_chain(&outbound.chain, hash)) } }
            @if let Some(failure) = &outbound.failure { dt { "Failure" } dd { span.bad-ink { (failure) } } }
            dt { "Created" } dd { (exact(outbound.created_at.0)) }
            @if let Some(at) = outbound.finished_at { dt { "Finished" } dd { (exact(at.0)) } }
        }
    };
    panel("facts", "Facts", "", &body)
}

/// A list of payouts or withdrawals.
pub(crate) fn list_panel(
    session: &Session,
    (id, heading): (&str, &str),
    total: u64,
    rows: &[Outbound],
    (first, next): (Option<&str>, Option<&str>),
) -> Markup {
    let now: Timestamp = session.now();
    let body = html! {
        @if rows.is_empty() { p.none { "None." } } @else {
            table {
                (head(&[("", "Id"), ("", "State"), ("n", "Amount"), ("wide", "Chain"), ("wide", "To"), ("n", "Created")]))
                tbody {
                    @for row in rows {
                        tr id=(row.id) {
                            th scope="row" { a.mono href={ (PATH) "/" (row.id) } { (row.id) } }
                            td { (status(&row.status)) @if let Some(failure) = &row.failure { br; small { (failure) } } }
                            td.n { (row.amount) " " (row.currency) }
                            td.wide { (row.chain) }
                            td.wide { (session.on_chain(&row.chain, &row.address)) }
                            td.n { (ago(row.created_at, now)) }
                        }
                    }
                }
            }
        }
        (cursor_pages(id, first, next))
    };
    panel(id, heading, &total.to_string(), &body)
}
