//! Page for decisions about a payment's money: a form for each possible decision, and the earlier decisions.
//!
//! The page is not live, so that a refresh cannot remove typed input. A decision that is no longer possible is refused.

use axum::extract::Path;
use axum::http::Uri;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_domain::payment::{Authorization, Decision, Payment, Refund, Transfer, TransferKey, Verdict};
use payferry_domain::{PaymentId, Timestamp};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::ApiError;

use crate::Operator;
use crate::approvals::{self, Guarded};
use crate::decisions::DecisionKind;
use crate::decisions::carry_out::{DecisionRequest, carry_out, next_refund};
use crate::decisions::query::{BlockedLine, Decisions, Possible, decisions, held, may, may_refund, payer_in_review};
use crate::page::form::Filled;
use crate::page::words::{Tone, ago, audit_log, badge, count, done, grouped, on_chain, panel, status, whole_on_chain};
use crate::page::{Failure, NavSection, Page, Refused, id_of, path};

/// `/ops/view/payments/{payment_id}/decide`.
pub(crate) async fn show(operator: Operator, Path(payment_id): Path<String>, uri: Uri) -> Result<Response, Failure> {
    let (_, decisions) = read(&operator, &payment_id).await?;
    let is_decided = uri.query() == Some("done=decided");
    let said = html! { @if is_decided { (done("The decision is recorded and carried out.")) } };
    let now = operator.system.clock().now();
    Ok(page(&decisions, &said, None, &Filled::default(), now).into_response())
}

/// Carries out a decision.
pub(crate) async fn decide(
    operator: Operator,
    Path(payment_id): Path<String>,
    kind: DecisionKind,
    filled: Filled,
) -> Result<Response, Refused> {
    let fields = kind.fields();
    let unsuitable = kind.unsuitable(&operator, &filled.json(fields)).await?;
    let request = filled.read(fields, |fields| DecisionRequest::read(kind, fields, unsuitable));
    let (id, before) = read(&operator, &payment_id).await?;
    let outcome = async { carry_out(&operator, id, request?).await };
    let here = format!("{}/{id}", path("payments"));
    let now = operator.system.clock().now();
    match outcome.await {
        Err(ApiError::TimedOut) => Err(Failure::Unknown { about: "payment", path: here }.into()),
        outcome => match filled.answered(outcome)? {
            Ok(Guarded::CarriedOut(_)) => Ok(Redirect::to(&format!("{here}/decide?done=decided")).into_response()),
            Ok(Guarded::Proposed(approval)) => Ok(approvals::page::redirect(&approval)),
            Err(refused) => {
                Ok(page(&before, &refused.said, Some(kind), &refused.filled, now).answer_form(refused.status))
            }
        },
    }
}

async fn read(operator: &Operator, payment_id: &str) -> Result<(PaymentId, Decisions), Failure> {
    let id = id_of("payment", payment_id)?;
    let found = decisions(&operator.system, id).await?;
    Ok((id, found.ok_or_else(|| Failure::not_found("payment", payment_id))?))
}

/// Link from the payment's page, if a decision is possible.
pub(crate) fn hint(can: &[Possible], id: PaymentId) -> Markup {
    html! {
        @if !can.is_empty() {
            p.notice role="status" {
                "An operator can decide about this payment's money. "
                a #decide href={ (path("payments")) "/" (id) "/decide" } { "Decide" }
            }
        }
    }
}

/// The page. `sent` names the form that was refused, and `filled` has its values.
fn page(decisions: &Decisions, said: &Markup, sent: Option<DecisionKind>, filled: &Filled, now: Timestamp) -> Page {
    let payment = &decisions.payment;
    let id = payment.id();
    let here = format!("{}/{id}", path("payments"));
    let empty = Filled::default();
    let filled_of = |form: DecisionKind| if sent == Some(form) { filled } else { &empty };
    let can = |form: DecisionKind| decisions.can.iter().any(|possible| possible.action == form.as_str());
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } a href=(here) { "payment" } span { "decide" } }
        div.title {
            h1.mono { (id) }
            (status(payment.status.as_str()))
            @for label in payment.labels.iter() { (badge(label.as_str(), Tone::Warn)) }
            p { "Every decision is recorded with its reason." }
        }
        (said)
        div.grid.two {
            div.col {
                @for transfer in &payment.transfers {
                    @let may = may(payment, transfer, now);
                    @if !may.is_empty() { (screening(&here, transfer, &may, filled_of(DecisionKind::Screen), now)) }
                }
                @for refund in held(payment).filter(|refund| !may_refund(payment, refund, now).is_empty()) {
                    (refund_screening(&here, payment, refund, filled_of(DecisionKind::ScreenRefund), now))
                }
                @if let Some(authorization) = payer_in_review(payment) {
                    (payer_screening(&here, payment, authorization, filled_of(DecisionKind::ScreenPayer), now))
                }
                @for refund in held(payment).filter(|refund| refund.awaits_approval()) {
                    (approval(&here, payment, refund, filled_of(DecisionKind::ApproveRefund), now))
                }
                @if can(DecisionKind::RefundBlocked) {
                    @for held in &decisions.blocked() { (refund(&here, held, &next_refund(decisions), filled_of(DecisionKind::RefundBlocked))) }
                }
                @if can(DecisionKind::RetrySettlement) { (retry(&here, payment, filled_of(DecisionKind::RetrySettlement), now)) }
                @if can(DecisionKind::ApplySetAside) { (set_aside_panel(&here, decisions, filled_of(DecisionKind::ApplySetAside))) }
                @if decisions.can.is_empty() {
                    section.panel aria-label="Empty" { p.none { "No decision is possible for this payment now." } }
                }
            }
            div.col { (audit_log(&decisions.history, "payment.", &html! { p { (grouped(decisions.history.len())) } }, "No decisions yet.", now)) }
        }
    };
    Page::still(format!("Decide about {id}"), NavSection::Attention, body)
}

