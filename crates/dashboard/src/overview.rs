//! The overview: the balances, the payments of the last day, and what is not delivered.

use axum::http::StatusCode;
use axum::response::Response;
use futures::future::try_join_all;
use futures::try_join;
use maud::{Markup, html};
use payferry_domain::payment::Status;
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::words::{count, heading};
use serde::Deserialize;

use crate::api::with_query;
use crate::balances::{self, BalanceList};
use crate::deliveries::undelivered_panel;
use crate::page::NavSection;
use crate::payments::{self, PATH, PaymentList};
use crate::session::Session;

/// Period of the payments that are counted and listed, seconds.
const PERIOD_SECS: i64 = 24 * 3_600;
/// Newest payments, and undelivered events.
const PAYMENTS_MAX: &str = "10";
const UNDELIVERED_MAX: &str = "5";

/// The account's first endpoint.
#[derive(Deserialize)]
struct Webhook {
    webhook_url: Option<String>,
}

/// `/dashboard`.
pub(crate) async fn show(session: Session) -> Response {
    session.answer(read(&session).await)
}

async fn read(session: &Session) -> Result<Response, ApiError> {
    let from = session.now().plus_secs(-PERIOD_SECS).to_string();
    let newest = with_query("/payments", [("created_from", from.as_str()), ("limit", PAYMENTS_MAX)]);
    let (balances, newest, counts, undelivered, webhook) = try_join!(
        session.api.get::<BalanceList>("/balances"),
        session.api.get::<PaymentList>(&newest),
        counts(session, &from),
        session.undelivered(UNDELIVERED_MAX),
        session.api.get::<Webhook>("/api/v1/webhook"),
    )?;
    let body = html! {
        div.title { h1 { "Overview" } p { (session.key.psp_name) ", " span.mono { (session.key.psp_id) } } }
        @if webhook.webhook_url.is_none() {
            p.notice.warn { "No webhook URL is set. Events wait until one is. " a href="/dashboard/webhooks" { "Set the URL" } }
        }
        (figures(&counts, &from))
        div.grid.two {
            section.panel aria-labelledby="newest" {
                header { h2 #newest { "Payments of the last 24 hours" } a.more href=(PATH) { "All payments" } }
                @if newest.payments.is_empty() { p.none { "None." } } @else { (payments::table(&newest.payments, session.now())) }
            }
            div.col {
                (balances::panel(&balances))
                (undelivered_panel(&undelivered, session.real_now()))
            }
        }
    };
    Ok(session.page(StatusCode::OK, "Overview", NavSection::Overview, &body))
}

/// Counts the payments of each status since `from`.
async fn counts(session: &Session, from: &str) -> Result<Vec<(Status, u64)>, ApiError> {
    try_join_all(Status::ALL.map(async |status| {
        let filters = [("status", status.as_str()), ("created_from", from), ("limit", "1")];
        let found: PaymentList = session.api.get(&with_query("/payments", filters)).await?;
        Ok((status, found.total.unwrap_or_default()))
    }))
    .await
}

fn figures(counts: &[(Status, u64)], from: &str) -> Markup {
    html! {
        dl.figures aria-label="Payments of the last 24 hours" {
            @for (status, total) in counts {
                div id={ "count-" (status) } {
                    dt { a href=(with_query(PATH, [("status", status.as_str()), ("created_from", from)])) { (heading(status.as_str())) } }
                    dd { (count(*total)) }
                }
            }
        }
    }
}
