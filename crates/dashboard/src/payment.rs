//! One payment or transfer: its facts, money and history, and the deliveries of its events.

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;
use futures::try_join;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::words::{Tone, ago, badge, exact, head, heading, panel, plain, status};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::{At, segment, with_query};
use crate::deliveries::{DeliveryList, NOTICES};
use crate::page::{NavSection, notice};
use crate::payments::PATH;
use crate::refund_requests::{self, RefundRequest, requests_panel};
use crate::session::Session;

#[derive(Debug, Deserialize)]
struct Payment {
    status: String,
    labels: Vec<String>,
    merchant_id: Option<String>,
    customer_id: Option<String>,
    reference: Option<String>,
    description: Option<String>,
    amount: String,
    amount_received: String,
    excess_received: String,
    amount_due: String,
    currency: String,
    /// `None` until the payer has chosen it.
    chain: Option<String>,
    token_address: Option<String>,
    intermediary_wallet: String,
    magic_link: String,
    failure: Option<String>,
    confirmations: Option<u64>,
    required_confirmations: Option<u32>,
    required_finality: String,
    transfers: Vec<Transfer>,
    kyt: Kyt,
    settlement: Option<Settlement>,
    refunds: Vec<Refund>,
    refund_requests: Vec<RefundRequest>,
    metadata: Option<Map<String, Value>>,
    status_history: Vec<History>,
    expires_at: At,
    created_at: At,
    updated_at: At,
    /// Of a transfer: the address that the money is forwarded to.
    address: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Transfer {
    tx_hash: String,
    log_index: u32,
    block_number: u64,
    block_time: At,
    from: String,
    amount: String,
    token: Option<String>,
    chain: String,
    status: String,
    kyt_verdict: String,
    counted: bool,
}

#[derive(Debug, Deserialize)]
struct Kyt {
    verdict: String,
    risk_level: Option<String>,
    score: Option<u8>,
    flags: Vec<String>,
    provider: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Settlement {
    status: String,
    amount: String,
    psp_amount: Option<String>,
    treasury_fee: Option<String>,
    tx_hash: Option<String>,
    failure: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Refund {
    id: String,
    status: String,
    amount: String,
    currency: Option<String>,
    chain: String,
    address: String,
    tx_hash: Option<String>,
    failure: Option<String>,
    created_at: At,
}

#[derive(Debug, Deserialize)]
struct History {
    status: String,
    at: At,
    reason: String,
}

impl Payment {
    /// Name of its chain; empty until the payer has chosen it.
    fn chain(&self) -> &str {
        self.chain.as_deref().unwrap_or_default()
    }
}

/// Query of the page: the result of the last form, and the cursor of the deliveries.
#[derive(Debug, Deserialize)]
pub(crate) struct PaymentQuery {
    pub(crate) done: Option<String>,
    #[serde(default)]
    pub(crate) deliveries: String,
}

/// `/dashboard/payments/{payment_id}`.
pub(crate) async fn show(session: Session, Path(id): Path<String>, Query(shown): Query<PaymentQuery>) -> Response {
    session.answer(read(&session, &id, &shown).await)
}

async fn read(session: &Session, id: &str, shown: &PaymentQuery) -> Result<Response, ApiError> {
    let id = segment(id, "payment")?;
    let folder = if id.starts_with("tr_") { "transfers" } else { "payments" };
    let record = format!("/{folder}/{id}");
    let (payment, log) = try_join!(session.api.get(&record), session.delivery_log(id, &shown.deliveries))?;
    let body = body(session, id, &payment, &log, shown);
    Ok(session.page(StatusCode::OK, id, NavSection::Payments, &body))
}

fn body(session: &Session, id: &str, payment: &Payment, log: &DeliveryList, shown: &PaymentQuery) -> Markup {
    let now = session.now();
    html! {
        p.crumbs { a href=(PATH) { "Payments" } span { @if id.starts_with("tr_") { "Transfer" } @else { "Payment" } } }
        div.title {
            h1.mono { (id) }
            (status(&payment.status))
            @for label in &payment.labels { (badge(&label.to_lowercase(), Tone::Warn)) }
            p { (payment.amount) " " (payment.currency) " on " (payment.chain.as_deref().unwrap_or("a chain of the payer's choice")) ", created " (ago(payment.created_at, now)) }
        }
        (notice(shown.done.as_deref(), &NOTICES))
        (notice(shown.done.as_deref(), &refund_requests::NOTICES))
        div.grid.two {
            div.col {
                (history(&payment.status_history))
                (transfers(session, payment, now))
                (requests_panel(session, id, &payment.refund_requests, now))
                (refunds(session, &payment.refunds, now))
                (session.log_panel(log, &format!("{PATH}/{id}"), shown.deliveries.is_empty()))
            }
            div.col { (money(session, payment, now)) (terms(session, payment)) }
        }
    }
}

fn history(entries: &[History]) -> Markup {
    let body = html! {
        ol.line {
            @for entry in entries {
                li.good[matches!(entry.status.as_str(), "settled" | "confirmed")].warn[entry.status == "mismatched"]
                    .bad[entry.status == "failed"] {
                    div.head { strong { (heading(&entry.status)) } span.soft { (plain(&entry.reason)) } span.at { (exact(entry.at.0)) } }
                }
            }
        }
    };
    panel("history", "History", "", &body)
}

fn transfers(session: &Session, payment: &Payment, now: Timestamp) -> Markup {
    let finality = match (payment.confirmations, payment.required_confirmations) {
        (Some(confirmations), Some(required)) if payment.status == "pending" && !payment.transfers.is_empty() => {
            format!("{confirmations} of {required} blocks")
        }
        (_, Some(required)) => format!("final after {required} blocks"),
        (_, None) => format!("final when {}", payment.required_finality),
    };
    let body = html! {
        @if payment.transfers.is_empty() { p.none { "No transfers received." } } @else {
            table {
                (head(&[("", "Transaction"), ("n", "Amount"), ("", "State"), ("wide", "Screening"), ("n wide", "Block")]))
                tbody {
                    @for transfer in &payment.transfers {
                        tr id={ (transfer.tx_hash) "-" (transfer.log_index) } {
                            th scope="row" { (session.on_chain(&transfer.chain, &transfer.tx_hash)) br; small { "from " (session.on_chain(&transfer.chain, &transfer.from)) } }
                            td.n { (transfer.amount) " " (transfer.token.as_deref().unwrap_or("other token")) }
                            td { (status(&transfer.status)) br; small { @if transfer.counted { "counted" } @else { "not counted" } } }
                            td.wide { (status(&transfer.kyt_verdict)) }
                            td.n.wide { (transfer.block_number) br; small { (ago(transfer.block_time, now)) } }
                        }
                    }
                }
            }
        }
    };
    panel("transfers", "Transfers", &finality, &body)
}

fn refunds(session: &Session, refunds: &[Refund], now: Timestamp) -> Markup {
    let body = html! {
        table {
            (head(&[("", "Refund"), ("n", "Amount"), ("", "State"), ("wide", "To"), ("n", "Requested")]))
            tbody {
                @for refund in refunds {
                    tr id=(refund.id) {
                        th scope="row" { span.mono { (refund.id) } @if let Some(hash) = &refund.tx_hash { br; small { (session.on_chain(&refund.chain, hash)) } } }
                        td.n { (refund.amount) " " (refund.currency.as_deref().unwrap_or("other token")) }
                        td { (status(&refund.status)) @if let Some(failure) = &refund.failure { br; small { (failure) } } }
                        td.wide { (session.on_chain(&refund.chain, &refund.address)) }
                        td.n { (ago(refund.created_at, now)) }
                    }
                }
            }
        }
    };
    html! { @if !refunds.is_empty() { (panel("refunds", "Refunds", "", &body)) } }
}

fn money(session: &Session, payment: &Payment, now: Timestamp) -> Markup {
    let kyt = &payment.kyt;
    let body = html! {
        dl.facts {
            dt { "Amount" } dd { (payment.amount) }
            dt { "Received" } dd { (payment.amount_received) }
            @if payment.excess_received.bytes().any(|digit| matches!(digit, b'1'..=b'9')) { dt { "Excess" } dd { (payment.excess_received) } }
            dt { "Still due" } dd { (payment.amount_due) }
            @if payment.status == "pending" { dt { "Payable until" } dd { (exact(payment.expires_at.0)) " " small { (ago(payment.expires_at, now)) } } }
            @if let Some(failure) = &payment.failure { dt { "Failure" } dd { span.bad-ink { (failure) } } }
            dt { "Screening" }
            dd {
                (status(&kyt.verdict))
                @if let Some(level) = &kyt.risk_level { " risk " (level) }
                @if let Some(score) = kyt.score { " score " (score) }
                @if !kyt.flags.is_empty() { " " (kyt.flags.join(", ")) }
                @if let Some(provider) = &kyt.provider { " " small { "by " (provider) } }
            }
            @if let Some(settlement) = &payment.settlement {
                dt { "Settlement" }
                dd { (status(&settlement.status)) " " (settlement.amount) @if let Some(hash) = &settlement.tx_hash { br; (session.on_chain(payment.chain(), hash)) } }
                @if let Some(amount) = &settlement.psp_amount { dt { "To your balance" } dd { (amount) } }
                @if let Some(fee) = &settlement.treasury_fee { dt { "Fee" } dd { (fee) } }
                @if let Some(failure) = &settlement.failure { dt { "Settlement failed" } dd { span.bad-ink { (failure) } } }
            }
        }
    };
    panel("money", "Money", &format!("in {}", payment.currency), &body)
}

fn terms(session: &Session, payment: &Payment) -> Markup {
    let of = |name, id: &str| with_query(PATH, [(name, id)]);
    let body = html! {
        dl.facts {
            @if let Some(id) = &payment.merchant_id { dt { "Merchant" } dd { a.mono href=(of("merchant_id", id)) { (id) } } }
            @if let Some(id) = &payment.customer_id { dt { "Customer" } dd { a.mono href=(of("customer_id", id)) { (id) } } }
            @if let Some(reference) = &payment.reference { dt { "Reference" } dd { (reference) } }
            @if let Some(description) = &payment.description { dt { "Description" } dd { (description) } }
            dt { "Wallet" } dd { (session.whole_on_chain(payment.chain(), &payment.intermediary_wallet)) }
            @if let Some(token) = &payment.token_address { dt { "Token" } dd { (session.whole_on_chain(payment.chain(), token)) } }
            @if let Some(address) = &payment.address { dt { "Forwarded to" } dd { (session.whole_on_chain(payment.chain(), address)) } }
            dt { "Payer's page" } dd { a href=(payment.magic_link) rel="noreferrer" target="_blank" { (payment.magic_link) } }
            dt { "Created" } dd { (exact(payment.created_at.0)) }
            dt { "Changed" } dd { (exact(payment.updated_at.0)) }
            @if let Some(metadata) = &payment.metadata {
                dt { "Metadata" } dd { pre tabindex="0" aria-label="Metadata" { (serde_json::to_string_pretty(metadata).unwrap_or_default()) } }
            }
        }
    };
    panel("terms", "Terms", "", &body)
}
