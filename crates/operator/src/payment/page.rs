//! Page of one payment: its state, history, money, webhooks and actor.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::{Payment, TransferToken};
use payferry_domain::{Amount, PaymentId, Timestamp};
use payferry_evm::wallet::checksummed;
use payferry_journal::webhooks::log::LogEntry;
use serde::Deserialize;

use crate::Operator;
use crate::actors::panel::One;
use crate::actors::{let_run, panel as actor};
use crate::decisions::aside::SetAsideLine;
use crate::decisions::page as decisions;
use crate::page::failure::{Failure, Refused};
use crate::page::path;
use crate::page::shell::{NavSection, Page, PageRequest};
use crate::page::words::{Tone, ago, badge, clock, count, millis, moment, plain, short, status};
use crate::payment::timeline::{self, Step};
use crate::payment::{self, Operation, PaymentFacts};

/// Query of the search box.
#[derive(Deserialize)]
pub(crate) struct Search {
    id: Option<String>,
}

/// Redirects from the search box to the payment.
pub(crate) async fn find(Query(search): Query<Search>) -> Result<Response, Failure> {
    let id = search.id.unwrap_or_default();
    if let Ok(outbound) = id.trim().parse::<OutboundId>() {
        return Ok(Redirect::to(&format!("{}/{outbound}", path("sendings"))).into_response());
    }
    let id = PaymentId::of_public(id.trim()).ok_or_else(|| Failure::not_found("payment", id))?;
    Ok(Redirect::to(&format!("{}/{id}", path("payments"))).into_response())
}

pub(crate) async fn show(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    asked: PageRequest,
) -> Result<Response, Failure> {
    let missing = || Failure::not_found("payment", id.clone());
    let id = PaymentId::of_public(&id).ok_or_else(missing)?;
    let facts = payment::payment(&operator.system, id).await?.ok_or_else(missing)?;
    let clock = operator.system.clock();
    let body = body(&facts, clock.now(), clock.real_now());
    Ok(asked.answer(&Page::live(format!("Payment {id}"), NavSection::Overview, body)))
}

/// Releases a quarantined payment.
pub(crate) async fn release(State(operator): State<Operator>, Path(id): Path<String>) -> Result<Response, Refused> {
    let id: PaymentId = id.parse().map_err(|_| Failure::not_found("payment", id.clone()))?;
    // The result is not needed: the page shows the current state.
    let_run(&operator, id).await?;
    Ok((StatusCode::SEE_OTHER, Redirect::to(&format!("{}/{id}", path("payments")))).into_response())
}

fn body(facts: &PaymentFacts, now: Timestamp, real_now: Timestamp) -> Markup {
    let payment = &facts.payment;
    let terms = &payment.terms;
    let here = format!("{}/{}", path("payments"), terms.id);
    html! {
        p.crumbs {
            a href="/ops" { "Overview" }
            @if let Some(shard) = facts.shard { a href={ (path("shards")) "/" (shard) } { "shard " (shard) } }
            span { "payment" }
        }
        div.title {
            h1.mono { (terms.public_id()) }
            (status(payment.status.as_str()))
            @if let Some(reason) = payment.failure_reason { (badge(reason.as_str(), Tone::Bad)) }
            @for label in payment.labels.iter() { (badge(label.as_str(), Tone::Warn)) }
            p { strong { (terms.amount) " " (terms.token) } " on " (terms.chain) ", created " (ago(terms.created_at, now)) }
        }
        (actor::given_up(facts.actor.as_ref().and_then(|actor| actor.quarantined.as_ref()), &here, real_now))
        (decisions::hint(&facts.can, terms.id))
        div.grid.two {
            div.col {
                (timeline::panel(&steps(facts), now))
                (transfers(payment, now))
                (on_chain_panel(&facts.operations, now))
                (deliveries_panel(&facts.deliveries, real_now))
            }
            div.col {
                (money(payment, &facts.set_aside, now))
                (actor::panel(facts.actor.as_ref().map(One::from).as_ref(), &facts.incidents, real_now))
                (agreed(facts))
            }
        }
    }
}

fn steps(facts: &PaymentFacts) -> Vec<Step<'_>> {
    facts.transitions.iter().map(|one| Step { version: one.version, at: one.at, events: &one.events }).collect()
}

