//! Page of one payment: its state, history, money, webhooks and actor.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_domain::payment::{Payment, TransferToken};
use payferry_domain::sending::SendingId;
use payferry_domain::{PaymentId, Timestamp};
use payferry_evm::wallet::checksummed;
use serde::Deserialize;

use crate::Operator;
use crate::actors::panel as actor;
use crate::actors::panel::One;
use crate::actors::release::let_run;
use crate::decisions::aside::AsideLine;
use crate::decisions::page as decisions;
use crate::page::failure::{Failure, Refused};
use crate::page::path;
use crate::page::shell::{Asked, Page, Place};
use crate::page::words::{Tone, ago, badge, clock, count, moment, short, status};
use crate::payment::timeline::{self, Step};
use crate::payment::{self, PaymentFacts, deliveries, on_chain};

/// Query of the search box.
#[derive(Deserialize)]
pub(crate) struct Search {
    id: Option<String>,
}

/// Redirects from the search box to the payment.
pub(crate) async fn find(Query(search): Query<Search>) -> Result<Response, Failure> {
    let id = search.id.unwrap_or_default();
    if let Ok(sending) = id.trim().parse::<SendingId>() {
        return Ok(Redirect::to(&format!("{}/{sending}", path("sendings"))).into_response());
    }
    let id = PaymentId::of_public(id.trim()).ok_or_else(|| Failure::not_found("payment", id))?;
    Ok(Redirect::to(&format!("{}/{id}", path("payments"))).into_response())
}

pub(crate) async fn show(
    State(operator): State<Operator>,
    Path(id): Path<String>,
    asked: Asked,
) -> Result<Response, Failure> {
    let missing = || Failure::not_found("payment", id.clone());
    let id = PaymentId::of_public(&id).ok_or_else(missing)?;
    let facts = payment::payment(&operator.system, id).await?.ok_or_else(missing)?;
    let clock = operator.system.clock();
    let body = body(&facts, clock.now(), clock.real_now());
    Ok(asked.answer(&Page::live(format!("Payment {id}"), Place::Overview, body)))
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
                (on_chain::panel(&facts.operations, now))
                (deliveries::panel(&facts.deliveries, real_now))
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

fn money(payment: &Payment, set_aside: &[AsideLine], now: Timestamp) -> Markup {
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