/// Verdict of a screening.
pub(crate) fn verdict(screening: Option<&Verdict>) -> Markup {
    html! { @match screening { Some(said) => (status(said.decision.as_str())), None => "not screened yet" } }
}

/// Provider of a screening, its findings and its time.
pub(crate) fn finding(screening: Option<&Verdict>, now: Timestamp) -> Option<Markup> {
    let Verdict { provider, flags, checked_at, .. } = screening?;
    Some(html! { (provider) @if !flags.is_empty() { ": " (flags.join(", ")) } " " small { (ago(*checked_at, now)) } })
}

fn screening(here: &str, transfer: &Transfer, may: &[Decision], filled: &Filled, now: Timestamp) -> Markup {
    let TransferKey { chain, tx_hash, log_index, .. } = transfer.key;
    let tx_hash = tx_hash.to_string();
    let said = transfer.verdict.as_deref();
    let choices: Vec<(&str, &str)> = may
        .iter()
        .map(|decision| match decision {
            Decision::Allow => ("allow", "allow: count the money"),
            _ => ("block", "block: hold the money"),
        })
        .collect();
    html! {
        section.panel aria-label={ "Transfer " (tx_hash) } {
            header {
                h2 { "Transfer of " (transfer.amount) }
                p { (verdict(said)) }
            }
            dl.facts {
                dt { "Transaction" } dd { (on_chain(chain, &tx_hash)) " on " (chain) }
                dt { "From" } dd { (whole_on_chain(transfer.key.chain, &checksummed(transfer.from))) }
                dt { "State" } dd { (status(transfer.status.as_str())) }
                @if let Some(finding) = finding(said, now) { dt { "Screening" } dd { (finding) } }
            }
            div.body {
                form.stack id={ "screen-" (tx_hash) "-" (log_index) } method="post" action={ (here) "/screen" } {
                    input type="hidden" name="chain" value=(chain);
                    input type="hidden" name="tx_hash" value=(tx_hash);
                    input type="hidden" name="log_index" value=(log_index);
                    (filled.choice("decision", "Decision", &choices))
                    (filled.sign("basis of the decision", "I have checked the source of the money"))
                    div { button { "Decide" } }
                }
            }
        }
    }
}

fn refund_screening(here: &str, payment: &Payment, refund: &Refund, filled: &Filled, now: Timestamp) -> Markup {
    let said = refund.verdict.as_deref();
    html! {
        section.panel aria-label={ "Refund " (refund.id) } {
            header {
                h2 { "Refund of " (refund.amount) }
                p { (verdict(said)) }
            }
            dl.facts {
                dt { "To" } dd { (whole_on_chain(refund.asset.map_or(payment.terms.chain, |asset| asset.chain), &checksummed(refund.to))) }
                @if let Some(finding) = finding(said, now) { dt { "Screening" } dd { (finding) } }
            }
            div.body {
                form.stack id={ "screen-" (refund.id) } method="post" action={ (here) "/screen_refund" } {
                    input type="hidden" name="refund_id" value=(refund.id);
                    (filled.choice("decision", "Decision", &[("allow", "allow: send it"), ("block", "block: fail it; another address can be used")]))
                    (filled.sign("basis of the decision", "I have checked the destination address"))
                    div { button { "Decide" } }
                }
            }
        }
    }
}

fn payer_screening(
    here: &str,
    payment: &Payment,
    authorization: &Authorization,
    filled: &Filled,
    now: Timestamp,
) -> Markup {
    let said = authorization.verdict.as_deref();
    html! {
        section.panel aria-label="Payer of the authorization" {
            header {
                h2 { "Authorization of " (authorization.value) }
                p { (verdict(said)) }
            }
            dl.facts {
                dt { "Payer" } dd { (whole_on_chain(payment.terms.chain, &checksummed(authorization.from))) }
                @if let Some(finding) = finding(said, now) { dt { "Screening" } dd { (finding) } }
            }
            div.body {
                form.stack id="screen-payer" method="post" action={ (here) "/screen_payer" } {
                    (filled.choice("decision", "Decision", &[("allow", "allow: take the money"), ("block", "block: never take it; another payer can sign")]))
                    (filled.sign("basis of the decision", "I have checked the payer"))
                    div { button { "Decide" } }
                }
            }
        }
    }
}