fn transfers(payment: &Payment, now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="transfers" {
            header { h2 #transfers { "Transfers" } p { "to " span.mono { (short(&checksummed(payment.terms.wallet))) } } }
            @if payment.transfers.is_empty() {
                p.none { "No transfers received." }
            } @else {
                table {
                    thead {
                        tr {
                            th scope="col" { "Transaction" }
                            th.n scope="col" { "Amount" }
                            th scope="col" { "State" }
                            th.wide scope="col" { "Screening" }
                            th.n.wide scope="col" { "Block" }
                        }
                    }
                    tbody {
                        @for transfer in &payment.transfers {
                            tr id={ (transfer.key.tx_hash) "-" (transfer.key.log_index) } {
                                th scope="row" { (short(&transfer.key.tx_hash.to_string())) br; small { "from " (short(&checksummed(transfer.from))) } }
                                td.n { (transfer.amount) (token(transfer.token)) }
                                td {
                                    (status(transfer.status.as_str()))
                                    @if transfer.counted { br; small { @if transfer.excess { "counted as excess" } @else { "counted" } } }
                                }
                                td.wide { @match &transfer.verdict { Some(verdict) => (status(verdict.decision.as_str())), None => "–" } }
                                td.n.wide { (count(transfer.block.number)) br; small { (clock(transfer.block.time, now)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Token of a transfer, if it is not the token that is due.
fn token(token: TransferToken) -> Markup {
    html! {
        @match token {
            TransferToken::Right => {},
            TransferToken::Other { token, .. } => { br; small { (token) ", not the expected token" } },
            TransferToken::LookAlike { address } => { br; small { "look-alike token " (short(&address.to_string())) } },
        }
    }
}

fn money(payment: &Payment, set_aside: &[SetAsideLine], now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="money" {
            header { h2 #money { "Money" } p { "in " (payment.terms.token) } }
            dl.facts {
                dt { "Due" } dd { (payment.terms.amount) }
                dt { "Received" } dd { (payment.amount_received()) @if !payment.excess_received().is_zero() { ", plus " (payment.excess_received()) " excess" } }
                dt { "Remaining" } dd { (payment.amount_due()) }
                @for line in set_aside {
                    dt { "Set aside" }
                    dd { span.warn-ink { (line.words()) } " " small { "not listed and not counted" } }
                }
                dt { "Payable until" } dd { (moment(payment.expires_at, &payment.expires_at.to_string())) " " small { (ago(payment.expires_at, now)) } }
                @if let Some(settlement) = &payment.settlement {
                    dt { "Settlement" }
                    dd { (status(settlement.state.as_str())) " " (settlement.amount) @if let Some(hash) = settlement.tx_hash { br; (short(&hash.to_string())) } }
                    dt { "Split" } dd { (settlement.psp_amount) " to the PSP, " (settlement.treasury_fee) " to the treasury" }
                    @if let Some(failure) = &settlement.failure { dt { "Failed" } dd { span.bad-ink { (failure) } " " small { (settlement.failures) " times" } } }
                    @if let Some(at) = settlement.retry_at { dt { "Next attempt" } dd { (ago(at, now)) } }
                }
                @for refund in &payment.refunds {
                    dt { "Refund" }
                    dd { (status(refund.state.as_str())) " " (refund.amount) " to " (short(&checksummed(refund.to))) @if let Some(failure) = &refund.failure { br; span.bad-ink { (failure) } } }
                }
            }
        }
    }
}

fn agreed(facts: &PaymentFacts) -> Markup {
    let terms = &facts.payment.terms;
    html! {
        section.panel aria-labelledby="terms" {
            header { h2 #terms { "Terms" } p { "as agreed at creation" } }
            dl.facts {
                dt { "PSP" } dd { (facts.psp_name) br; a.mono href={ (path("psps")) "/" (terms.psp_id) } { (terms.psp_id) } }
                @if let Some(merchant) = &terms.merchant_id { dt { "Merchant" } dd.mono { (merchant) } }
                @if let Some(customer) = &terms.customer_id { dt { "Customer" } dd.mono { (customer) } }
                @if let Some(reference) = &terms.reference { dt { "Reference" } dd { (reference) } }
                dt { "Wallet" } dd.mono { (checksummed(terms.wallet)) }
                dt { "Token" } dd.mono { (checksummed(terms.token_address)) }
                dt { "Fee" } dd { (terms.fee_bps.get()) " basis points" }
            }
        }
    }
}

pub(crate) fn on_chain_panel(operations: &[Operation], now: Timestamp) -> Markup {
    html! {
        @if !operations.is_empty() {
            section.panel aria-labelledby="operations" {
                header { h2 #operations { "On-chain operations" } }
                table {
                    thead {
                        tr {
                            th scope="col" { "Operation" }
                            th.n scope="col" { "Amount" }
                            th scope="col" { "State" }
                            th scope="col" { "Transaction" }
                            th.n.wide scope="col" { "Block" }
                        }
                    }
                    tbody { @for operation in operations { (operation_row(operation, now)) } }
                }
            }
        }
    }
}

fn operation_row(operation: &Operation, now: Timestamp) -> Markup {
    let Operation { row, transaction } = operation;
    let tone = match row.status.as_str() {
        "succeeded" => Tone::Good,
        "failed" => Tone::Bad,
        _ => Tone::Idle,
    };
    let hash = row.tx_hash.as_deref().or_else(|| {
        let signed = transaction.as_ref().and_then(|transaction| transaction.attempts.last());
        signed.map(|attempt| attempt.tx_hash.as_str())
    });
    html! {
        tr id=(row.id) {
            th scope="row" { (plain(&row.kind)) br; small { (clock(Timestamp(row.created_at), now)) } }
            td.n { (Amount(row.amount)) }
            td {
                (badge(&row.status, tone))
                @if row.attempts > 1 { br; small { (count(row.attempts)) " times" } }
            }
            td {
                @match hash { Some(hash) => (short(hash)), None => "–" }
                @if let Some(transaction) = transaction {
                    br; small { "nonce " (transaction.row.nonce) @if transaction.attempts.len() > 1 { ", signed " (count(transaction.attempts.len())) " times" } }
                }
            }
            td.n.wide { @match row.block_number { Some(number) => (count(number)), None => "–" } }
        }
        @if let Some(failure) = &row.failure {
            tr.more id={ (row.id) "-failure" } { td colspan="5" { span.bad-ink.reason { (failure) } } }
        }
    }
}

pub(crate) fn deliveries_panel(entries: &[LogEntry], now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="deliveries" {
            header { h2 #deliveries { "Webhooks" } p { "wall clock time" } }
            @if entries.is_empty() {
                p.none { "None. No event was published, or the PSP has no endpoint for it." }
            } @else {
                table {
                    thead {
                        tr {
                            th scope="col" { "Event" }
                            th scope="col" { "Delivery" }
                            th.n.wide scope="col" { "Response" }
                            th.n.wide scope="col" { "Duration" }
                            th.n scope="col" { "Attempts" }
                        }
                    }
                    tbody { @for entry in entries { (delivery(entry, now)) } }
                }
            }
        }
    }
}

fn delivery(entry: &LogEntry, now: Timestamp) -> Markup {
    let delivery = &entry.delivery;
    html! {
        tr id=(delivery.id) {
            th scope="row" { (entry.event.name) br; small { (ago(Timestamp(delivery.created_at), now)) } }
            td {
                (status(delivery_word(&delivery.status)))
                @if let Some(at) = delivery.next_attempt_at { br; small { "next " (ago(Timestamp(at), now)) } }
            }
            td.n.wide { (delivery_answer(delivery.response_code, delivery.error.as_deref())) }
            td.n.wide { @if let Some(ms) = delivery.duration_ms { (millis(float(ms))) } @else { "–" } }
            td.n { (count(delivery.attempt_count)) }
        }
        @if !entry.attempts.is_empty() {
            tr.more id={ (delivery.id) "-attempts" } {
                td colspan="5" {
                    details {
                        summary { "Attempts" }
                        table {
                            tbody {
                                @for attempt in &entry.attempts {
                                    tr {
                                        th scope="row" { (attempt.number) ". " (ago(Timestamp(attempt.at), now)) }
                                        td { (delivery_answer(attempt.response_code, attempt.error.as_deref())) br; small.mono { (attempt.url) } }
                                        td.n { (millis(float(attempt.duration_ms))) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Label of a delivery status. `failed` shows as waiting for a retry, because for a payment `failed` is final.
fn delivery_word(status: &str) -> &str {
    if status == "failed" { "retrying" } else { status }
}

fn delivery_answer(code: Option<i64>, error: Option<&str>) -> Markup {
    html! {
        @match (code, error) {
            (Some(code), _) => span.bad-ink[!(200..300).contains(&code)] { (code) },
            (None, Some(error)) => span.bad-ink { (error) },
            (None, None) => "–",
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "only three digits are shown")]
fn float(ms: i64) -> f64 {
    ms as f64
}
