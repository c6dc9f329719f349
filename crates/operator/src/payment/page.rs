//! Page of one payment: its state, history, money, webhooks and actor.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::payment::{AddressProof, AuthorizationEnd, Decision, Event, Payment, TransferKey, TransferToken};
use payferry_domain::{Amount, Chain, PaymentId, Timestamp};
use payferry_entities::{DeliveryStatus, OperationStatus};
use payferry_evm::wallet::checksummed;
use payferry_journal::webhooks::log::LogEntry;

use crate::Operator;
use crate::actors::panel::{self as actor, One};
use crate::actors::quarantine;
use crate::decisions::aside::SetAsideLine;
use crate::decisions::page as decisions;
use crate::page::form::Filled;
use crate::page::words::{
    Tone, ago, badge, clock, count, exact, float, head, millis, on_chain, panel, plain, short, span, status,
    whole_on_chain,
};
use crate::page::{Failure, NavSection, Page, PageRequest, Refused, id_of, path};
use crate::payment::{self, Operation, PaymentFacts, TransitionView};

pub(crate) async fn show(
    operator: Operator,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let missing = || Failure::not_found("payment", id.clone());
    let id = PaymentId::of_public(&id).ok_or_else(missing)?;
    let facts = payment::payment(&operator.system, id).await?.ok_or_else(missing)?;
    let clock = operator.system.clock();
    let body = body(&facts, clock.now(), clock.real_now());
    Ok(request.answer(&Page::live(format!("Payment {id}"), NavSection::Payments, body)))
}

/// Releases a quarantined payment.
pub(crate) async fn release(operator: Operator, Path(id): Path<String>, filled: Filled) -> Result<Response, Refused> {
    let id: PaymentId = id_of("payment", &id)?;
    quarantine::release_by_form(&operator, &filled, id).await
}

