//! Payers' requests for refunds: a panel of the page of a payment, and the decision about each.

use axum::extract::Path;
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::form::FormValues;
use payferry_httpkit::pages::words::{Tone, ago, badge, head, panel, status};
use serde::Deserialize;
use serde_json::json;

use crate::api::{At, Done, segment};
use crate::page::{ChangeButton, NavSection, see_other};
use crate::payments::PATH;
use crate::session::Session;

/// Notices after a decision, by the word in the query.
pub(crate) const NOTICES: [(&str, &str); 2] =
    [("approved", "The request is approved: see the refund."), ("declined", "The request is declined.")];

/// A payer's request for a refund.
#[derive(Debug, Deserialize)]
pub(crate) struct RefundRequest {
    id: String,
    status: String,
    amount: String,
    currency: Option<String>,
    chain: String,
    address: String,
    address_proof: String,
    note: Option<String>,
    created_at: At,
}

/// The requests of a payment.
pub(crate) fn requests_panel(
    session: &Session,
    payment_id: &str,
    requests: &[RefundRequest],
    now: Timestamp,
) -> Markup {
    let body = html! {
        table {
            (head(&[("", "Request"), ("n", "Amount"), ("", "State"), ("", "To"), ("n wide", "Received")]))
            tbody { @for request in requests { (row(session, payment_id, request, now)) } }
        }
    };
    html! { @if !requests.is_empty() { (panel("refund-requests", "Payers' requests for refunds", "", &body)) } }
}

fn row(session: &Session, payment_id: &str, request: &RefundRequest, now: Timestamp) -> Markup {
    let is_proven = request.address_proof == "signature";
    html! {
        tr id=(request.id) {
            th scope="row" {
                span.mono { (request.id) }
                @if let Some(note) = &request.note { br; small { "Note: " (note) } }
            }
            td.n { (request.amount) " " (request.currency.as_deref().unwrap_or("other token")) }
            td {
                (status(&request.status))
                @if request.status == "requested" && session.key.has("money") { (buttons(payment_id, request)) }
            }
            td {
                (session.whole_on_chain(&request.chain, &request.address)) br;
                @if is_proven { (badge("signed by the sender", Tone::Good)) } @else { (badge("address not proven", Tone::Warn)) }
                " " small { "on " (request.chain) }
            }
            td.n.wide { (ago(request.created_at, now)) }
        }
    }
}

fn buttons(payment_id: &str, request: &RefundRequest) -> Markup {
    let action = |what: &str| format!("{PATH}/{payment_id}/refund-requests/{}/{what}", request.id);
    let is_proven = request.address_proof == "signature";
    let statement =
        if is_proven { "The money goes back to its sender" } else { "I have checked that this address is the payer's" };
    html! {
        div.actions {
            (ChangeButton {
                label: "Approve", subject: &request.id, action: &action("approve"), fields: html! {}, statement,
            })
            (ChangeButton {
                label: "Decline", subject: &request.id, action: &action("decline"), fields: html! {},
                statement: "The payer sees that it is declined",
            })
        }
    }
}

/// Approves a request.
pub(crate) async fn approve(session: Session, ids: Path<(String, String)>, form: FormValues) -> Response {
    session.answer(decide(&session, ids, &form, "approve", "approved").await)
}

/// Declines a request.
pub(crate) async fn decline(session: Session, ids: Path<(String, String)>, form: FormValues) -> Response {
    session.answer(decide(&session, ids, &form, "decline", "declined").await)
}

async fn decide(
    session: &Session,
    Path((payment_id, request_id)): Path<(String, String)>,
    form: &FormValues,
    what: &str,
    done: &str,
) -> Result<Response, ApiError> {
    let here = format!("{PATH}/{}", segment(&payment_id, "payment")?);
    let path = format!("/refund-requests/{}/{what}", segment(&request_id, "refund_request")?);
    Ok(match session.submit::<Done>(form, Method::POST, &path, json!({})).await? {
        Ok(_) => see_other(&format!("{here}?done={done}#{request_id}")),
        Err(refused) => session.not_changed(&refused, NavSection::Payments, &here),
    })
}