fn approval(here: &str, payment: &Payment, refund: &Refund, filled: &Filled, now: Timestamp) -> Markup {
    let asset = refund.asset.unwrap_or_else(|| payment.asset());
    let choices = [("approve", "approve: send it"), ("reject", "reject: fail it; its amount is available again")];
    html! {
        section.panel aria-label={ "Approval of refund " (refund.id) } {
            header {
                h2 { "Refund of " (refund.amount) " above the limit" }
                p { (verdict(refund.verdict.as_deref())) }
            }
            dl.facts {
                dt { "To" } dd { (whole_on_chain(refund.asset.map_or(payment.terms.chain, |asset| asset.chain), &checksummed(refund.to))) }
                dt { "Token" } dd { @if let Some(token) = payment.token_of(asset) { (token) } @else { (on_chain(asset.chain, &checksummed(asset.address))) } " on " (asset.chain) }
                dt { "Requested" } dd { (ago(refund.requested_at, now)) }
                @if let Some(finding) = finding(refund.verdict.as_deref(), now) { dt { "Screening" } dd { (finding) } }
            }
            div.body {
                form.stack id={ "approve-" (refund.id) } method="post" action={ (here) "/approve_refund" } {
                    input type="hidden" name="refund_id" value=(refund.id);
                    (filled.choice("decision", "Decision", &choices))
                    (filled.sign("basis of the decision", "The PSP has confirmed this refund and its address"))
                    div { button { "Decide" } }
                }
            }
        }
    }
}

/// `key` is the idempotency key of the next refund after those on this page, also if the form was sent before.
fn refund(here: &str, held: &BlockedLine, key: &str, filled: &Filled) -> Markup {
    let place = held.misdirected.as_deref().map(|token| format!("-{}-{token}", held.chain)).unwrap_or_default();
    html! {
        section.panel aria-labelledby={ "blocked" (place) } {
            header {
                h2 id={ "blocked" (place) } { "Blocked money" }
                p { (held.amount) " " (held.currency.unwrap_or("of another token")) " on " (held.chain) " held" }
            }
            div.body {
                form.stack id={ "refund-blocked" (place) } method="post" action={ (here) "/refund_blocked" } {
                    @if let Some(token) = &held.misdirected {
                        input type="hidden" name="chain" value=(held.chain);
                        input type="hidden" name="token_address" value=(token);
                    }
                    input type="hidden" name="idempotency_key" value=(key);
                    (filled.line("address", "Destination address", "0x…", true))
                    (filled.line("amount", "Amount (empty: the whole amount)", &held.amount, false))
                    (filled.sign("basis of the decision", "The money may go to this address. The transfer cannot be reversed."))
                    div { button { "Send" } }
                }
            }
        }
    }
}

fn retry(here: &str, payment: &Payment, filled: &Filled, now: Timestamp) -> Markup {
    let body = html! {
        @if let Some(settlement) = payment.settlement.as_deref() {
            dl.facts {
                dt { "Amount" } dd { (settlement.amount) " " (payment.terms.token) }
                dt { "Failures" } dd { (count(settlement.failures)) }
                @if let Some(failure) = &settlement.failure { dt { "Last failure" } dd { span.bad-ink.reason { (failure) } } }
                @if let Some(at) = settlement.retry_at { dt { "Next attempt" } dd { (ago(at, now)) } }
            }
        }
        div.body {
            form.stack #retry-settlement method="post" action={ (here) "/retry_settlement" } {
                (filled.sign("what was fixed", "The cause of the failure is fixed"))
                div { button { "Settle again" } }
            }
        }
    };
    panel("settlement", "Settlement", "failed with a persistent error", &body)
}

fn set_aside_panel(here: &str, decisions: &Decisions, filled: &Filled) -> Markup {
    let body = html! {
        dl.facts {
            @for line in &decisions.set_aside {
                dt { @if line.at_least { "at least " } (count(line.transfers)) " on " (line.chain) }
                dd { @if line.at_least { "at least " } (line.amount) " " (line.currency.unwrap_or("of another token")) }
            }
        }
        div.body {
            form.stack #take-in method="post" action={ (here) "/take_in" } {
                (filled.sign("basis of the decision", "These transfers are genuine, not spam"))
                div { button { "Apply transfers" } }
            }
        }
    };
    panel("aside", "Money set aside", "recorded but not counted: the payment's list of transfers is full", &body)
}