fn body(facts: &PaymentFacts, now: Timestamp, real_now: Timestamp) -> Markup {
    let payment = &facts.payment;
    let terms = &payment.terms;
    let here = format!("{}/{}", path("payments"), terms.id);
    html! {
        p.crumbs {
            a href=(path("payments")) { "Payments" }
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
        (actor::given_up(terms.id, facts.actor.as_ref().and_then(|actor| actor.quarantined.as_ref()), real_now))
        (decisions::hint(&facts.can, terms.id))
        div.grid.two {
            div.col {
                (history(&facts.transitions, &here, terms.chain, now))
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

fn transfers(payment: &Payment, now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="transfers" {
            header { h2 #transfers { "Transfers" } p { "to " (on_chain(payment.terms.chain, &checksummed(payment.terms.wallet))) } }
            @if payment.transfers.is_empty() {
                p.none { "No transfers received." }
            } @else {
                table {
                    (head(&[("", "Transaction"), ("n", "Amount"), ("", "State"), ("wide", "Screening"), ("n wide", "Block")]))
                    tbody {
                        @for transfer in &payment.transfers {
                            tr id={ (transfer.key.tx_hash) "-" (transfer.key.log_index) "-" (short(&transfer.key.block_hash.to_string())) } {
                                th scope="row" { (on_chain(transfer.key.chain, &transfer.key.tx_hash.to_string())) br; small { "from " (on_chain(transfer.key.chain, &checksummed(transfer.from))) } }
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
    let body = html! {
        dl.facts {
            dt { "Due" } dd { (payment.terms.amount) }
            dt { "Received" } dd { (payment.amount_received()) @if !payment.excess_received().is_zero() { ", plus " (payment.excess_received()) " excess" } }
            dt { "Remaining" } dd { (payment.amount_due()) }
            @for line in set_aside {
                dt { "Set aside" }
                dd { span.warn-ink { (line.words()) } " " small { "not listed and not counted" } }
            }
            dt { "Payable until" } dd { (exact(payment.expires_at)) " " small { (ago(payment.expires_at, now)) } }
            @if let Some(settlement) = &payment.settlement {
                dt { "Settlement" }
                dd { (status(settlement.state.as_str())) " " (settlement.amount) @if let Some(hash) = settlement.tx_hash { br; (on_chain(payment.terms.chain, &hash.to_string())) } }
                dt { "Split" } dd { (settlement.psp_amount) " to the PSP, " (settlement.treasury_fee) " to the treasury" }
                @if let Some(failure) = &settlement.failure { dt { "Failed" } dd { span.bad-ink { (failure) } " " small { (settlement.failures) " times" } } }
                @if let Some(at) = settlement.retry_at { dt { "Next attempt" } dd { (ago(at, now)) } }
            }
            @for refund in &payment.refunds {
                dt { "Refund" }
                dd { (status(refund.public_status())) " " (refund.amount) " to " (on_chain(refund.asset.map_or(payment.terms.chain, |asset| asset.chain), &checksummed(refund.to))) @if let Some(failure) = &refund.failure { br; span.bad-ink { (failure) } } }
            }
        }
    };
    panel("money", "Money", &format!("in {}", payment.terms.token), &body)
}

fn agreed(facts: &PaymentFacts) -> Markup {
    let terms = &facts.payment.terms;
    let body = html! {
        dl.facts {
            dt { "PSP" } dd { (facts.psp_name) br; a.mono href={ (path("psps")) "/" (terms.psp_id) } { (terms.psp_id) } }
            @if let Some(merchant) = &terms.merchant_id { dt { "Merchant" } dd.mono { (merchant) } }
            @if let Some(customer) = &terms.customer_id { dt { "Customer" } dd.mono { (customer) } }
            @if let Some(reference) = &terms.reference { dt { "Reference" } dd { (reference) } }
            @if let Some(description) = &terms.description { dt { "Description" } dd { (description) } }
            dt { "Wallet" } dd { (whole_on_chain(terms.chain, &checksummed(terms.wallet))) }
            dt { "Token" } dd { (whole_on_chain(terms.chain, &checksummed(terms.token_address))) }
            dt { "Fee" } dd { (terms.fee_bps.get()) " basis points" }
        }
    };
    panel("terms", "Terms", "as agreed at creation", &body)
}

pub(crate) fn on_chain_panel(operations: &[Operation], now: Timestamp) -> Markup {
    let body = html! {
        table {
            (head(&[("", "Operation"), ("n", "Amount"), ("", "State"), ("", "Transaction"), ("n wide", "Block")]))
            tbody { @for operation in operations { (operation_row(operation, now)) } }
        }
    };
    html! { @if !operations.is_empty() { (panel("operations", "On-chain operations", "", &body)) } }
}

fn operation_row(operation: &Operation, now: Timestamp) -> Markup {
    let Operation { row, transaction } = operation;
    let tone = match row.status {
        OperationStatus::Succeeded => Tone::Good,
        OperationStatus::Failed => Tone::Bad,
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
                (badge(row.status.as_str(), tone))
                @if row.attempts > 1 { br; small { (count(row.attempts)) " times" } }
            }
            td {
                @match hash { Some(hash) => (on_chain(&row.chain, hash)), None => "–" }
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
    let body = html! {
        @if entries.is_empty() {
            p.none { "None. No event was published, or the PSP has no endpoint for it." }
        } @else {
            table {
                (head(&[("", "Event"), ("", "Delivery"), ("n wide", "Response"), ("n wide", "Duration"), ("n", "Attempts")]))
                tbody { @for entry in entries { (delivery(entry, now)) } }
            }
        }
    };
    panel("deliveries", "Webhooks", "wall clock time", &body)
}

fn delivery(entry: &LogEntry, now: Timestamp) -> Markup {
    let delivery = &entry.delivery;
    html! {
        tr id=(delivery.id) {
            th scope="row" { (entry.event.name) br; small { (ago(Timestamp(delivery.created_at), now)) } }
            td {
                (status(delivery_word(delivery.status)))
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
fn delivery_word(status: DeliveryStatus) -> &'static str {
    if status == DeliveryStatus::Failed { "retrying" } else { status.as_str() }
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

/// One line of the history.
struct TimelineEntry {
    tone: Tone,
    headline: Markup,
    detail: Option<Markup>,
}

/// The history, oldest first.
fn history(transitions: &[TransitionView], here: &str, chain: Chain, now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="history" {
            header {
                h2 #history { "History" }
                p { "service clock, UTC" }
                a.more href={ (here) "/replay" } { "Replay" }
            }
            ol.line { @for one in transitions { (history_entry(one, chain, now)) } }
        }
    }
}

fn history_entry(transition: &TransitionView, chain: Chain, now: Timestamp) -> Markup {
    let entries: Vec<TimelineEntry> = transition.events.iter().map(|event| entry_of(event, chain)).collect();
    let tone = entries.iter().map(|entry| entry.tone).max().unwrap_or(Tone::Idle);
    html! {
        li id={ "version-" (transition.version) } class=(tone.as_str()) {
            @for (index, entry) in entries.iter().enumerate() {
                div.head {
                    span { (entry.headline) }
                    @if index == 0 { span.at { (clock(transition.at, now)) " " small { "v" (transition.version) } } }
                }
                @if let Some(detail) = &entry.detail { ul { li { (detail) } } }
            }
            @if entries.is_empty() {
                div.head { span { "Event unknown to this version of the service" } span.at { (clock(transition.at, now)) } }
            }
        }
    }
}

fn entry_of(event: &Event, chain: Chain) -> TimelineEntry {
    let said = |tone, headline: Markup| TimelineEntry { tone, headline, detail: None };
    let with = |tone, headline: Markup, detail: Markup| TimelineEntry { tone, headline, detail: Some(detail) };
    match event {
        Event::Initiated { terms, expires_at } => with(
            Tone::Idle,
            html! { strong { "Initiated" } " for " (terms.amount) " " (terms.token) " on " (terms.chain) },
            html! { "payable until " (exact(*expires_at)) },
        ),
        Event::ChainChosen { chain, .. } => said(Tone::Idle, html! { "The payer chose " (chain) }),
        Event::TransferRecorded { transfer, remine_until } => with(
            if remine_until.is_some() { Tone::Warn } else { Tone::Idle },
            html! { "Transfer of " (transfer.amount) " " (transfer.status) ", in block " (transfer.block.number) },
            html! {
                (tx(transfer.key)) " from " (on_chain(transfer.key.chain, &transfer.from.to_string()))
                @if let Some(until) = remine_until { ", waiting to be mined again until " (exact(*until)) }
            },
        ),
        Event::TransferFinalised { key } => with(Tone::Idle, html! { "Transfer final" }, tx(*key)),
        Event::TransferScreened { key, verdict } => with(
            tone_of(verdict.decision),
            html! { "Transfer screened: " strong { (verdict.decision) } },
            html! {
                (tx(*key)) " by " (verdict.provider)
                @if let Some(level) = &verdict.risk_level { ", risk " (level) }
                @if !verdict.flags.is_empty() { ", " (verdict.flags.join(", ")) }
            },
        ),
        Event::RefundScreened { refund_id, verdict } => with(
            tone_of(verdict.decision),
            html! { "Refund address screened: " strong { (verdict.decision) } },
            html! { span.mono { (refund_id) } " by " (verdict.provider) },
        ),
        Event::TransferCounted { key, excess, .. } => {
            with(Tone::Idle, html! { "Transfer counted" @if *excess { " as excess" } }, tx(*key))
        }
        Event::Reorged { key, reopened, .. } => {
            with(Tone::Bad, html! { "Transfer reorged" @if *reopened { "; the payment is pending again" } }, tx(*key))
        }
        Event::DeadlinePassed { chain_time } => {
            with(Tone::Idle, html! { "Deadline passed" }, html! { "block time " (exact(*chain_time)) })
        }
        Event::DeadlineMoved { from, to, expires_at, .. } => with(
            Tone::Warn,
            html! { "Deadline extended to " (exact(*expires_at)) },
            html! { "the chain produced no block for " (between(*from, *to)) },
        ),
        Event::Confirmed { amount, psp_amount, treasury_fee, reason, .. } => with(
            Tone::Good,
            html! { (badge("confirmed", Tone::Idle)) " for " (amount) ", " (plain(reason.as_str())) },
            html! { (psp_amount) " for the PSP, " (treasury_fee) " for the treasury" },
        ),
        Event::Mismatched { reason, .. } => {
            said(Tone::Warn, html! { (badge("mismatched", Tone::Warn)) " " (plain(reason.as_str())) })
        }
        Event::Failed { reason, .. } => {
            said(Tone::Bad, html! { (badge("failed", Tone::Bad)) " " (plain(reason.as_str())) })
        }
        Event::SettlementCompleted { tx_hash, .. } => {
            with(Tone::Idle, html! { "Settlement final" }, html! { (on_chain(chain, &tx_hash.to_string())) })
        }
        Event::Settled { .. } => said(Tone::Good, html! { (badge("settled", Tone::Good)) }),
        Event::SettlementFailed { reason, retry_at, .. } => {
            with(Tone::Bad, html! { "Settlement failed" }, html! { (reason) "; next attempt at " (exact(*retry_at)) })
        }
        Event::SettlementRetried { by } => said(Tone::Idle, html! { "Settlement retry requested by the " (by) }),
        Event::SettlementOrphaned { was_settled, .. } => {
            said(Tone::Bad, html! { "Settlement reorged" @if *was_settled { ", after it was final by its tier" } })
        }
        Event::AuthorizationAccepted { authorization } => with(
            Tone::Idle,
            html! { "Authorization of " (authorization.value) " accepted" },
            html! { "by " (on_chain(chain, &authorization.from.to_string())) ", until " (exact(authorization.valid_before)) },
        ),
        Event::AuthorizationScreened { verdict } => with(
            tone_of(verdict.decision),
            html! { "Payer screened: " strong { (verdict.decision) } },
            html! { "by " (verdict.provider) },
        ),
        Event::AuthorizationQueued => said(Tone::Idle, html! { "Authorization queued for collection" }),
        Event::AuthorizationCollected { tx_hash, .. } => {
            with(Tone::Good, html! { "Authorization collected" }, html! { (on_chain(chain, &tx_hash.to_string())) })
        }
        Event::AuthorizationOrphaned { .. } => {
            said(Tone::Bad, html! { "Collection reorged, after it was final by its tier" })
        }
        Event::AuthorizationEnded { end, detail, .. } => {
            let how = match end {
                AuthorizationEnd::Failed(failure) => html! { "Authorization failed: " (plain(failure.as_str())) },
                AuthorizationEnd::Expired => html! { "Authorization expired" },
            };
            TimelineEntry { tone: Tone::Warn, headline: how, detail: detail.as_ref().map(|detail| html! { (detail) }) }
        }
        Event::RefundRequested { refund, withdraws_settlement } => with(
            Tone::Idle,
            html! { "Refund of " (refund.amount) " accepted, requested by the " (refund.requested_by) },
            html! {
                "to " (on_chain(chain, &refund.to.to_string()))
                @if *withdraws_settlement { "; replaces the settlement" }
                @if refund.awaits_approval() { "; above the limit, waits for approval" }
            },
        ),
        Event::RefundAsked { request } => with(
            Tone::Idle,
            html! { "Refund of " (request.amount) " requested by a payer" },
            html! {
                "to " (on_chain(chain, &request.to.to_string()))
                @match request.proof {
                    AddressProof::Signature => ", which signed and sent the money",
                    AddressProof::Claimed => "; the payer only claims this address",
                }
            },
        ),
        Event::RefundRequestDeclined { request_id, .. } => {
            with(Tone::Idle, html! { "Request for a refund declined by the PSP" }, html! { span.mono { (request_id) } })
        }
        Event::RefundApproved { refund_id, .. } => {
            with(Tone::Idle, html! { "Refund approved by the operator" }, html! { span.mono { (refund_id) } })
        }
        Event::RefundSent { tx_hash, .. } => {
            with(Tone::Idle, html! { "Refund sent" }, html! { (on_chain(chain, &tx_hash.to_string())) })
        }
        Event::RefundFailed { reason, .. } => with(Tone::Bad, html! { "Refund failed" }, html! { (reason) }),
    }
}

const fn tone_of(decision: Decision) -> Tone {
    match decision {
        Decision::Allow => Tone::Idle,
        Decision::Review => Tone::Warn,
        Decision::Block => Tone::Bad,
    }
}

fn tx(key: TransferKey) -> Markup {
    html! { (on_chain(key.chain, &key.tx_hash.to_string())) " log " (key.log_index) }
}

fn between(from: Timestamp, to: Timestamp) -> String {
    span(std::time::Duration::from_millis(to.millis_since(from).unsigned_abs()))
}
